"""A forwarded answer, read from a copy while its own bytes go through.

The copy may be packed, cut anywhere, hostile or endless. Its cost is bounded: some megabytes, and
work in proportion to the bytes that came in. What is beyond that stays unknown. Nothing of this
touches the bytes that go through.
"""

import json
import logging
import re
from abc import ABC, abstractmethod
from typing import Final

from claw_contract.content_coding import Decoder, DecodingError
from claw_contract.sse import EventTooLongError, SseReader
from claw_mediate.core.cost import ReceivedAnswer
from claw_mediate.mitm.passthrough.answer_notes import AnswerNotes

EVENT_STREAM: Final = "text/event-stream"
MAX_UNPACKED: Final = 1 << 30
_MAX_KEPT = 256 << 10
"""Bytes that are kept of an answer's beginning."""
_MAX_DOCUMENT = 8 << 20
"""Bytes of a document that is read; also of an event, or a line."""
_TAIL = 64 << 10
"""Bytes that are kept of the end of a longer document."""
_log = logging.getLogger(__name__)


class AnswerTap:
    """A stream callable of mitmproxy: bytes in, the same bytes out.

    It never raises, which would hang the runner.
    """

    def __init__(
        self, content_type: str, applied: tuple[str, ...], notes: AnswerNotes | None = None
    ) -> None:
        """Begin to read an answer with these content codings, in the order of application.

        ``notes`` takes its facts.
        """
        self.body = bytearray()  # The beginning of the response, unpacked if possible
        self._notes = AnswerNotes() if notes is None else notes
        self._reader = _reader(content_type.lower(), self._notes)
        try:
            self._decoder = Decoder(applied, MAX_UNPACKED) if self._reader is not None else None
        except DecodingError:
            self._reader = self._decoder = None
        self._is_packed = bool(applied)

    @property
    def usage(self) -> dict[str, object]:
        """The response's own count of its tokens, once it is over."""
        return self._notes.usage

    def received(self, status: int) -> ReceivedAnswer:
        """Return what came of an answer with this status."""
        notes = self._notes
        is_stream = isinstance(self._reader, _EventReader)
        return ReceivedAnswer(status, notes.usage, notes.is_usage_final, notes.tokens, is_stream)

    def __call__(self, data: bytes) -> bytes:
        try:
            self._read(data)
        except DecodingError:
            self._decoder = None
        except Exception as error:  # noqa: BLE001 - nothing that a copy holds may harm the response itself
            _log.warning("the copy of a response is not read: %s", type(error).__name__)
            self._decoder = None
        return data

    def _read(self, data: bytes) -> None:
        reader = self._reader
        if self._decoder is None or reader is None:
            return

        for piece in self._decoder.feed(data) if self._is_packed else (data,):
            if len(self.body) < _MAX_KEPT:
                self.body += piece[: _MAX_KEPT - len(self.body)]
            reader.feed(piece)
        if not data:  # mitmproxy's last call, at the end of the message
            reader.end()


class _Reader(ABC):
    """A reader that cuts an answer into JSON documents, which the notes take."""

    def __init__(self, notes: AnswerNotes) -> None:
        self._notes = notes

    @abstractmethod
    def feed(self, piece: bytes) -> None: ...

    @abstractmethod
    def end(self) -> None: ...


class _EventReader(_Reader):
    """Reads a stream of events.

    An event that is too long tells nothing, and neither does what came in one piece with it.
    """

    def __init__(self, notes: AnswerNotes) -> None:
        super().__init__(notes)
        self._events = SseReader(_MAX_DOCUMENT)

    def feed(self, piece: bytes) -> None:
        # Most pieces are whole events that hold words alone.
        is_whole = piece.endswith(b"\n\n") and self._events.is_between_events
        if is_whole and not self._notes.concern(piece):
            return

        try:
            for event in self._events.feed(piece):
                self._notes.take_event(event.data)
        except EventTooLongError:
            self._events = SseReader(_MAX_DOCUMENT)

    def end(self) -> None:
        self.feed(b"\n\n")  # A stream that breaks off may have told all the same


class _LineReader(_Reader):
    """Reads results of a batch, or a file: each line may be a document that gives objects."""

    def __init__(self, notes: AnswerNotes) -> None:
        super().__init__(notes)
        self._line = bytearray()
        self._is_too_long = False  # The line that is being read

    def feed(self, piece: bytes) -> None:
        *ended, rest = piece.replace(b"\r", b"\n").split(b"\n")
        for line in ended:
            self._append(line)
            self.end()
        self._append(rest)

    def end(self) -> None:
        self._notes.take_objects(self._line)
        self._line.clear()
        self._is_too_long = False

    def _append(self, piece: bytes) -> None:
        self._is_too_long |= len(self._line) + len(piece) > _MAX_DOCUMENT
        if self._is_too_long:
            self._line.clear()
        else:
            self._line += piece


class _DocumentReader(_Reader):
    """Reads one JSON document.

    Of a long one only the end is kept, which contains the usage.
    """

    def __init__(self, notes: AnswerNotes) -> None:
        super().__init__(notes)
        self._buffer = bytearray()
        self._is_whole = True

    def feed(self, piece: bytes) -> None:
        self._notes.count_bytes(piece)
        self._buffer += piece
        if len(self._buffer) <= _MAX_DOCUMENT:
            return

        if self._is_whole:  # its beginning is about to go
            first = _FIRST_ID.match(self._buffer)
            if first is not None:
                self._notes.report_id(first[1].decode())
        self._is_whole = False
        del self._buffer[:-_TAIL]

    def end(self) -> None:
        if self._is_whole:
            self._notes.take_document(self._buffer)
            return

        text = self._buffer[-_TAIL:].decode(errors="replace")
        for match in _MEMBER.finditer(text):
            try:
                value, _ = json.JSONDecoder().raw_decode(text, match.end())
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                self._notes.add_usage(value)
                self._notes.is_usage_final = True


_FIRST_ID = re.compile(rb'\s{0,16}\{\s{0,16}"id"\s{0,16}:\s{0,16}"([\w.:-]{1,200})"')
# This can't match within a string, where quotes are escaped.
_MEMBER = re.compile(r'"usage"\s{0,16}:\s{0,16}')


def _reader(content_type: str, notes: AnswerNotes) -> _Reader | None:
    """Return the reader of a kind of content; None for one that tells nothing."""
    if content_type.startswith(EVENT_STREAM):
        return _EventReader(notes)
    if "json" in content_type and "jsonl" not in content_type:
        return _DocumentReader(notes)
    return _LineReader(notes) if notes.wants_objects else None
