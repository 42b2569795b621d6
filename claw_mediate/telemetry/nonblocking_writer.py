"""Writer of lines to a file that may be a pipe without a reader: no request waits for one.

A line is written at once if that can't block, so that it precedes whatever comes next and survives
a kill. Otherwise a thread writes it when there is room. Lines beyond a bound are dropped whole and
counted. So are lines that are lost because the disk is full or the reader has left; the line after
a torn one starts on a line of its own.
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

MAX_QUEUED_BYTES = 4 << 20
FLUSH_SECONDS = 1.0  # Longest wait for a reader when the process ends


class LineWriter:
    """Non-blocking writer of one file descriptor."""

    _by_file: Final[dict[tuple[int, int], LineWriter]] = {}

    def __init__(self, descriptor: int, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self._is_file = _is_regular_file(descriptor)
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None
        self.dropped = 0  # Lines that were dropped since the process started
        self._reported = 0  # How many of them ``take_unreported`` has returned
        # The next two belong to whoever writes: the thread, while there is one.
        self._has_failed = False  # The latest write
        self._is_within_line = False  # What was written last ends within a line

    @classmethod
    def of(cls, descriptor: int) -> LineWriter:
        """Return the writer of this descriptor's file.

        There is one for each file: two writers of one pipe would each rely on the same free space.
        """
        try:
            status = os.fstat(descriptor)
        except OSError:
            return cls(descriptor)

        if not cls._by_file:
            atexit.register(flush_all)
        return cls._by_file.setdefault((status.st_dev, status.st_ino), cls(descriptor))

    def write(self, line: bytes) -> None:
        """Write a whole line now, or queue it, or drop it."""
        with self._lock:
            if self._thread is None:
                line = self._write_without_waiting(line)
            if not line:
                return

            # An empty queue takes a line of any length. It may be the rest of one that is begun.
            is_full = self._queued_bytes + len(line) > self._max_bytes
            if self._queue and is_full:
                self.dropped += 1
                return

            self._queue.append(line)
            self._queued_bytes += len(line)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._write_queue, name="claw-log", daemon=True
                )
                self._thread.start()

    def take_unreported(self) -> int:
        """Return how many lines were dropped since the last call.

        0 while a line about it could not be written.
        """
        with self._lock:
            if self._thread is not None or self._has_failed:
                return 0

            count = self.dropped - self._reported
            self._reported = self.dropped
            return count

    def flush(self, until: float) -> None:
        """Wait until the queue is written, at most until that monotonic time."""
        with self._lock:
            while self._thread is not None and (left := until - time.monotonic()) > 0:
                self._lock.wait(left)

    def _write_without_waiting(self, line: bytes) -> bytes:
        """Write what can be written without blocking; return the rest.

        Return b"" after a failure, too: the line is dropped and counted.
        """
        try:
            while line and (self._is_file or self._has_room(0)):
                # POSIX: a pipe with any room takes PIPE_BUF bytes. A file never blocks.
                line = self._write_some(line, None if self._is_file else select.PIPE_BUF)
        except BlockingIOError:
            pass
        except OSError:
            self._has_failed = True
            self.dropped += 1
            return b""
        return line

    def _write_queue(self) -> None:
        """Write the queue until it is empty: the thread's work."""
        while True:
            with self._lock:
                if not self._queue:
                    self._thread = None
                    self._lock.notify_all()
                    return
                line = self._queue[0]

            try:
                while line:
                    try:
                        line = self._write_some(line)
                    except BlockingIOError:  # whoever shares the file has set O_NONBLOCK
                        self._has_room(None)
            except OSError:  # the reader has left, or the disk is full
                self._has_failed = True

            with self._lock:
                self._queued_bytes -= len(self._queue.popleft())
                if self._has_failed:
                    self.dropped += 1

    def _write_some(self, line: bytes, max_bytes: int | None = None) -> bytes:
        """Write at least a part; return the rest.

        After a failure within a line, start a new line.
        """
        data = line
        if self._has_failed and self._is_within_line:
            data = b"\n" + line
        size = os.write(self._descriptor, data[:max_bytes])
        self._has_failed = False
        self._is_within_line = not data.endswith(b"\n", 0, size)
        return data[size:]

    def _has_room(self, milliseconds: int | None) -> bool:
        """Wait until a write does not block or fails at once; None: without limit."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(milliseconds))


def flush_all(seconds: float = FLUSH_SECONDS) -> None:
    """Wait until all queues are written, at most for so long."""
    until = time.monotonic() + seconds
    for writer in list(LineWriter._by_file.values()):  # noqa: SLF001 - of this module
        writer.flush(until)


def _is_regular_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return False


class TextAdapter(io.TextIOBase):
    """A text stream on a ``LineWriter``."""

    def __init__(self, descriptor: int) -> None:
        self._writer = LineWriter.of(descriptor)
        self._is_terminal = os.isatty(descriptor)

    def write(self, text: str, /) -> int:
        self._writer.write(text.encode(errors="backslashreplace"))
        return len(text)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._is_terminal
