"""Server-sent events: a bounded, incremental reader, and the text of one event. No I/O.

The format is that of https://html.spec.whatwg.org, "Server-sent events".
"""

from collections.abc import Iterator
from typing import NamedTuple

_CR = ord("\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventTooLongError(ValueError):
    """The stream has an event that is longer than the reader's limit."""


class SseEvent(NamedTuple):
    """One event. ``name`` is ``message`` unless the event has another one."""

    data: bytes
    name: bytes = b"message"
    id: bytes = b""


class SseReader:
    """Reader of one stream.

    An event is complete at its blank line. If the stream ends before, the event is dropped, as the
    standard demands; whoever wants it nevertheless feeds a blank line.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._max_bytes = max_event_bytes
        self._line = bytearray()  # The beginning of a line whose end has not arrived
        self._size = 0  # Bytes of the event so far, without its unfinished line
        self._data: list[bytes] = []
        self._name = b""
        self._id = b""  # Unlike data and name, an id holds for later events, too
        self._is_first_line = True
        self._ended_with_cr = False

    @property
    def is_between_events(self) -> bool:
        """True if no byte of a next event has arrived."""
        return not self._line and not self._size

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Yield the events that this chunk completes.

        Raise ``EventTooLongError`` for an event above the limit; the reader is unusable afterwards.
        """
        if not chunk:
            return

        # A carriage return ends its line at once: the peer may now wait for us, or end the stream.
        # If the next chunk begins with a line feed, that belongs to the same line end.
        if self._ended_with_cr:
            chunk = chunk.removeprefix(b"\n")
        self._ended_with_cr = chunk.endswith(b"\r")

        lines = _split_lines(chunk)  # only the new bytes: a long line is searched once
        unfinished = lines.pop()
        if lines:
            if self._line:
                lines[0] = bytes(self._line) + lines[0]
            for line in lines:
                event = self._read_line(line)
                if event is not None:
                    yield event
            self._line.clear()
        self._line += unfinished

        if self._size + len(self._line) > self._max_bytes:
            raise EventTooLongError("an event is too long")

    def _read_line(self, line: bytes) -> SseEvent | None:
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            return self._end_event()

        self._size += len(line)
        if self._size > self._max_bytes:
            raise EventTooLongError("an event is too long")

        # Other fields are ignored, and a comment is a line with an empty field.
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        elif field == b"id" and b"\0" not in value:
            self._id = value
        return None

    def _end_event(self) -> SseEvent | None:
        data = self._data
        name = self._name or b"message"
        self._data = []
        self._name = b""
        self._size = 0

        if not data:  # a comment, or a name or id alone
            return None
        return SseEvent(b"\n".join(data), name, self._id)


def write_event(data: bytes, event_id: str = "") -> bytes:
    """Return the bytes of one event.

    Each line of ``data`` becomes a field of its own, and a reader joins them with line feeds. So
    a JSON document is read as it was written, except for the line ends in its white space.
    """
    id_line = b"id: %b\n" % event_id.encode() if event_id else b""
    data_lines = b"".join(b"data: %b\n" % line for line in _split_lines(data))
    return id_line + data_lines + b"\n"


def _split_lines(data: bytes) -> list[bytes]:
    """Return the lines of the data, which end with LF, CR or both; the last one has no end.

    ``bytes.split`` finds one byte ten times as fast as an expression finds any of three ends.
    """
    if _CR in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data.split(b"\n")
