"""A page of a text file: whole lines, in bounded memory (docs/spec/tools-host.md "Files").

Rules. A page is what fits a result, so that the next one begins where it ended; of a line that fits
no page there is only its beginning. A file with a zero byte in its first 8 KiB is binary. What is
not UTF-8 in a text is shown as U+FFFD, and said.
"""

import os
from typing import Any, BinaryIO, Final

import msgspec

from claw_tools.errors import ErrorCode, ToolError
from claw_tools.files.folder import Call

_HEAD: Final = 8_192
_CHUNK: Final = 1 << 16
_CONTINUATION: Final = 0x80  # 10xxxxxx: a byte of UTF-8 that begins no character
_CONTINUATION_MASK: Final = 0xC0


class Lines(msgspec.Struct, frozen=True):
    """Which lines of a file are asked for: ``limit`` after the first ``offset``, and as many as
    ``room`` bytes of JSON hold.
    """

    offset: int
    limit: int
    room: int


def read_page(file: BinaryIO, asked: Lines, call: Call) -> dict[str, Any]:
    """Return lines of a file as ``read_file``'s result.

    Raise ``ToolError`` for a binary file, and an offset past its end.

    ``next_offset`` says where the rest begins, ``truncated`` that it was room that ended the page.
    """
    size = os.fstat(file.fileno()).st_size
    if b"\0" in os.pread(file.fileno(), _HEAD, 0):
        raise ToolError(
            ErrorCode.EXECUTION_FAILED, f"it is a binary file of {size} bytes, and no text."
        )
    _skip_lines(file, asked.offset, call)
    lines, is_cut = _take_lines(file, asked, call)
    content = b"".join(lines)
    page: dict[str, Any] = {"content": content.decode(errors="replace")}
    if is_cut or (len(lines) == asked.limit and file.read(1)):
        page["next_offset"] = asked.offset + len(lines)
    if is_cut:
        page |= {"truncated": True, "original_bytes": size}
    return page if _is_utf8(content) else page | {"is_utf8": False}


def _skip_lines(file: BinaryIO, count: int, call: Call) -> None:
    skipped, line = 0, b"\n"
    while skipped < count:
        call.check()
        before, line = line, file.readline(_CHUNK)
        if line.endswith(b"\n"):
            skipped += 1
        elif not line:
            lines = skipped + (not before.endswith(b"\n"))
            if lines < count:
                raise ToolError(
                    ErrorCode.INVALID_ARGS,
                    f"the offset {count} is past the end: the file has {lines} lines.",
                )
            return


def _take_lines(file: BinaryIO, asked: Lines, call: Call) -> tuple[list[bytes], bool]:
    """Return the lines, and True if there was no room for the next one."""
    lines: list[bytes] = []
    room = asked.room
    while len(lines) < asked.limit and (line := file.readline(room + 1)):
        call.check()
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
