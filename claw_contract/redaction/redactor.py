"""Redaction: replaces secrets by dots in text, bytes and JSON documents, in the usual encodings.

Terms. A *form* is a secret in one encoding. A *span* is the place of a secret in some bytes. A form
can *hide* in JSON: a peer may escape a character that needs no escape, and then only decoding shows
the secret. Large documents are searched and decoded in steps, because one step holds the
interpreter's lock, and with it every other thread.
"""

from __future__ import annotations

import base64
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from heapq import merge
from sys import byteorder
from urllib.parse import quote

import msgspec

from claw_contract.secret import DOTS, Secret

_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_MIN_BASE64 = 8  # The shortest base64 text that is unlikely to appear by chance
_PERCENT = re.compile("%[0-9A-F]{2}")
_HTML_SAFE = {ord(mark): f"\\u{ord(mark):04x}" for mark in "&<>"}
"""Escapes of JSON writers whose output may be part of an HTML page."""


def encoded_forms(value: str) -> frozenset[bytes]:
    """Return the value itself, and its forms in JSON, URLs and base64."""
    texts = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    texts |= {text.replace("/", "\\/") for text in texts}
    texts |= {text.translate(_HTML_SAFE) for text in texts}
    nested = {json.dumps(text)[1:-1] for text in texts}  # JSON within JSON
    texts |= nested | {text.replace("/", "\\/") for text in nested}

    raw = value.encode(errors="surrogatepass")
    quoted = {quote(raw, safe=safe) for safe in ("", "/", "!'()*")}
    quoted |= {_PERCENT.sub(lambda escape: escape[0].lower(), text) for text in quoted}

    forms = {text.encode(errors="surrogatepass") for text in texts}
    forms |= {text.encode() for text in quoted}
    forms |= {form for form in _in_base64(raw) if len(form) >= _MIN_BASE64}
    return frozenset(forms)


