"""The outline of a large JSON document: the document with a short stand-in for each long string.

One call of C on 64 MB holds the interpreter, and with it every other request. Nearly all of a large
body is text and images, which no rule reads. So the long strings are checked and skipped here, in
pieces, and decoders, searches and walks get the outline:

    document   {"model": "m", "messages": [{"role": "user", "content": "40 MB"}]}
    outline    {"model": "m", "messages": [{"role": "user", "content": "text-<nonce>-00000000"}]}

Short strings stay, so every id and every model is in the outline. The name of a member stays
however long it is, because names tell members apart, and are read in several spellings.

``place_in_document`` translates a place in the outline to one in the document, and ``restore``
gives a part of a decoded outline its own strings back.

A document of up to ``MAX_WHOLE_BYTES`` is its own outline, and costs nothing extra. A larger one
has limits that no conversation reaches: ``MAX_OUTLINE_BYTES``, ``MAX_VALUES``, ``MAX_NESTED``.
"""

import hashlib
import re
import secrets
from bisect import bisect_right
from typing import Any, Final

import msgspec

from claw_mediate.core.json_pieces import PIECE_BYTES, join_pieces

MAX_WHOLE_BYTES: Final = PIECE_BYTES
MAX_OUTLINE_BYTES: Final = 16 << 20
MAX_VALUES: Final = 500_000  # Commas, brackets and braces outside strings
MAX_NESTED: Final = 300_000  # Objects, arrays and members
MAX_RESTORED_BYTES: Final = 4 << 20
"""Bytes of one part of a view that is restored whole.

In a longer part, each long string is restored as its beginning and its digest.
"""

_WINDOW: Final = 256 << 10  # Bytes of one step: escapes take some ms
# Bytes of a string that stays: enough for every name that is looked for, even in escapes
_MAX_SHORT: Final = 1024
_MAX_BEGINNING: Final = 1024  # Characters of a long string that are restored before its digest
_LONGEST_UNIT: Final = 12  # Bytes of an escaped surrogate pair
_QUOTE: Final = ord('"')

