"""Redaction: replaces secrets by dots in text, bytes and JSON documents, in the usual encodings."""

from __future__ import annotations

import base64
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import merge
from urllib.parse import quote

from claw_contract.secret import DOTS, Secret

_MIN_BASE64 = 8  # The shortest base64 text that is unlikely to appear by chance


def encoded_forms(value: str) -> frozenset[bytes]:
    """Return the value itself, and its forms in JSON, URLs and base64."""
    texts = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    texts |= {text.replace("/", "\\/") for text in texts}
    texts |= {text.translate(_HTML_SAFE) for text in texts}
    texts |= {json.dumps(text)[1:-1] for text in texts}
    forms = {text.encode(errors="surrogatepass") for text in texts}
    raw = value.encode(errors="surrogatepass")
    forms |= {quote(raw, safe=safe).encode() for safe in ("", "/", "!'()*")}
    return frozenset(forms | {form for form in _in_base64(raw) if len(form) >= _MIN_BASE64})


_HTML_SAFE = {ord(mark): f"\\u{ord(mark):04x}" for mark in "&<>"}
"""Escapes of JSON writers whose output may be part of an HTML page."""


def _in_base64(raw: bytes) -> set[bytes]:
    encoded = set()
    for skipped in range(3):
        whole = raw[skipped : len(raw) - (len(raw) - skipped) % 3]
        encoded |= {base64.b64encode(whole), base64.urlsafe_b64encode(whole)}
    return encoded


