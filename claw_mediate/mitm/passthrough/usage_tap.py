"""The usage of a forwarded response, and its id, read from a copy while its own bytes go through.

The copy may be packed, cut anywhere, hostile or endless. Its cost is bounded: some megabytes, and work in proportion to the
bytes that came in. If that is not enough, the usage stays unknown. Nothing of this touches the bytes that go through.
"""

import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import msgspec

from claw_mediate.core.cost import ReceivedAnswer, count_event_tokens, count_tokens
from claw_mediate.core.stream_usage import UsageChunkFilter
from claw_mediate.http.content_coding import Decoder, DecodingError

EVENT_STREAM = "text/event-stream"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_KEPT = 256 << 10
_MAX_LINE = 1 << 20
_MAX_DOCUMENT = 4 << 20
_TAIL = 64 << 10
_MAX_UNPACKED = 256 << 20
_log = logging.getLogger(__name__)


type OnId = Callable[[str], None]


class UsageTap:
    """A stream callable of mitmproxy: bytes in, the same bytes out. It never raises, which would hang the runner."""

    def __init__(
        self, content_type: str, applied: tuple[str, ...], on_id: OnId | None = None, *, measures: bool = False
    ) -> None:
        """``on_id`` is called with the id of what the provider keeps, before the bytes with it go on.

        ``measures``: the tokens of what is received are counted too, for an answer whose usage never comes.
        """
        self.body = bytearray()  # The beginning of the response, unpacked if possible
        self._reader = _reader(content_type.lower(), on_id, measures=measures)
        try:
            self._unpacking = Decoder(applied, _MAX_UNPACKED) if self._reader else None
        except DecodingError:
            self._reader = self._unpacking = None

    @property
    def usage(self) -> dict[str, Any]:
        """The response's own count of its tokens, once it is over."""
        return self._reader.usage if self._reader is not None else {}

    def received(self, status: int) -> ReceivedAnswer:
        """Return what came of an answer with this status."""
        reader = self._reader
        if reader is None:
            return ReceivedAnswer(status, {})
        is_stream = isinstance(reader, _EventReader)
        return ReceivedAnswer(status, reader.usage, reader.is_usage_final, reader.tokens, is_stream)

    def __call__(self, data: bytes) -> bytes:
        try:
            self._read(data)
        except DecodingError:
            self._unpacking = None
        except Exception as error:  # noqa: BLE001 - nothing that a copy holds may harm the response itself
            _log.warning("the copy of a response is not read: %s", type(error).__name__)
            self._unpacking = None
        return data

    def _read(self, data: bytes) -> None:
        if self._unpacking is None:
            return
        for piece in self._unpacking.feed(data):
            if len(self.body) < _MAX_KEPT:
                self.body += piece[: _MAX_KEPT - len(self.body)]
            if self._reader is not None:
                self._reader.feed(piece)
        if not data and self._reader is not None:  # mitmproxy's last call, at the end of the message
            self._reader.end()


class _UsageHolder(msgspec.Struct):
    usage: dict[str, Any] | None = None
    id: Any = None


class _WireDocument(_UsageHolder):
    """The places of a usage: OpenAI's at the top, Anthropic's in ``message_start``, and in the last event of Responses."""

    message: _UsageHolder | str | None = None
    response: _UsageHolder | str | None = None


_decoder = msgspec.json.Decoder(_WireDocument)


class _UsageReader(ABC):
    """A reader that gathers the usage of a response while it passes."""

    def __init__(self, on_id: OnId | None, *, measures: bool = False) -> None:
        self.usage: dict[str, Any] = {}
        self.is_usage_final = False
        """True if the usage is of the whole answer so far. Anthropic's ``message_start`` counts the prompt, and one token."""
        self.tokens = 0.0  # Of what was received
        self._measures = measures
        self._buffer = bytearray()
        self._on_id = on_id  # None once the id is known, or where nobody asks for it

    @abstractmethod
    def feed(self, piece: bytes) -> None: ...

    @abstractmethod
    def end(self) -> None: ...

    def _take(self, document: bytes | bytearray) -> None:
        try:
            decoded = _decoder.decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        self._report_id(decoded.response.id if isinstance(decoded.response, _UsageHolder) else decoded.id)
        for holder in (decoded, decoded.message, decoded.response):
            if isinstance(holder, _UsageHolder) and holder.usage is not None:
                self._add(holder.usage)
                self.is_usage_final |= holder is not decoded.message

    def _report_id(self, object_id: object) -> None:
        on_id = self._on_id
        if on_id is not None and isinstance(object_id, str) and object_id:
            self._on_id = None
            on_id(object_id)

    def _add(self, usage: dict[str, Any]) -> None:
        self.usage |= {name: value for name, value in usage.items() if value is not None}


