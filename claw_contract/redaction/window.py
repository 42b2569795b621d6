"""Redaction of a text that comes in parts, each of which is to be shown as soon as possible.

A secret may be spread over several parts. So the end of the text is held while it is the beginning
of a secret's form, and given with the part that tells the two apart. Almost every word begins some
form, since base64 may begin with anything: less than ``_HELD_FROM`` characters of a beginning are
shown at once. If a secret follows nevertheless, only its rest becomes dots.
"""

from claw_contract.redaction.redactor import START_LENGTH, Redactor
from claw_contract.secret import DOTS

_HELD_FROM = START_LENGTH
_LONG = 512  # Characters of a text from which on the redactor finds out faster that it is clear


class TextWindow:
    """One channel of text: one kind of content, in one piece of one reply."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._forms = redactor.forms_by_start
        self._longest = redactor.max_form_bytes

        self._context = ""
        """The end of the text so far: all of it in which a form may have begun."""
        self._settled = 0
        """The first characters of the context that nothing more is to be shown of.

        They were returned, or the dots that stand for them were.
        """
        self._hidden = 0
        """The first characters of the context that the last dots stand for."""

    def feed(self, text: str) -> str:
        """Return what can be shown now that this part has come; it may be nothing."""
        if not self._forms:
            return text

        text = self._context + text
        spans, limit = self._find(text)
        shown, settled, hidden = self._show(text, spans, limit)

        kept = min(limit, max(len(text) - _HELD_FROM + 1, 0))
        self._context = text[kept:]
        self._settled = settled - kept
        self._hidden = max(hidden - kept, 0)
        return shown

    def flush(self) -> str:
        """Return the rest: the channel has ended."""
        spans, _ = self._find(self._context)
        shown, _, _ = self._show(self._context, spans, len(self._context))
        self._context = ""
        self._settled = self._hidden = 0
        return shown

    def _find(self, text: str) -> tuple[list[tuple[int, int]], int]:
        """Return the places of forms in a text, and that of the first beginning of one at its end.

        The latter is the end of the text if it ends with none.
        """
        first = 0
        if len(text) > _LONG and self._redactor.text(text) is text:
            first = max(len(text) - self._longest, 0)

        forms_by_start = self._forms
        starts = [
            at
            for at in range(first, len(text) - START_LENGTH + 1)
            if text[at : at + START_LENGTH] in forms_by_start
        ]

        spans: list[tuple[int, int]] = []
        limit = len(text)
        for at in starts:
            rest = text[at : at + self._longest]
            forms = forms_by_start[rest[:START_LENGTH]]
            length = max((len(form) for form in forms if rest.startswith(form)), default=0)
            if length:
                spans.append((at, at + length))
            if limit == len(text) and any(
                form.startswith(rest) for form in forms
            ):
                limit = at
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

            goes_on = start < hidden and settled == hidden
            if not goes_on:
                shown += [text[settled:start], DOTS]
            settled = hidden = max(end, settled)

        if settled < limit:
            shown.append(text[settled:limit])
            settled = limit
        return "".join(shown), settled, hidden