class Redactor:
    """Replaces known secrets, by value, in all output of the process (history, log, errors, tool results).

    A secret is also recognized in JSON (and JSON within JSON), percent-encoded, and in base64. This catches echoes and error
    texts; a peer that wants to hide a secret always can.

    The encoded forms of a ``Secret``, which is from the pod's files, are cached. A plain string, which is a credential that a
    client presented, leaves nothing behind.
    """

    def __init__(self, secrets: Iterable[Secret | str]) -> None:
        every = [*secrets]
        known = _long_enough(each.reveal() for each in every if isinstance(each, Secret))
        self._values, self._forms = known, _cached_forms(known)
        if len(known) < len(every) and (strings := _long_enough(each for each in every if isinstance(each, str)) - known):
            self._values |= strings
            self._forms += tuple(form for value in strings for form in encoded_forms(value))

    def with_secrets(self, secrets: Iterable[Secret | str]) -> Redactor:
        """Return a redactor of these secrets too."""
        more = Redactor(each for each in secrets if _value(each) not in self._values)
        if not more._values:
            return self
        more._values |= self._values
        more._forms += self._forms
        return more

    @property
    def max_form_bytes(self) -> int:
        """Length of the longest form of a secret, in bytes."""
        return max(map(len, self._forms), default=0)

    def text(self, text: str) -> str:
        return self.data(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def data(self, data: bytes) -> bytes:
        """Return the bytes without the secrets."""
        spans = self._spans(data)
        return next(_replace_spans([data], spans)) if spans else data

    def lines(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Return each line without the secrets. All lines are searched at once."""
        spans = self._spans(b"\n".join(lines))
        return [*_replace_spans(lines, spans, between=1)] if spans else lines

    def pieces(self, pieces: Sequence[bytes]) -> Sequence[bytes]:
        """Return the pieces of one text without the secrets of the joined text."""
        spans = self._spans(b"".join(pieces))
        return [*_replace_spans(pieces, spans)] if spans else pieces

    def document(self, document: bytes) -> bytes:
        """Return JSON without the secrets, and still JSON: a number that contains one becomes a string.

        Other bytes are treated as by ``data``.
        """
        spans = self._spans(document)
        if not spans and not (self._forms and _ESCAPE in document and _HIDING.search(document)):
            return document
        try:
            json.loads(document.decode("utf-8-sig", errors="surrogatepass"))
        except (ValueError, RecursionError):
            return self.data(document)
        return b"".join(self._pieces(document, spans))

    def cut(self, data: bytes, limit: int) -> bytes:
        """Return the first ``limit`` bytes, and never a part of a secret."""
        for start, end in self._spans(data):
            if start < limit < end:
                return data[:start]
        return data[:limit]

    def _pieces(self, document: bytes, spans: Spans) -> Iterator[bytes]:
        """Yield the parts of a document. Only tokens that a secret touches, or may hide in, are decoded."""
        copied = read = 0
        for start, end in merge(spans, (match.span() for match in _HIDING.finditer(document))):
            while read < end and (token := _token_at(document, read, max(read, start))) and token.start() < end:
                clear, read = self._token(token[0]), token.end()
                if clear != token[0]:
                    yield document[copied : token.start()]
                    yield clear
                    copied = read
        yield document[copied:]

    def _token(self, token: bytes) -> bytes:
        if token[:1] != b'"':
            return json.dumps(DOTS, ensure_ascii=False).encode() if self._spans(token) else token
        text = json.loads(token.decode(errors="surrogatepass")).encode(errors="surrogatepass")
        # A call's arguments are JSON within JSON.
        clear = self.data(self.document(text) if text[:1] in (b"{", b"[") else text)
        if clear == text:
            return token
        return json.dumps(clear.decode(errors="surrogatepass"), ensure_ascii=False).encode(errors="replace")

    def _spans(self, data: bytes) -> Spans:
        """Return the places of secrets. Overlapping ones are merged, so that none leaves its tail behind."""
        spans: Spans = []
        for form in self._forms if len(data) >= MIN_REDACTED else ():
            start = data.find(form)
            if start < 0:
                continue
            length = len(form)
            while start >= 0:
                last = start
                # "aaaaaa" may begin at every byte, so the last of the overlapping ones is searched from the end.
                while (further := data.rfind(form, last + 1, last + 2 * length - 1)) >= 0:
                    last = further
                spans.append((start, last + length))
                start = data.find(form, last + length)
        merged: Spans = []
        for start, end in sorted(spans) if spans else ():
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged


type Spans = list[tuple[int, int]]

MIN_REDACTED = 6  # Shorter values are not replaced: they would blank out ordinary words and protect nothing
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[^\s,:{}\[\]"]++', re.DOTALL)
"""A string or a scalar of a JSON document. Possessive: hostile text must not make it backtrack."""
_WHOLE_STRINGS = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
"""Everything before a place, except a string that is open there."""
_SEPARATORS = tuple(bytes([mark]) for mark in b' \t\r\n,:{}[]"')


_ESCAPE = rb"\u00"
_HIDING = re.compile(rb"\\u00[2-7]")
"""An ASCII character that is escaped without need: a secret there can be found only by decoding."""


def _long_enough(values: Iterable[str]) -> frozenset[str]:
    return frozenset([value for value in values if len(value) >= MIN_REDACTED])


def _value(secret: Secret | str) -> str:
    return secret.reveal() if isinstance(secret, Secret) else secret


def _token_at(document: bytes, read: int, place: int) -> re.Match[bytes] | None:
    """Return the token of valid JSON at a place, or the next one. ``read``: the end of an earlier token."""
    before = _WHOLE_STRINGS.match(document, read, place)
    assert before is not None  # it also matches the empty string
    if before.end() < place:
        return _TOKEN.match(document, before.end())
    return _TOKEN.search(document, max(read, 1 + max(document.rfind(mark, read, place) for mark in _SEPARATORS)))


def _replace_spans(lines: Sequence[bytes], spans: Spans, between: int = 0) -> Iterator[bytes]:
    """Yield the lines with dots at the spans of the joined text. ``between``: bytes between two lines in that text."""
    begin, pending = 0, deque(spans)
    for line in lines:
        parts, copied, end = [], 0, begin + len(line)
        while pending and pending[0][0] < end:
            start, stop = pending[0]
            parts += [line[copied : max(start - begin, 0)], DOTS.encode()]
            copied = stop - begin
            if stop > end:  # the span continues in the next line
                break
            pending.popleft()
        yield b"".join([*parts, line[copied:]]) if parts else line
        begin = end + between


@lru_cache(maxsize=1024)
def _cached_forms(values: frozenset[str]) -> tuple[bytes, ...]:
    return tuple(sorted({form for value in values for form in _cached_forms_of(value)}))


@lru_cache(maxsize=4096)
def _cached_forms_of(value: str) -> frozenset[bytes]:
    return encoded_forms(value)