class _EventReader(_UsageReader):
    """Reads a stream of events: each has the usage so far, and the last one counts.

    Lines end as HTML's standard says: with a line feed, a carriage return, or both.
    """

    def __init__(self, on_id: OnId | None, *, measures: bool = False) -> None:
        super().__init__(on_id, measures=measures)
        self._data: list[bytes] = []  # The lines of the event so far
        self._size = 0  # Their bytes
        self._is_first_line = True
        self._ended_with_cr = False

    def feed(self, piece: bytes) -> None:
        if self._ended_with_cr:
            piece = piece.removeprefix(b"\n")  # of the same line end
        if not piece:
            self._ended_with_cr = False
            return

        self._ended_with_cr = piece.endswith(b"\r")
        piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._buffer += piece
        if b"\n" not in piece:
            if len(self._buffer) > _MAX_LINE:
                self._buffer.clear()
            return

        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            self._line(line)

    def end(self) -> None:
        self._line(bytes(self._buffer))
        self._end_event()

    def _line(self, line: bytes) -> None:
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            self._end_event()
            return

        if self._measures and line.startswith(b"data:"):
            self.tokens += count_event_tokens(line[5:])
        if line.startswith(b"data:") and self._size <= _MAX_LINE:
            self._data.append(line[5:])
            self._size += len(line)

    def _end_event(self) -> None:
        document = b"\n".join(self._data)
        self._data, self._size = [], 0
        if b'"usage"' in document or (self._on_id is not None and b'"response"' in document):
            self._take(document)


class _DocumentReader(_UsageReader):
    """Reads one JSON document. Only the end of a long one is kept, which contains the usage."""

    def __init__(self, on_id: OnId | None, *, measures: bool = False) -> None:
        super().__init__(on_id, measures=measures)
        self._is_whole = True

    def feed(self, piece: bytes) -> None:
        if self._measures:
            self.tokens += count_tokens(piece)
        self._buffer += piece
        if len(self._buffer) > _MAX_DOCUMENT:
            if self._is_whole and (first := _FIRST_ID.match(self._buffer)) is not None:
                self._report_id(first[1].decode())
            self._is_whole = False
            del self._buffer[:-_TAIL]

    def end(self) -> None:
        if self._is_whole:
            self._take(self._buffer)
            return
        text = self._buffer[-_TAIL:].decode(errors="replace")
        for match in _MEMBER.finditer(text):
            try:
                value, _ = json.JSONDecoder().raw_decode(text, match.end())
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                self._add(value)
                self.is_usage_final = True


_FIRST_ID = re.compile(rb'\s{0,16}\{\s{0,16}"id"\s{0,16}:\s{0,16}"([\w.:-]{1,200})"')
_MEMBER = re.compile(r'"usage"\s{0,16}:\s{0,16}')  # This can't match within a string, where quotes are escaped


def _reader(content_type: str, on_id: OnId | None, *, measures: bool) -> _UsageReader | None:
    if content_type.startswith(EVENT_STREAM):
        return _EventReader(on_id, measures=measures)
    return _DocumentReader(on_id, measures=measures) if "json" in content_type else None


class StreamWithoutUsage:
    """A stream callable that hides from the runner the usage that only we have asked for; a tap reads it before.

    A packed stream goes on unpacked. Like the tap, it never raises.
    """

    def __init__(self, tap: Callable[[bytes], bytes], applied: tuple[str, ...], on_failure: Callable[[], None]) -> None:
        """Raise ``DecodingError`` for codings that can't be read. ``on_failure``: called where the stream must break off."""
        self._tap = tap
        self._decoder: Decoder | None = Decoder(applied, _MAX_UNPACKED)
        self._filter = UsageChunkFilter()
        self._on_failure = on_failure

    def __call__(self, data: bytes) -> list[bytes]:
        self._tap(data)
        if self._decoder is None:
            return []
        try:
            unpacked = b"".join(self._decoder.feed(data)) if data else b""
        except DecodingError:
            self._decoder = None
            self._on_failure()
            return _pieces(self._filter.end())
        return _pieces(self._filter.feed(unpacked) if data else self._filter.end())


def _pieces(data: bytes) -> list[bytes]:
    """Return the pieces to send: none is empty, since an empty chunk would be the end of the message."""
    return [data] if data else []
