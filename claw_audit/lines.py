"""Lines of a file of any size, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

type Read = Callable[[int], bytes]
"""At most so many bytes; none at the end."""

BLOCK = 1 << 20
LINE_LIMIT = 16 << 20
"""A longer line is passed over. What the proxy keeps of a body is 256 KiB."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line. ``data`` ends with its line break where it has one, and is None where the line is too long to be held."""

    number: int
    offset: int
    data: bytes | None


def pieces(read: Read) -> Iterator[bytes]:
    """All bytes. A piece that ends with a line break ends its line, and no piece holds the beginning of the next one."""
    while block := read(BLOCK):
        start = 0
        while end := block.find(b"\n", start) + 1:
            yield block[start:end]
            start = end
        if start < len(block):
            yield block[start:]


def lines(read: Read, limit: int = LINE_LIMIT) -> Iterator[Line]:
    """The lines, the last one also without an end."""
    number, offset, size = 1, 0, 0
    held: list[bytes] = []
    for piece in pieces(read):
        size += len(piece)
        if size <= limit:
            held.append(piece)
        else:
            held.clear()
        if piece.endswith(b"\n"):
            yield Line(number, offset, b"".join(held) if size <= limit else None)
            number, offset, size = number + 1, offset + size, 0
            held.clear()
    if size:
        yield Line(number, offset, b"".join(held) if size <= limit else None)
