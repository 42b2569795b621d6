"""Writing to a pipe that may have no reader: nothing of governance waits for one.

A line goes out at once where that can't block, so that it is there before whatever comes next, also when the process is
killed. Where a pipe is full, lines are kept, up to a bound, and a thread writes them as they are read; what comes beyond the
bound is dropped whole and counted. A reader that has gone away, and a disk that is full, cost the lines and nothing else:
they are counted too, and what comes behind a line that was torn begins on a line of its own.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import stat
import threading
import time
from collections import deque
from typing import Final

MOST_KEPT = 4 << 20
"""Bytes of lines that nobody has read yet."""
_AT_ONCE: Final = select.PIPE_BUF
"""What a pipe takes, once it says that it takes anything (POSIX)."""
LAST_SECONDS = 1.0
"""How long the process waits for a reader when it ends."""


class LineWriter:
    """The lines of one file descriptor."""

    _known: Final[dict[tuple[int, int], LineWriter]] = {}

    def __init__(self, descriptor: int, most: int = MOST_KEPT) -> None:
        self._descriptor = descriptor
        self._most = most
        self._at_once = _page(descriptor)
        self._kept: deque[bytes] = deque()
        self._size = 0
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None
        self.dropped = 0
        """Lines, since the process began."""
        self._told = 0
        self._failed = False
        """Whether the last write failed. This and the next are of whoever writes: the thread, while there is one."""
        self._within = False
        """Whether the file ends within a line."""

    @classmethod
    def of(cls, descriptor: int) -> LineWriter:
        """The one for this file: two that write to one pipe would each find room that the other one takes."""
        try:
            found = os.fstat(descriptor)
        except OSError:
            return cls(descriptor)
        if not cls._known:
            atexit.register(flush)
        return cls._known.setdefault((found.st_dev, found.st_ino), cls(descriptor))

    def write(self, line: bytes) -> None:
        """One whole line, now or as soon as there is room."""
        with self._lock:
            if self._thread is None:
                line = self._try(line)
            if not line:
                return
            if self._kept and self._size + len(line) > self._most:
                self.dropped += 1
                return
            self._kept.append(line)
            self._size += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_kept, name="claw-log", daemon=True)
                self._thread.start()

    def lost(self) -> int:
        """How many lines were dropped since this was last asked; 0 as long as there is no room to tell of them."""
        with self._lock:
            if self._thread is not None or self._failed:
                return 0
            lost, self._told = self.dropped - self._told, self.dropped
            return lost

    def flush(self, until: float) -> None:
        """Wait for what is kept to be read, till ``until`` of the monotonic clock."""
        with self._lock:
            while self._thread is not None and (left := until - time.monotonic()) > 0:
                self._lock.wait(left)

    def _try(self, line: bytes) -> bytes:
        """What could not be written of it without waiting."""
        try:
            while line and self._takes():
                line = self._put(line, self._at_once)
        except BlockingIOError:
            pass
        except OSError:
            self._failed = True
            self.dropped += 1
            return b""
        return line

    def _put(self, line: bytes, most: int | None = None) -> bytes:
        """What is left of it, once some is written: never glued to one that was torn."""
        data = b"\n" + line if self._failed and self._within else line
        size = os.write(self._descriptor, data[:most])
        self._failed, self._within = False, not data.endswith(b"\n", 0, size)
        return data[size:]

    def _takes(self) -> bool:
        """Whether a piece can be written without waiting."""
        return self._at_once is None or self._has_room(0)

    def _has_room(self, milliseconds: int | None) -> bool:
        """Whether it takes anything, or has gone, within so long; None: for as long as it takes."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(milliseconds))

    def _write_kept(self) -> None:
        while True:
            with self._lock:
                if not self._kept:
                    self._thread = None
                    self._lock.notify_all()
                    return
                line = self._kept[0]
            try:
                self._write_whole(line)
            except OSError:  # gone, or full: the next line finds out for itself
                self._failed = True
            with self._lock:
                self._size -= len(self._kept.popleft())
                self.dropped += self._failed

    def _write_whole(self, line: bytes) -> None:
        """However long it takes. Whoever shares the file may have made it one that does not wait (``O_NONBLOCK``)."""
        while line:
            try:
                line = self._put(line)
            except BlockingIOError:
                self._has_room(None)


def flush(seconds: float = LAST_SECONDS) -> None:
    """What is kept is written, as far as it is read in time."""
    until = time.monotonic() + seconds
    for lines in list(LineWriter._known.values()):  # noqa: SLF001 - of this module
        lines.flush(until)


def _page(descriptor: int) -> int | None:
    """How much may be written at once to what has said that it takes anything; None: it never makes anybody wait."""
    try:
        return None if stat.S_ISREG(os.fstat(descriptor).st_mode) else _AT_ONCE
    except OSError:
        return None


class TextAdapter(io.TextIOBase):
    """A stream of text, for whoever writes to one."""

    def __init__(self, descriptor: int) -> None:
        self._lines = LineWriter.of(descriptor)
        self._terminal = os.isatty(descriptor)

    def write(self, text: str, /) -> int:
        self._lines.write(text.encode(errors="backslashreplace"))
        return len(text)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._terminal
