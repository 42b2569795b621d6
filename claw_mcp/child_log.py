"""The lines of a stdio server in the log: at most 200 a second, and of a bad one its beginning."""

import asyncio
from collections.abc import Callable
from typing import Any

from claw_contract.limits import LineLimit

_MAX_SHOWN = 200  # Bytes of a bad line that are logged
_MAX_STDERR_LINE = 8 << 10
_MAX_REASON = 240
_SEARCHED = 8 << 10  # Bytes after a cut that are read, to recognize a secret that it divides
_MAX_LINES = 200  # Lines of the server that are logged in one second


class ChildLog:
    """Writes what a server says outside of the protocol."""

    def __init__(self, write: Callable[..., None], cut: Callable[[str, int], str]) -> None:
        """Log with ``write(kind, **members)``.

        The kinds are ``mcp_stderr``, ``mcp_bad_output`` and ``mcp_lines_dropped``.
        ``cut(text, bytes)`` shortens a text, and leaves no part of a secret at its end.
        """
        self._write = write
        self._cut = cut
        self._limit = LineLimit(_MAX_LINES, seconds=1)
        self._dropped = 0

    def log_line(self, line: bytes) -> None:
        if self._has_room():
            self._write("mcp_stderr", line=self._read(line, _MAX_STDERR_LINE).rstrip("\r"))

    def bad_output(self, problem: str, line: bytes) -> None:
        if self._has_room():
            shown = self._read(line, _MAX_SHOWN).rstrip()
            self._write("mcp_bad_output", reason=problem, line=shown)

    def short_reason(self, members: dict[str, Any]) -> dict[str, Any]:
        """Return the members of a line with its ``reason`` cut: it may be in a server's words."""
        reason = members.get("reason")
        if not isinstance(reason, str):
            return members
        return {**members, "reason": self._cut(reason, _MAX_REASON)}

    def _read(self, line: bytes, limit: int) -> str:
        return self._cut(line[: limit + _SEARCHED].decode(errors="replace"), limit)

    def _has_room(self) -> bool:
        """Count a line, and return whether it is one of the first ones in a second."""
        if self._limit.take("") is not None:
            return True

        if not self._dropped:
            asyncio.get_running_loop().call_later(1, self._report_dropped)
        self._dropped += 1
        return False

    def _report_dropped(self) -> None:
        lines = self._dropped
        self._dropped = 0
        self._write("mcp_lines_dropped", lines=lines)
