"""Redaction of a text that comes in parts, each of which is to be shown as soon as possible.

A secret may be spread over several parts. So the end of the text is held while it is the beginning
of a secret's form, and given with the part that tells the two apart. Almost every word begins some
form, since base64 may begin with anything: less than ``_HELD_FROM`` characters of a beginning are
shown at once. If a secret follows nevertheless, only its rest becomes dots.
"""

import re
from functools import lru_cache
from itertools import groupby

from claw_contract.redaction.redactor import START_LENGTH, Redactor
from claw_contract.secret import DOTS

_HELD_FROM = START_LENGTH
_LONG = 256
"""Characters from which a search for whole forms takes less time than one for their beginnings."""


class TextWindow:
    """One channel of text: one kind of content, in one piece of one reply."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._forms = redactor.forms_by_start
        self._starts = _compile(frozenset(self._forms))
        self._longest = redactor.max_form_bytes

        self._context = ""
        """The end of the text so far: all of it in which a form may have begun."""
        self._settled = 0
        """The first characters of the context that nothing more is to be shown of.

        They were returned, or the dots that stand for them were.
        """
        self._hidden = 0
        """The first characters of the context that the last dots stand for."""

        self.early = 0
        """Characters that were returned, and are not in the whole text redacted.

        They are beginnings of secrets. Where secrets overlap, there may be more.
        """

    def feed(self, text: str) -> str:
        """Return what can be shown now that this part has come; it may be nothing."""
        if not text or not self._forms:
            return text

        text = self._context + text
        starts = self._find_starts(text)
        if starts:
            spans, limit = self._find_forms(text, starts)
            shown, settled, hidden = self._show(text, spans, limit)
        else:  # ordinary words, which cost one look
            shown = text[self._settled :]
            limit = settled = len(text)
            hidden = 0

        # The next part is read with all of this text in which a form may have begun: with what is
        # behind the limit, and at least with the last characters, which are too few to tell.
        begin = max(min(limit, len(text) - _HELD_FROM + 1), 0)
        self._context = text[begin:]
        self._settled = settled - begin
        self._hidden = max(hidden - begin, 0)
        return shown

    def flush(self) -> str:
        """Return the rest: the channel has ended."""
        text = self._context
        spans, _ = self._find_forms(text, self._find_starts(text))
        shown, _, _ = self._show(text, spans, len(text))

        self._context = ""
        self._settled = self._hidden = 0
        return shown

    def _find_starts(self, text: str) -> list[int]:
        """Return the places where a form may begin, of which the text has enough to tell.

        In a long text without a whole form, one may begin at its end only.
        """
        end = max(len(text) - self._longest, 0)
        is_whole_absent = end >= _LONG and not self._redactor.finds_one(_encode(text))

        starts: list[int] = []
        found = self._starts.search(text, end if is_whole_absent else 0)
        while found is not None:
            starts.append(found.start())
            found = self._starts.search(text, found.start() + 1)
        return starts

    def _find_forms(self, text: str, starts: list[int]) -> tuple[list[tuple[int, int]], int]:
        """Return the places of whole forms, and the place where an unfinished one may begin.

        The latter is the end of the text if no form can be unfinished there.
        """
        spans: list[tuple[int, int]] = []
        limit = len(text)
        for at in starts:
            rest = text[at : at + self._longest]
            forms = self._forms[rest[:START_LENGTH]]
            length = max((len(form) for form in forms if rest.startswith(form)), default=0)
            if length:
                spans.append((at, at + length))

            may_go_on = any(len(form) > len(rest) and form.startswith(rest) for form in forms)
            if may_go_on:
                limit = min(limit, at)
        return spans, limit

    def _show(self, text: str, spans: list[tuple[int, int]], limit: int) -> tuple[str, int, int]:
        """Return what is shown of the text up to a limit.

        Return also the end of what is settled then, and the end of the last secret. A secret that
        begins before the limit is settled whole; secrets that overlap are one.
        """
        settled, hidden = self._settled, self._hidden
        shown: list[str] = []
        for start, end in spans:
            if start >= limit:
                break

            # It overlaps the secret before it, whose dots were the last that was shown.
            goes_on = start < hidden and settled == hidden
            if not goes_on:
                shown += [text[settled:start], DOTS]
                self.early += max(settled - max(start, hidden), 0)
            settled = hidden = max(end, settled)

        if settled < limit:
            shown.append(text[settled:limit])
            settled = limit
        return "".join(shown), settled, hidden


def _encode(text: str) -> bytes:
    """Return the bytes in which the forms of secrets are searched for."""
    return text.encode(errors="surrogatepass")


@lru_cache(maxsize=64)
def _compile(starts: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of these texts, which are equally long."""
    return re.compile(_any_of(sorted(starts)) if starts else "(?!)")


def _any_of(texts: list[str]) -> str:
    """Return the pattern as a tree of characters, which is searched faster than a list of texts."""
    if len(texts[0]) == 1:
        return f"[{''.join(map(re.escape, texts))}]"

    branches = [
        re.escape(first) + _any_of([text[1:] for text in same])
        for first, same in groupby(texts, key=lambda text: text[0])
    ]
    return f"(?:{'|'.join(branches)})"
