"""The output of all workers as whole lines on the supervisor's own stdout and stderr.

Rules. A regular file takes a line in one write, so workers write it themselves. Anything else, such
as a pipe, would mix long lines and could make a worker wait: there each worker has a pipe of its
own, and the supervisor copies whole lines. While the supervisor's reader is slow, the supervisor
reads no more, so that each worker drops and counts what it has no room for, as one proxy does. When
the reader has left, lines are dropped.
"""

import os
import select
import stat

_READ_BYTES = 1 << 16


def is_file(descriptor: int) -> bool:
    """Return whether a write of a whole line can't mix with another process's."""
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return True  # closed: there is nothing to bring together


class Output:
    """The supervisor's own stdout or stderr."""

    def __init__(self, descriptor: int) -> None:
        """Write to an open descriptor, of a file of any kind."""
        self.descriptor = descriptor
        self._waiting = bytearray()
        self._has_reader_left = False

    @property
    def is_behind(self) -> bool:
        return bool(self._waiting)

    def write(self, lines: bytes) -> None:
        """Write lines now as far as that can't block; the rest waits for ``go_on``."""
        if not self._has_reader_left:
            self._waiting += lines
            self.go_on()

    def go_on(self, milliseconds: int = 0) -> None:
        """Write what waits, while there is room, or comes to be within that time."""
        try:
            while self._waiting and self._has_room(milliseconds):
                # POSIX: a pipe with any room takes PIPE_BUF bytes without blocking.
                written = os.write(self.descriptor, self._waiting[: select.PIPE_BUF])
                del self._waiting[:written]
        except BlockingIOError:
            pass
        except OSError:
            self._has_reader_left = True
            self._waiting.clear()

    def _has_room(self, milliseconds: int) -> bool:
        poll = select.poll()
        poll.register(self.descriptor, select.POLLOUT)
        return bool(poll.poll(milliseconds))


class Relay:
    """One worker's pipe into an output."""

    def __init__(self, output: Output) -> None:
        """Open a pipe; ``end`` is the worker's."""
        self.output = output
        self.source, self.end = os.pipe()
        os.set_blocking(self.source, False)
        self._line = b""

    def copy(self) -> bool:
        """Copy the lines that are whole.

        Return False at the end of the pipe, where a torn line is copied as a whole one.
        """
        try:
            data = os.read(self.source, _READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            if self._line:
                self.output.write(self._line + b"\n")
            return False

        lines, separator, rest = data.rpartition(b"\n")
        if separator:
            self.output.write(self._line + lines + separator)
            self._line = rest
        else:
            self._line += rest
        return True

    def has_input(self) -> bool:
        """Return whether there is something to copy, or the end."""
        poll = select.poll()
        poll.register(self.source, select.POLLIN)
        return bool(poll.poll(0))

    def close_end(self) -> None:
        os.close(self.end)

    def close(self) -> None:
        os.close(self.source)
