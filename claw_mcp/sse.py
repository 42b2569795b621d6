"""A bounded, incremental reader of server-sent events
(https://html.spec.whatwg.org, "Server-sent events"). No I/O.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventTooLongError(ValueError):
    """An event that is longer than the reader may hold."""


class SseEvent(NamedTuple):
    """One event. ``name`` is ``message`` unless the event has another one."""

    data: bytes
    name: bytes = b"message"
    id: bytes = b""


class SseReader:
    """Reader of one stream. An event that the stream ends within is none."""

    def __init__(self, max_event_bytes: int) -> None:
        self._max_bytes = max_event_bytes
        self._line = bytearray()  # The beginning of a line whose end has not arrived
        self._size = 0  # Bytes of the event so far
        self._data: list[bytes] = []
        self._name = self._id = b""
        self._is_first_line = True
        self._ended_with_cr = False

    @property
    def is_between_events(self) -> bool:
        """True if nothing of the next event has come."""
        return not self._line and not self._size

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Yield the events that these bytes complete.

        Raise ``EventTooLongError``; feed nothing afterwards.
        """
        if not chunk:
            return

        # A carriage return ends its line at once, because nothing else may follow: the peer waits
        # for us, or ends the stream. A line feed after it belongs to the same end, even if it
        # arrives later.
        if self._ended_with_cr:
            chunk = chunk.removeprefix(b"\n")
        self._ended_with_cr = chunk.endswith(b"\r")

        self._line += chunk
        if _LINE_END.search(chunk):  # a long line is searched once
            buffer = bytes(self._line)
            start = 0
            for end in _LINE_END.finditer(buffer):
                event = self._read_line(buffer[start : end.start()])
                start = end.end()
                if event is not None:
                    yield event
            del self._line[:start]

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

        if not data:
            return None
        return SseEvent(b"\n".join(data), name, self._id)


def write_event(data: bytes, event_id: str = "") -> bytes:
    """Return an event of one message.

    ``data`` is JSON: it has line breaks only as white space between tokens.
    """
    id_line = b"id: %b\n" % event_id.encode() if event_id else b""
    data_lines = b"".join(b"data: %b\n" % line for line in _LINE_END.split(data))
    return id_line + data_lines + b"\n"
