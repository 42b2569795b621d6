"""Large JSON documents, searched and copied piece by piece.

One call of C on 64 MB would hold the interpreter, and so the event loop, too long.

A piece never ends within a member's head: its name, the colon, and the first byte of its value. So
a search for members finds the same in the pieces as in the document. A document of one piece costs
nothing extra.
"""

import re
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Final

PIECE_BYTES: Final = 1 << 20
_MAX_JOINED: Final = 8 << 20  # Bytes that one call may copy
# Bytes of a name whose head is kept whole. No longer one is ever searched for.
_MAX_NAME: Final = 128
_WITHIN_HEAD = re.compile(rb'[ \t\r\n:"]*+')
_HEAD = re.compile(rb'"[^"\\]{0,%d}+"[ \t\r\n]*+:[ \t\r\n]*+[^ \t\r\n]?' % _MAX_NAME)


def pieces_of(document: bytes) -> Iterator[tuple[int, int]]:
    """Yield the spans of a document's pieces, in order.

    >>> [*pieces_of(b'{"a": 1}')]
    [(0, 8)]
    """
    size = len(document)
    start = 0
    while size - start > PIECE_BYTES:
        end = _end_of_piece(document, start + PIECE_BYTES)
        yield start, end
        start = end
    if start < size or not size:
        yield start, size


def _end_of_piece(document: bytes, near: int) -> int:
    """Return a place at or after ``near`` that is not within a member's head."""
    within_head = _WITHIN_HEAD.match(document, near)
    assert within_head is not None  # it also matches the empty string
    end = min(within_head.end() + 1, len(document))

    # The byte before may still belong to a name, which begins at the last quote before it.
    quote = document.rfind(b'"', max(0, end - _MAX_NAME - 2), end)
    if quote < 0:
        return end

    head = _HEAD.match(document, quote)
    return end if head is None else max(end, head.end())


def contains(document: bytes, needle: bytes) -> bool:
    """Return True if a document has a short text anywhere."""
    # Forty times as fast as the search for the whole text, and often enough: few bodies have a "\".
    if needle[0] not in document:
        return False
    if len(document) <= PIECE_BYTES:
        return needle in document

    length = PIECE_BYTES + len(needle) - 1
    starts = range(0, len(document), PIECE_BYTES)
    return any(document.find(needle, start, start + length) >= 0 for start in starts)


def contains_match(document: bytes, pattern: re.Pattern[bytes], size: int) -> bool:
    """Return True if an expression matches anywhere in a document.

    All its matches must have ``size`` bytes.
    """
    length = PIECE_BYTES + size - 1
    starts = range(0, len(document), PIECE_BYTES)
    return any(pattern.search(document, start, start + length) is not None for start in starts)


def join_pieces(parts: Iterable[bytes | memoryview]) -> bytes:
    """Join parts, of which some may be large.

    One call that copies 60 MB would hold up every other thread.
    """
    parts = [*parts]
    if sum(map(len, parts)) <= _MAX_JOINED:
        return b"".join(parts)

    joined = BytesIO()
    for part in parts:
        for start in range(0, len(part), PIECE_BYTES):
            joined.write(part[start : start + PIECE_BYTES])
    return joined.getvalue()


def copy_span(document: bytes, start: int, end: int) -> bytes:
    """Return a part of a document."""
    if end - start <= PIECE_BYTES:
        return document[start:end]

    return join_pieces([memoryview(document)[start:end]])
