"""The lines of a stdio server in the log: at most a number in each second, and a bad one by its beginning."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

_MAX_SHOWN = 200  # Bytes of a bad line that are logged
_MAX_LINES = 200  # Lines of the server that are logged in one second


class ChildLog:
    """Writes what a server says beside the protocol."""

    def __init__(self, write: Callable[..., None]) -> None:
        """Log with ``write(kind, **members)``: ``mcp_stderr``, ``mcp_bad_output`` and ``mcp_lines_dropped``."""
        self._write = write
        self._second, self._lines, self._dropped = 0, 0, 0

    def log_line(self, line: bytes) -> None:
        self._limited("mcp_stderr", line=line.decode(errors="replace").rstrip("\r"))

    def bad_output(self, problem: str, line: bytes) -> None:
        self._limited("mcp_bad_output", reason=problem, line=line[:_MAX_SHOWN].decode(errors="replace").rstrip())

    def _limited(self, kind: str, **members: Any) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= _MAX_LINES:
            self._write(kind, **members)
            return
        if not self._dropped:
            asyncio.get_running_loop().call_later(1, self._report_dropped)
        self._dropped += 1

    def _report_dropped(self) -> None:
        lines, self._dropped = self._dropped, 0
        self._write("mcp_lines_dropped", lines=lines)
