"""The text of one file, and places in it."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from functools import cached_property

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Result, Span

_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""The line breaks of PyYAML; the JSON reader counts the same way."""


@dataclass(frozen=True)
class Source:
    """``file`` is the name that diagnostics print: the path as the user gave it."""

    file: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return _LINE_BREAK.split(self.text)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_BREAK.finditer(self.text))]

    def span(self, line: int, column: int, end: int | None = None) -> Span:
        """Return a place from 0-based line and column; without ``end``, to the end of what the line says."""
        text = self.lines[line] if line < len(self.lines) else ""
        last = len(text.rstrip()) if end is None else end
        return Span(self.file, line + 1, column + 1, max(last, column) + 1, text)

    def span_of(self, start: int, end: int) -> Span:
        """Return a place from offsets into the text."""
        line = bisect.bisect_right(self._starts, start) - 1
        begins = self._starts[line]
        same_line = line + 1 == len(self._starts) or max(start + 1, end) <= self._starts[line + 1]
        return self.span(line, start - begins, end - begins if same_line else None)


def decode(file: str, data: bytes) -> Result[Source]:
    """Decode the bytes of a file; a byte order mark is dropped."""
    try:
        return Result(Source(file, data.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        sound = data[: error.start].decode("utf-8", errors="ignore")
        at = Source(file, sound + "?").span_of(len(sound), len(sound) + 1)
        return Result(None, (codes.NOT_UTF8.at(at, "this byte is not UTF-8"),))
