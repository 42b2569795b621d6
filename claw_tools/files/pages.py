"""A page of a text file: whole lines, in bounded memory (docs/spec/tools-host.md "Files").

Rules. A page is what fits a result, so that the next one begins where it ended; of a line that fits
no page there is only its beginning. A file with a zero byte in its first 8 KiB is binary. What is
not UTF-8 in a text is shown as U+FFFD, and said.
"""

import os
from typing import Any, BinaryIO, Final

import msgspec

from claw_tools.errors import ErrorCode, ToolError
from claw_tools.files.folder import Cancellation

_HEAD: Final = 8_192
_CHUNK: Final = 1 << 16
_CONTINUATION: Final = 0x80  # 10xxxxxx: a byte of UTF-8 that begins no character
_CONTINUATION_MASK: Final = 0xC0


class Lines(msgspec.Struct, frozen=True):
    """The lines of a file that a call asks for.

    ``limit`` of them after the first ``offset``, and only as many as ``room`` bytes of JSON hold.
    """

    offset: int
    limit: int
    room: int


def read_page(file: BinaryIO, asked: Lines, cancellation: Cancellation) -> dict[str, Any]:
    """Return lines of a file as ``read_file``'s result.

    ``next_offset`` is where the rest begins; ``truncated`` is true if the page ends for want of
    room.

    Raise ``ToolError`` for a binary file, and for an offset past its end.
    """
    size = os.fstat(file.fileno()).st_size
    if b"\0" in os.pread(file.fileno(), _HEAD, 0):
        raise ToolError(
            ErrorCode.EXECUTION_FAILED, f"it is a binary file of {size} bytes, and no text."
        )

    _skip_lines(file, asked.offset, cancellation)
    lines, is_cut = _take_lines(file, asked, cancellation)
    content = b"".join(lines)

    page: dict[str, Any] = {"content": content.decode(errors="replace")}
    has_more = is_cut or (len(lines) == asked.limit and bool(file.read(1)))
    if has_more:
        page["next_offset"] = asked.offset + len(lines)
    if is_cut:
        page |= {"truncated": True, "original_bytes": size}
    if not _is_utf8(content):
        page["is_utf8"] = False
    return page


def _skip_lines(file: BinaryIO, count: int, cancellation: Cancellation) -> None:
    """Read over lines, a long one in parts. Raise ``ToolError`` if the file has fewer."""
    skipped = 0
    is_within_line = False
    while skipped < count:
        cancellation.check()

        part = file.readline(_CHUNK)
        if not part:
            break

        is_within_line = not part.endswith(b"\n")
        if not is_within_line:
            skipped += 1

    if is_within_line:
        skipped += 1  # The last line lacks its line break
    if skipped < count:
        raise ToolError(
            ErrorCode.INVALID_ARGS,
            f"the offset {count} is past the end: the file has {skipped} lines.",
        )


def _take_lines(
    file: BinaryIO, asked: Lines, cancellation: Cancellation
) -> tuple[list[bytes], bool]:
    """Return the lines, and True if there was no room for the next one."""
    lines: list[bytes] = []
    room = asked.room
    while len(lines) < asked.limit and (line := file.readline(room + 1)):
        cancellation.check()
        size = _size_as_json(line)
        if size > room:
            return lines or [_cut(line, room)], True

        room -= size
        lines.append(line)
    return lines, False


def _cut(line: bytes, room: int) -> bytes:
    """Return the beginning of a line that fits, without half a character at its end."""
    while (size := _size_as_json(line)) > room:
        end = len(line) * room // size
        while end and line[end] & _CONTINUATION_MASK == _CONTINUATION:
            end -= 1
        line = line[:end]
    return line


def _size_as_json(text: bytes) -> int:
    return len(msgspec.json.encode(text.decode(errors="replace"))) - len('""')


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
