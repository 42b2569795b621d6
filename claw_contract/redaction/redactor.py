"""Redaction: secrets are replaced by dots in text, bytes and JSON documents, in every encoding that hides them."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import merge

from claw_contract.redaction.encodings import encoded_forms
from claw_contract.secret import DOTS, Secret


class Redactor:
    """Replaces known secrets, by value, in what leaves the process (history, log, errors, tool results).

    A secret is also known as JSON spells it (and JSON within JSON), percent-encoded, and in base64. A peer that means to
    hide one can always do so; what is caught is what echoes and error texts hold.

    A ``Secret`` is of the pod's files: how it is spelled is kept. A text is what anybody shows as a credential: nothing of it
    stays.
    """

    def __init__(self, secrets: Iterable[Secret | str]) -> None:
        every = [*secrets]
        known = _long(each.reveal() for each in every if isinstance(each, Secret))
        self._values, self._forms = known, _forms(known)
        if len(known) < len(every) and (shown := _long(each for each in every if isinstance(each, str)) - known):
            self._values |= shown
            self._forms += tuple(form for value in shown for form in encoded_forms(value))

    def with_secrets(self, secrets: Iterable[Secret | str]) -> Redactor:
        """The same, with these too."""
        more = Redactor(each for each in secrets if _value(each) not in self._values)
        if not more._values:
            return self
        more._values |= self._values
        more._forms += self._forms
        return more

    @property
    def max_form_bytes(self) -> int:
        """Bytes of the longest form of a secret."""
        return max(map(len, self._forms), default=0)

    def text(self, text: str) -> str:
        return self.data(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def data(self, data: bytes) -> bytes:
        """Any bytes, without the secrets."""
        spans = self._spans(data)
        return next(_cleared([data], spans)) if spans else data

    def lines(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Each of these without the secrets. However many they are, they are searched at once."""
        spans = self._spans(b"\n".join(lines))
        return [*_cleared(lines, spans, between=1)] if spans else lines

    def pieces(self, pieces: Sequence[bytes]) -> Sequence[bytes]:
        """The pieces of one text, without the secrets that are in it when it is put together."""
        spans = self._spans(b"".join(pieces))
        return [*_cleared(pieces, spans)] if spans else pieces

    def document(self, document: bytes) -> bytes:
        """JSON without the secrets, and still JSON: a number that holds one becomes text. Other bytes: as ``data``."""
        spans = self._spans(document)
        if not spans and not (self._forms and _HIDING.search(document)):
            return document
        try:
            json.loads(document.decode("utf-8-sig", errors="surrogatepass"))
        except (ValueError, RecursionError):
            return self.data(document)
        return b"".join(self._pieces(document, spans))

    def cut(self, data: bytes, limit: int) -> bytes:
        """The first ``limit`` bytes, and never the first half of a secret."""
        for start, end in self._spans(data):
            if start < limit < end:
                return data[:start]
        return data[:limit]

    def _pieces(self, document: bytes, spans: Spans) -> Iterator[bytes]:
        """A document, in which only those tokens are looked at that a secret touches, or may hide in."""
        told = read = 0
        for start, end in merge(spans, (found.span() for found in _HIDING.finditer(document))):
            while read < end and (token := _token_at(document, read, max(read, start))) and token.start() < end:
                clear, read = self._token(token[0]), token.end()
                if clear != token[0]:
                    yield document[told : token.start()]
                    yield clear
                    told = read
        yield document[told:]

    def _token(self, token: bytes) -> bytes:
        if token[:1] != b'"':
            return json.dumps(DOTS, ensure_ascii=False).encode() if self._spans(token) else token
        text = json.loads(token.decode(errors="surrogatepass")).encode(errors="surrogatepass")
        # JSON within JSON, as a call's arguments are.
        clear = self.data(self.document(text) if text[:1] in (b"{", b"[") else text)
        if clear == text:
            return token
        return json.dumps(clear.decode(errors="surrogatepass"), ensure_ascii=False).encode(errors="replace")

    def _spans(self, data: bytes) -> Spans:
        """Where secrets stand; those that overlap are one, so that none leaves its tail behind."""
        found: Spans = []
        for form in self._forms if len(data) >= MIN_REDACTED else ():
            start, length = data.find(form), len(form)
            while start >= 0:
                last = (
                    start  # of those that overlap: the furthest is looked for, since "aaaaaa" may begin at every byte
                )
                while (further := data.rfind(form, last + 1, last + 2 * length - 1)) >= 0:
                    last = further
                found.append((start, last + length))
                start = data.find(form, last + length)
        merged: Spans = []
        for start, end in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged


type Spans = list[tuple[int, int]]

MIN_REDACTED = 6
"""Shorter values are not replaced: they would blank out ordinary words and protect nothing."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[^\s,:{}\[\]"]++', re.DOTALL)
"""A string or a scalar of a JSON document. Possessive: hostile text must not make it backtrack."""
_WHOLE_STRINGS = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
"""All before a place, but for a string that it stands in."""
_BETWEEN = tuple(bytes([mark]) for mark in b' \t\r\n,:{}[]"')


_HIDING = re.compile(rb"\\u00[2-7]")
"""An ASCII character that need not be escaped, and is: what stands there can only be read by decoding it."""


def _long(values: Iterable[str]) -> frozenset[str]:
    return frozenset([value for value in values if len(value) >= MIN_REDACTED])


def _value(secret: Secret | str) -> str:
    return secret.reveal() if isinstance(secret, Secret) else secret


def _token_at(document: bytes, read: int, place: int) -> re.Match[bytes] | None:
    """The token of sound JSON at a place, or the next one; ``read``: where a token ended before it."""
    before = _WHOLE_STRINGS.match(document, read, place)
    assert before is not None  # it matches nothing at all, too
    if before.end() < place:
        return _TOKEN.match(document, before.end())
    return _TOKEN.search(document, max(read, 1 + max(document.rfind(mark, read, place) for mark in _BETWEEN)))


def _cleared(lines: Sequence[bytes], spans: Spans, between: int = 0) -> Iterator[bytes]:
    """Lines, with dots where there are secrets in their whole; ``between``: bytes that stand there between them."""
    begin, left = 0, deque(spans)
    for line in lines:
        parts, told, end = [], 0, begin + len(line)
        while left and left[0][0] < end:
            start, stop = left[0]
            parts += [line[told : max(start - begin, 0)], DOTS.encode()]
            told = stop - begin
            if stop > end:  # it goes on in the next line
                break
            left.popleft()
        yield b"".join([*parts, line[told:]]) if parts else line
        begin = end + between


@lru_cache(maxsize=1024)
def _forms(values: frozenset[str]) -> tuple[bytes, ...]:
    return tuple(sorted({form for value in values for form in _known_spellings(value)}))


@lru_cache(maxsize=4096)
def _known_spellings(value: str) -> frozenset[bytes]:
    return encoded_forms(value)