_ESCAPE: Final = (
    rb"\\(?:[\"\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}"
    rb"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)
_TEXT = re.compile(rb'(?:[^"\\\x00-\x1f]++|%b)*+' % _ESCAPE)
"""The text of a string, as strict as msgspec is: nobody else checks one that is taken out."""
_BEGINNING = re.compile(
    rb'(?:[^"\\\x00-\x1f\x80-\xff]|[\xc0-\xff][\x80-\xbf]*+|%b){0,%d}+' % (_ESCAPE, _MAX_BEGINNING)
)
_SHORT: Final = rb'"(?:[^"\\]{1,64}+(?:\\.)?+|\\.){0,%d}+"' % (_MAX_SHORT // 64)
_BETWEEN = re.compile(rb'(?:[^"]++|%b)*+' % _SHORT, re.DOTALL)
"""Everything up to the next string that is long, or that this expression can't skip."""
_ANY_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)

_COLON = re.compile(rb"[ \t\r\n]*+:")
"""The colon after the name of a member."""

_DIGEST = re.compile(r" \[[0-9]+ bytes, sha256 [0-9a-f]{64}\]\Z")
_STAND_IN_LENGTH: Final = len("text-0123456789abcdef-01234567")


class JsonSpliceError(ValueError):
    """A document that we do not read or edit. The message is one sentence, for the runner."""


class TooManyValuesError(JsonSpliceError):
    """A large request that is made of too many parts to be read."""


class Outline:
    """A document, and its outline in ``text``. ``is_whole``: they are the same."""

    def __init__(self, document: bytes, *, has_limits: bool = False) -> None:
        """Take the long strings out of a document, which is UTF-8.

        ``has_limits``: nobody has read the document before, so its outline must keep to the limits.

        Raise ``JsonSpliceError``.
        """
        self.document = self.text = document
        self.is_whole = len(document) <= MAX_WHOLE_BYTES
        self._spans: list[tuple[int, int]] = []  # Of each string that is taken out, in the document
        self._starts: list[int] = []  # Of its stand-in, in the outline
        self._mark = ""
        if self.is_whole:
            return

        # No runner knows the mark beforehand, so none can write a text that looks like a stand-in.
        self._mark = f"text-{secrets.token_hex(8)}-"
        self._stand_in = re.compile(rb"%b([0-9a-f]{8})" % self._mark.encode())
        self.text = self._shorten(MAX_OUTLINE_BYTES if has_limits else len(document))
        if has_limits:
            _check_values(self.text)

    def _shorten(self, max_bytes: int) -> bytes:
        """Return the outline. Raise ``TooManyValuesError`` if it is longer than ``max_bytes``."""
        document = self.document
        size = len(document)
        view = memoryview(document)
        mark = self._mark.encode()

        parts: list[bytes | memoryview] = []
        position = 0  # In the document: all before is read
        copied = 0  # In the document: all before is in ``parts``
        length = 0  # Of ``parts``

        # The outline so far is ``parts`` and what is read but not copied yet, so its length is
        # ``length + position - copied``.
        while position < size:
            window = min(position + _WINDOW, size)
            between = _BETWEEN.match(document, position, window)
            assert between is not None  # it also matches the empty string
            position = between.end()
            if position == window:
                continue

            start = position + 1
            end = _end_of_string(document, start)
            position = end + 1
            if end - start > _MAX_SHORT and _COLON.match(document, position) is None:
                length += start - copied
                parts += [view[copied:start], b"%b%08x" % (mark, len(self._spans))]
                self._starts.append(length)
                self._spans.append((start, end))
                length += _STAND_IN_LENGTH
                copied = end  # The closing quote is copied with what follows.

            if length + position - copied > max_bytes:
                break

        if length + position - copied > max_bytes:
            raise TooManyValuesError(
                f"beside its long texts the document has more than {max_bytes >> 20} MiB"
            )
        return join_pieces([*parts, view[copied:]])

    def place_in_document(self, place: int) -> int:
        """Return the place in the document of a place in the outline.

        The place must not be within a stand-in.
        """
        before = bisect_right(self._starts, place) - 1
        if before < 0:
            return place
        return self._spans[before][1] + place - self._starts[before] - _STAND_IN_LENGTH

    def place_in_outline(self, place: int) -> int:
        """Return the place in the outline of a place in the document.

        The place must not be within a string that was taken out.
        """
        before = bisect_right(self._spans, (place, len(self.document))) - 1
        if before < 0:
            return place
        return self._starts[before] + _STAND_IN_LENGTH + place - self._spans[before][1]

    def restore[T](self, part: T) -> T:
        """Return a part of the decoded outline with the document's own strings.

        ``MAX_RESTORED_BYTES`` limits how much of them. A structure is changed in place. JSON that
        is not decoded yet must be ``msgspec.Raw``.
        """
        return part if self.is_whole else self._restore(part)

    def _restore(self, part: Any) -> Any:
        if isinstance(part, msgspec.Raw):
            return self._restore_json(part)
        if isinstance(part, str):
            return self._restore_text(part)
        if isinstance(part, list):
            for index, each in enumerate(part):
                part[index] = self._restore(each)
        elif isinstance(part, dict):
            for name, each in part.items():
                part[name] = self._restore(each)
        elif isinstance(part, msgspec.Struct):
            for name in part.__struct_fields__:
                setattr(part, name, self._restore(getattr(part, name)))
        return part

    def _restore_json(self, part: msgspec.Raw) -> msgspec.Raw:
        json = bytes(part)
        if self._mark.encode() not in json:
            return part

        size = len(json)
        for stand_in in self._stand_in.finditer(json):
            start, end = self._spans[int(stand_in[1], 16)]
            size += end - start

        write = self._text_at if size <= MAX_RESTORED_BYTES else self._digest_at
        return msgspec.Raw(self._stand_in.sub(lambda found: write(int(found[1], 16)), json))

    def _restore_text(self, text: str) -> str:
        if not text.startswith(self._mark) or len(text) != _STAND_IN_LENGTH:
            return text

        index = int(text[len(self._mark) :], 16)
        start, end = self._spans[index]
        json = self._text_at(index) if end - start <= MAX_RESTORED_BYTES else self._digest_at(index)
        return str(msgspec.json.decode(b'"%b"' % json))

    def _text_at(self, index: int) -> bytes:
        start, end = self._spans[index]
        return self.document[start:end]

    def _digest_at(self, index: int) -> bytes:
        """Return the beginning and the digest of a string that is too long.

        Equal strings have equal ones.
        """
        start, end = self._spans[index]
        beginning = _BEGINNING.match(self.document, start, min(end, start + MAX_RESTORED_BYTES))
        assert beginning is not None  # it also matches the empty string
        digest = hashlib.sha256(memoryview(self.document)[start:end]).hexdigest()
        return b"%b [%d bytes, sha256 %b]" % (beginning[0], end - start, digest.encode())


def is_digest(text: str) -> bool:
    """Return True if a restored text may be the beginning and the digest of a longer one."""
    return _DIGEST.search(text, max(0, len(text) - 120)) is not None


def _end_of_string(document: bytes, start: int) -> int:
    """Return where the string ends whose text begins at ``start``. Raise ``JsonSpliceError``."""
    while True:
        window = min(start + _WINDOW, len(document))
        text = _TEXT.match(document, start, window)
        assert text is not None  # it also matches the empty string
        end = text.end()
        if end < len(document) and document[end] == _QUOTE:
            return end

        # The window may have ended within an escape. Then the next one begins before that.
        is_cut_by_window = window < len(document) and end > start and end >= window - _LONGEST_UNIT
        if not is_cut_by_window:
            raise JsonSpliceError(
                "the document is no JSON: a string in it has an escape or a character "
                "that JSON has not"
            )
        start = end


def _check_values(text: bytes) -> None:
    """Raise ``TooManyValuesError`` for an outline of too many parts."""
    # Quick, and enough for most: the marks within strings are counted, too.
    if _is_within_limits(_count(text, b"{[:,")):
        return

    counts = [0, 0, 0, 0]
    position = 0
    while position < len(text):
        end = min(position + _WINDOW, len(text))
        between = _BETWEEN.match(text, position, end)
        assert between is not None
        stop = between.end()
        if stop < end:  # a string with many escapes
            stop = _end_of_string(text, stop + 1) + 1

        without_strings = _ANY_STRING.sub(b"", text[position:stop])
        found = _count(without_strings, b"{[:,")
        counts = [before + new for before, new in zip(counts, found, strict=True)]
        position = stop

    if not _is_within_limits(counts):
        raise TooManyValuesError(
            f"a document of more than {MAX_WHOLE_BYTES >> 20} MiB may have {MAX_VALUES} values "
            f"and {MAX_NESTED} members, objects and arrays, and this one has more"
        )


def _count(text: bytes, marks: bytes) -> list[int]:
    """Return how often a text has each of these bytes."""
    windows = range(0, len(text), PIECE_BYTES)
    return [sum(text.count(mark, at, at + PIECE_BYTES) for at in windows) for mark in marks]


def _is_within_limits(counts: list[int]) -> bool:
    objects, arrays, members, commas = counts
    return objects + arrays + members <= MAX_NESTED and objects + arrays + commas <= MAX_VALUES


def outline_request(body: bytes) -> Outline:
    """Return the outline of a request. Raise ``JsonSpliceError``, also if it exceeds the limits."""
    return Outline(body, has_limits=True)


def decode_request_outline[T](decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return the decoded view of a request, with its own strings (``Outline.restore``).

    Raise ``JsonSpliceError``, and what the decoder raises.
    """
    if len(body) <= MAX_WHOLE_BYTES:
        return decoder.decode(body)

    outline = outline_request(body)
    return outline.restore(decoder.decode(outline.text))
