"""The chunks of an HTTP/1.1 body (RFC 9112, section 7.1). No I/O.

Its parts, each of which may arrive in any pieces:

    a chunk      its size in hexadecimal digits, extensions, CRLF; so many bytes of data; CRLF
    the last     size 0, and no data
    the end      trailer fields, each with its CRLF; then CRLF

Extensions and trailers are read over. Bytes that are no such body break it: nothing behind them is
read, since nobody knows where the next response would begin.
"""

import re
from typing import Final

_SIZE: Final = rb"([0-9A-Fa-f]{1,15})(?:;[^\r\n]*)?[\t ]*\r\n"
_FIRST_SIZE: Final = re.compile(_SIZE)
_NEXT_SIZE: Final = re.compile(rb"\r\n" + _SIZE)
"""The end of a chunk, and the size of the next one."""
_END: Final = re.compile(rb"(?:[-!#$%&'*+.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*\r\n)*+\r\n")

_MAX_FRAMING: Final = 16 * 1024
"""Bytes between the data of two chunks, and behind the last."""


class ChunkedBody:
    """Takes the data out of the chunks of one body."""

    def __init__(self) -> None:
        self._framing = _FIRST_SIZE  # What comes before the next data, or the end
        self._left = 0  # Bytes of the present chunk's data that are still to come
        self._rest = b""
        """Received bytes that are not read: half a line, or what follows the end."""
        self.is_over = False
        """True once the end of the body was read."""
        self.is_broken = False
        """True if what was received is no chunked body."""

    @property
    def has_rest(self) -> bool:
        """True if bytes were received that are not read; behind the end, there must be none."""
        return bool(self._rest)

    def feed(self, received: bytes) -> bytes:
        """Return the data in the next received bytes, which may be none."""
        if self._rest:
            received = self._rest + received

        data: list[bytes] = []
        place = 0
        while place < len(received) and not (self.is_over or self.is_broken):
            if self._left:
                part = received[place : place + self._left]
                data.append(part)
                place += len(part)
                self._left -= len(part)
                continue

            framing = self._framing.match(received, place)
            if framing is None:
                self.is_broken = not self._may_be_half(received, place)
                break

            place = framing.end()
            self._pass_framing(framing)

        self._rest = received[place:]
        return b"".join(data)

    def _pass_framing(self, framing: re.Match[bytes]) -> None:
        if self._framing is _END:
            self.is_over = True
            return

        self._left = int(framing[1], 16)
        self._framing = _NEXT_SIZE if self._left else _END

    def _may_be_half(self, received: bytes, place: int) -> bool:
        """Return whether what comes before the next data may have begun, and not ended, here."""
        last_mark = b"\r\n\r\n" if self._framing is _END else b"\r\n"
        begin = place + len(b"\r\n") if self._framing is _NEXT_SIZE else place
        has_end = received.find(last_mark, begin) >= 0
        return not has_end and len(received) - place <= _MAX_FRAMING
