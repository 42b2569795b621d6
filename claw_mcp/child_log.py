"""The lines of a stdio server in the log: at most a number in each second, and a
bad one by its beginning.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from claw_contract.limits import LineLimit

_MAX_SHOWN = 200  # Bytes of a bad line that are logged
_MAX_STDERR_LINE = 8 << 10
_MAX_REASON = 240
_SEARCHED = 8 << 10  # Bytes behind a cut in which a secret that it divides is recognized
_MAX_LINES = 200  # Lines of the server that are logged in one second


class ChildLog:
    """Writes what a server says beside the protocol."""

    def __init__(self, write: Callable[..., None], cut: Callable[[str, int], str]) -> None:
        """Log with ``write(kind, **members)``: ``mcp_stderr``, ``mcp_bad_output``
        and ``mcp_lines_dropped``.

        ``cut(text, bytes)`` shortens a text, and leaves no part of a secret at its end.
        """
        self._write, self._cut = write, cut
        self._limit, self._dropped = LineLimit(_MAX_LINES, seconds=1), 0

    def log_line(self, line: bytes) -> None:
        if self._has_room():
            self._write("mcp_stderr", line=self._read(line, _MAX_STDERR_LINE).rstrip("\r"))

    def bad_output(self, problem: str, line: bytes) -> None:
        if self._has_room():
            self._write(
                "mcp_bad_output", reason=problem, line=self._read(line, _MAX_SHOWN).rstrip()
            )

    def short_reason(self, members: dict[str, Any]) -> dict[str, Any]:
        """Return the members of a line with the reason, which may be in a server's words, cut."""
        reason = members.get("reason")
        return (
            {**members, "reason": self._cut(reason, _MAX_REASON)}
            if isinstance(reason, str)
            else members
        )

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
        lines, self._dropped = self._dropped, 0
        self._write("mcp_lines_dropped", lines=lines)
