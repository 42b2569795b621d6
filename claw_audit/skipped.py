"""What could not be read: counted, and the first of it named."""

from __future__ import annotations

from claw_audit.report import Unread

_NAMED = 10


class Unreadables:
    """Lines and files. ``foreign`` counts the lines of logs that are nobody's events."""

    def __init__(self) -> None:
        self.foreign = 0
        self._lines = 0
        self._first: list[str] = []
        self._files: list[str] = []

    def line(self, name: str, number: int, offset: int, why: str) -> None:
        self._lines += 1
        if len(self._first) < _NAMED:
            self._first.append(f"{name}:{number} (byte {offset}) {why}")

    def file(self, why: str) -> None:
        if why not in self._files and len(self._files) < _NAMED:
            self._files.append(why)

    def told(self) -> Unread:
        return Unread(self._lines, tuple(self._first), tuple(self._files), self.foreign)