def _in_base64(raw: bytes) -> set[bytes]:
    """Return how base64 writes the bytes, alone and within a longer text.

    A group of four characters has three bytes, and the secret may begin at any of them. A form has
    the characters that the secret alone decides. Of a longer text the two beside them are left,
    which have up to four bits of its first and its last byte. Where the text ends with the secret,
    the last character has no other bits, and belongs to a form too.
    """
    encoded: set[bytes] = set()
    for before in range(3):
        begin = -(-before * 8 // 6)
        end = (before + len(raw)) * 8 // 6
        padded = bytes(before) + raw
        for text in (base64.b64encode(padded), base64.urlsafe_b64encode(padded)):
            encoded |= {text[begin:end], text[begin:].rstrip(b"=")}
    return encoded


class LongTextError(ValueError):
    """A text is too long to be decoded, and a secret is in it or may be."""


class Redactor:
    """Replaces known secrets in all output of the process: history, log, errors, tool results.

    A secret is also recognized in JSON (and JSON within JSON), percent-encoded, and in base64. This
    catches echoes and error texts; a peer that wants to hide a secret always can.

    The encoded forms of a ``Secret``, which is from the pod's files, are cached. A plain string,
    which is a credential that a client presented, leaves nothing behind.
    """

    def __init__(self, secrets: Iterable[Secret | str]) -> None:
        all_secrets = [*secrets]
        known = _long_enough(each.reveal() for each in all_secrets if isinstance(each, Secret))
        self._values = known
        self._searches: tuple[_FormSearch, ...] = (_cached_search(known),) if known else ()

        if len(known) < len(all_secrets):
            strings = _long_enough(each for each in all_secrets if isinstance(each, str)) - known
            if strings:
                forms = {form for value in strings for form in encoded_forms(value)}
                self._values |= strings
                self._searches += (_FormSearch(forms),)

    def knows(self, secret: Secret) -> bool:
        """Return True if the redactor was made of this secret, among others."""
        return secret.reveal() in self._values

    def with_secrets(self, secrets: Iterable[Secret | str]) -> Redactor:
        """Return a redactor of these secrets too."""
        more = Redactor(each for each in secrets if _value(each) not in self._values)
        if not more._values:
            return self
        more._values |= self._values
        more._searches += self._searches
        return more

    @property
    def max_form_bytes(self) -> int:
        """Length of the longest form of a secret, in bytes."""
        return max((len(form) for search in self._searches for form in search.forms), default=0)

    @property
    def forms_by_start(self) -> Mapping[str, tuple[str, ...]]:
        """The forms of all secrets by their first ``START_LENGTH`` characters."""
        if len(self._searches) == 1:
            return self._searches[0].by_start

        merged: dict[str, tuple[str, ...]] = {}
        for search in self._searches:
            for start, forms in search.by_start.items():
                merged[start] = merged.get(start, ()) + forms
        return merged

    def finds_one(self, data: bytes) -> bool:
        """Return whether a form of a secret is in the bytes, as it is spelled."""
        return any(_finds_one(data.find, each.find_candidates(data)) for each in self._searches)

    def text(self, text: str) -> str:
        data = text.encode(errors="surrogatepass")
        clear = self.data(data)
        return text if clear is data else clear.decode(errors="surrogatepass")

    def data(self, data: bytes) -> bytes:
        """Return the bytes without the secrets: the same object if there are none."""
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

    def document(self, document: bytes, max_text: int | None = None) -> bytes:
        """Return JSON without the secrets, and still JSON; other bytes as by ``data``.

        A number that contains a secret becomes a string. ``max_text``: bytes of the longest string
        that is decoded in a document of more than 4 MiB. Raise ``LongTextError`` if a secret is, or
        may be, in a longer one.
        """
        spans = self._spans(document)
        # One byte is found forty times as fast as an escape.
        if not spans and (_BACKSLASH not in document or not self._may_be_hidden(document)):
            return document

        # Whether a large document is JSON is not checked beforehand: that would be one long step.
        if max_text is not None and len(document) > _WINDOW and _LOOKS_LIKE_JSON.match(document):
            try:
                return b"".join(self._pieces(document, spans, max_text))
            except (LongTextError, RecursionError):
                raise
            except ValueError:  # it is no JSON after all
                return self.data(document)

        if not _is_json(document):
            return self.data(document)
        return b"".join(self._pieces(document, spans))

    @cached_property
    def _hiding(self) -> re.Pattern[bytes]:
        """The bytes of a document that may hide a secret."""
        forms = (form for search in self._searches for form in search.forms)
        return _HIDING_NESTED if any(_BACKSLASH in form for form in forms) else _HIDING

    def _may_be_hidden(self, document: bytes) -> bool:
        """Return whether a document must be decoded, because a secret may hide in it."""
        if not self._searches:
            return False
        if len(document) <= _WINDOW:
            has_mark = _ESCAPE in document or _NESTED in document
            return has_mark and self._hiding.search(document) is not None

        may_hide = any(
            self._hiding.search(document, start, end + _ESCAPE_LENGTH)
            for start, end in _steps(document, _WINDOW)
        )
        if not may_hide:
            return False

        # Only escapes of printable ASCII are decoded below. A secret with any other character may
        # be hidden by other escapes, so the whole document must be decoded.
        forms = {form for search in self._searches for form in search.forms}
        if any(_NOT_PLAIN.search(form) for form in forms):
            return True

        # To decode the document in one go would hold up the event loop. So it is decoded piece by
        # piece, and each level of JSON within JSON is searched.
        pieces = (document[start:end] for start, end in _steps(document, _DECODED))
        for text in _decoded_levels(pieces, self.max_form_bytes):
            if any(form in text for form in forms):
                return True
        return False

    def cut(self, data: bytes, limit: int) -> bytes:
        """Return the first ``limit`` bytes, and never a part of a secret."""
        for start, end in self._spans(data):
            if start < limit < end:
                return data[:start]
        return data[:limit]

    def _pieces(
        self, document: bytes, spans: Spans, max_text: int | None = None
    ) -> Iterator[bytes]:
        """Yield the document without the secrets, in pieces.

        Only tokens that a secret touches, or may hide in, are decoded.
        """
        copied = 0  # The end of what was yielded
        read = 0  # The end of the last token
        for start, end in merge(spans, _find_hiding(document, self._hiding)):
            if max_text is not None:
                read = _step_over_strings(document, read, start, max_text)

            # A span may reach over several tokens, as of numbers in an array.
            while read < end:
                token = _token_at(document, read, max(read, start))
                if token is None or token.start() >= end:
                    break

                read = token.end()
                clear = self._token(token[0])
                if clear != token[0]:
                    yield document[copied : token.start()]
                    yield clear
                    copied = read

        yield document[copied:]

    def _token(self, token: bytes) -> bytes:
        """Return a string or a scalar of a JSON document without the secrets, as JSON."""
        if token[:1] != b'"':
            return json.dumps(DOTS, ensure_ascii=False).encode() if self._spans(token) else token

        text = json.loads(token.decode(errors="surrogatepass")).encode(errors="surrogatepass")
        # A call's arguments are JSON within JSON.
        is_document = text[:1] in (b"{", b"[")
        clear = self.data(self.document(text) if is_document else text)
        if clear == text:
            return token

        clear_text = clear.decode(errors="surrogatepass")
        return json.dumps(clear_text, ensure_ascii=False).encode(errors="replace")

    def _spans(self, data: bytes) -> Spans:
        """Return the places of secrets, in their order.

        Overlapping ones are merged, so that no end of a secret remains.
        """
        if len(data) < MIN_REDACTED:
            return []

        spans: Spans = []
        find = data.find if len(data) <= _WINDOW else partial(_find_first, data)
        for search in self._searches:
            if not _finds_one(find, search.find_candidates(data)):
                continue

            for form in search.forms:
                start = find(form)
                if start >= 0:
                    spans += _find_places(data, form, start)
        if not spans:
            return spans

        merged: Spans = []
        for start, end in sorted(spans):
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged


class _FormSearch:
    """The encoded forms of some secrets, and a fast test whether one of them can be in a text.

    A *core* is a form that contains no other one, so that a text without a core holds no form. (A
    token contains its secret half, and its base64 that of the half.)

    A block is eight bytes of a text at a multiple of eight. Any 15 bytes of a text contain a whole
    block, and any 23 bytes contain a whole one of every second block. So a text holds a core only
    if a block that is read is in the core's last bytes. (The first bytes of a secret are often a
    plain name.)
    """

    def __init__(self, forms: Iterable[bytes]) -> None:
        self.forms = tuple(sorted(forms))

    def find_candidates(self, data: bytes) -> tuple[bytes, ...]:
        """Return the cores that may be in the data. Without them, no form is in it."""
        cores, step = self._cores, self._step
        weight = len(cores) * step
        if weight < _MANY_FORMS or len(data) > weight * _BYTES_PER_FORM:
            return cores  # a search for each of them takes less time

        ends, short = self._ends
        blocks = memoryview(data)[: len(data) & -_BLOCK].cast("Q")
        is_absent = ends.isdisjoint(blocks[::step])
        return short if is_absent else cores

    @cached_property
    def _cores(self) -> tuple[bytes, ...]:
        """The cores among the forms. Of many forms, whose blocks are read, each counts as one."""
        if len(self.forms) > _MANY_CORES:
            return self.forms

        cores: list[bytes] = []
        for form in sorted(self.forms, key=len):
            if not any(core in form for core in cores):
                cores.append(form)
        return tuple(cores)

    @cached_property
    def _step(self) -> int:
        """One in so many blocks is read: each core contains one of these, unless it is short."""
        shortest = min((len(core) for core in self._cores if len(core) >= _TAIL), default=_TAIL)
        return min((shortest + 1) // _BLOCK - 1, _MAX_STEP)

    @cached_property
    def _ends(self) -> tuple[frozenset[int], tuple[bytes, ...]]:
        """The blocks that the ends of cores can contain, as numbers; and the cores that are short.

        A short core may contain no whole block.
        """
        places = self._step * _BLOCK  # One of them is the place of a block that is read
        tail = places + _BLOCK - 1
        blocks: set[int] = set()
        for core in self._cores:
            if len(core) < _TAIL:
                continue
            end = core[-tail:]
            for at in range(places):
                blocks.add(int.from_bytes(end[at : at + _BLOCK], byteorder))

        short = tuple(core for core in self._cores if len(core) < _TAIL)
        return frozenset(blocks), short

    @cached_property
    def by_start(self) -> Mapping[str, tuple[str, ...]]:
        """The forms by their first ``START_LENGTH`` characters."""
        forms: dict[str, tuple[str, ...]] = {}
        for form in self.forms:
            text = form.decode(errors="surrogatepass")
            start = text[:START_LENGTH]
            forms[start] = (*forms.get(start, ()), text)
        return forms


type Spans = list[tuple[int, int]]

MIN_REDACTED = 6
"""Shorter values are not replaced: they would blank out ordinary words and protect nothing."""
START_LENGTH = 4
"""Characters by which the beginning of a form is told from other text; each form has more."""
_BLOCK = 8
_TAIL = 2 * _BLOCK - 1
_MAX_STEP = 4  # The blocks of the longest secrets take no more memory
_WINDOW = 4 << 20  # Bytes that are searched in one step
_DECODED = 64 << 10  # Bytes whose escapes are decoded in one step
_MANY_FORMS = 16
"""For fewer forms, times the step, the blocks of their ends are not worth their cost."""
_BYTES_PER_FORM = 64
"""Reading the blocks of so many bytes takes about as long as searching for one form."""
_MANY_CORES = 256
"""Forms of about 18 secrets. Each of more forms is not compared with all others."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[^\s,:{}\[\]"]++', re.DOTALL)
"""A string or a scalar of a JSON document. Possessive: hostile text must not make it backtrack."""
_WHOLE_STRINGS = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
"""Everything before a place, except for a string that has begun and not ended there."""
_STRING_TEXT = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_LOOKS_LIKE_JSON = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*+[\[{\"]")
_SEPARATORS = tuple(bytes([mark]) for mark in b' \t\r\n,:{}[]"')


_BACKSLASH = ord("\\")
"""Its number: of bytes, Python first makes an exception, as they are none."""
_ESCAPE = rb"\u00"
_HIDING = re.compile(rb"\\u00[2-7]")
"""An ASCII character that is escaped without need. A secret with one is found only by decoding."""
_NESTED = rb"\\\\"
_HIDING_NESTED = re.compile(rb"\\u00[2-7]|\\{4}")
"""The same, or a backslash that was escaped twice: the document has JSON within JSON within JSON.

There a secret that JSON escapes may be spelled in more ways than it has forms.
"""
_ESCAPE_LENGTH = 6
_ESCAPE_PAIR = re.compile(rb"\\(?:u00([2-7][0-9a-fA-F])|(.))", re.DOTALL)
_WHOLE_ESCAPES = re.compile(rb"(?:[^\\]++|\\(?:u[^\\]{4}|[^u]))*+", re.DOTALL)
_MAX_LEVELS = 6  # The depth of JSON within JSON
_NOT_PLAIN = re.compile(rb"[^ -~]")
"""A byte of a secret whose escape ``_ESCAPE_PAIR`` does not decode."""


def _finds_one(find: Callable[[bytes], int], forms: Iterable[bytes]) -> bool:
    """Return whether ``find`` finds one of the forms."""
    for form in forms:  # noqa: SIM110 - a generator would take longer than a search
        if find(form) >= 0:
            return True
    return False


def _long_enough(values: Iterable[str]) -> frozenset[str]:
    return frozenset([value for value in values if len(value) >= MIN_REDACTED])


def _is_json(document: bytes) -> bool:
    """Return whether bytes are JSON, as Python reads it."""
    try:
        # msgspec is stricter than Python and much faster, since it builds nothing. What it takes
        # must also be UTF-8, which it does not check.
        document.decode()
        _check_json(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    else:
        return True

    try:
        json.loads(document.decode("utf-8-sig", errors="surrogatepass"))
    except (ValueError, RecursionError):
        return False
    return True


def _value(secret: Secret | str) -> str:
    return secret.reveal() if isinstance(secret, Secret) else secret


def _token_at(document: bytes, read: int, place: int) -> re.Match[bytes] | None:
    """Return the token of valid JSON that contains a place, or else the next one.

    ``read``: the end of an earlier token.
    """
    before = _WHOLE_STRINGS.match(document, read, place)
    assert before is not None  # it also matches the empty string
    is_in_string = before.end() < place
    if is_in_string:
        return _TOKEN.match(document, before.end())

    last_separator = _find_last_separator(document, read, place)
    return _TOKEN.search(document, max(read, last_separator + 1))


def _find_last_separator(document: bytes, start: int, end: int) -> int:
    """Return the place of the last byte between two places that is in no scalar; -1 for none."""
    return max(document.rfind(mark, start, end) for mark in _SEPARATORS)


def _step_over_strings(document: bytes, read: int, place: int, max_text: int) -> int:
    """Return a place between ``read`` and ``place`` from which the token at ``place`` can be read.

    It is outside every string that ends before ``place``; if a string contains ``place``, it is
    that string's beginning. Raise ``LongTextError`` if that string is longer than ``max_text``.
    """
    while read < place:
        window = min(read + _DECODED, place)
        before = _WHOLE_STRINGS.match(document, read, window)
        assert before is not None  # it also matches the empty string
        string_start = before.end()
        window_cuts_string = string_start < window

        if not window_cuts_string and window == place:
            # ``place`` is in no string. It may be in a number, which begins behind ``read``.
            return read

        if not window_cuts_string:
            # Go on after the last separator of the window, since its end may be in a number.
            last_separator = _find_last_separator(document, read, window)
            read = window if last_separator < 0 else last_separator + 1
            continue

        end = _end_of_string(document, string_start + 1)
        if end <= place:
            read = end
            continue

        if end - string_start > max_text:
            raise LongTextError
        return string_start
    return read


def _end_of_string(document: bytes, start: int) -> int:
    """Return the place after the closing quote of the string whose text begins at ``start``.

    Raise ``ValueError`` if there is none.
    """
    while start < len(document):
        text = _STRING_TEXT.match(document, start, start + _DECODED)
        assert text is not None  # it also matches the empty string
        if document[text.end() : text.end() + 1] == b'"':
            return text.end() + 1
        if text.end() == start:
            break
        start = text.end()
    raise ValueError("a string has no end")


def _find_hiding(document: bytes, hiding: re.Pattern[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the spans of escapes in which a secret may hide."""
    for start, end in _steps(document, _WINDOW):
        for match in hiding.finditer(document, start, end + _ESCAPE_LENGTH):
            if match.start() < end:  # else it belongs to the next step
                yield match.span()


def _replace_spans(lines: Sequence[bytes], spans: Spans, between: int = 0) -> Iterator[bytes]:
    """Yield the lines with dots at the spans of the joined text.

    ``between``: bytes between two lines in that text.
    """
    begin = 0
    pending = deque(spans)
    for line in lines:
        end = begin + len(line)
        parts: list[bytes] = []
        copied = 0
        while pending and pending[0][0] < end:
            start, stop = pending[0]
            parts += [line[copied : max(start - begin, 0)], DOTS.encode()]
            copied = stop - begin
            if stop > end:  # the span continues in the next line
                break
            pending.popleft()

        yield b"".join([*parts, line[copied:]]) if parts else line
        begin = end + between


def _find_first(data: bytes, form: bytes, at: int = 0) -> int:
    """Return the first place of a form from ``at`` on, or -1. Search in steps."""
    for start in range(at, len(data), _WINDOW):
        found = data.find(form, start, start + _WINDOW + len(form) - 1)
        if found >= 0:
            return found
    return -1


def _steps(document: bytes, size: int) -> Iterator[tuple[int, int]]:
    """Return the beginning and the end of each step through a document."""
    return ((start, start + size) for start in range(0, len(document), size))


def _decoded_levels(pieces: Iterable[bytes], overlap: int) -> Iterator[bytes]:
    """Yield each piece of a document, undecoded and after each decoding.

    Each text begins with the last ``overlap`` bytes of the text before it on its level, so that a
    form in two pieces is found.
    """
    # For each level: the beginning of an escape that the last piece cut, and the last bytes of the
    # text before.
    cut_escapes = [b""] * _MAX_LEVELS
    ends = [b""] * (_MAX_LEVELS + 1)

    for piece in pieces:
        text = piece
        for level in range(_MAX_LEVELS):
            with_end = ends[level] + text
            yield with_end
            ends[level] = with_end[-overlap:]

            # The match ends at the first escape that is not whole. One that the piece cuts, in its
            # last bytes, waits for the next piece; a malformed one is passed over.
            escaped = cut_escapes[level] + text
            whole = _WHOLE_ESCAPES.match(escaped)
            assert whole is not None  # it also matches the empty string
            end = max(whole.end(), len(escaped) - _ESCAPE_LENGTH)
            cut_escapes[level] = escaped[end:]
            text = _ESCAPE_PAIR.sub(_unescape, escaped[:end])

        with_end = ends[-1] + text
        yield with_end
        ends[-1] = with_end[-overlap:]


def _unescape(escape: re.Match[bytes]) -> bytes:
    number, mark = escape.groups()
    return mark if number is None else bytes([int(number, 16)])


def _find_places(data: bytes, form: bytes, start: int) -> Iterator[tuple[int, int]]:
    """Yield the places of a form. ``start`` is its first one; places that overlap are one."""
    length = len(form)
    while start >= 0:
        last = start
        # "aaaaaa" may begin at every byte, so the last of the overlapping ones is searched from the
        # end.
        while (further := data.rfind(form, last + 1, last + 2 * length - 1)) >= 0:
            last = further
        yield start, last + length
        start = _find_first(data, form, last + length)


@lru_cache(maxsize=1024)
def _cached_search(values: frozenset[str]) -> _FormSearch:
    return _FormSearch({form for value in values for form in _cached_forms_of(value)})


@lru_cache(maxsize=4096)
def _cached_forms_of(value: str) -> frozenset[bytes]:
    return encoded_forms(value)
