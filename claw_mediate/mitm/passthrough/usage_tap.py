"""A forwarded response, read from a copy for its usage and for history, while its own bytes go through.

The copy may be packed, cut anywhere, hostile or endless. What it costs is bounded: some megabytes, and work in proportion to
the bytes that came in; where that is not enough, the usage is not known. Nothing of this touches the bytes that go through.
"""

from __future__ import annotations

import json
import logging
import re
from abc import ABC, abstractmethod
from typing import Any

import msgspec

from claw_mediate.http.content_coding import Decoder, DecodingError

_KEPT = 256 << 10
_LONGEST_LINE = 1 << 20
_LONGEST_DOCUMENT = 4 << 20
_TAIL = 64 << 10
_MOST_UNPACKED = 256 << 20
_log = logging.getLogger(__name__)


class Tap:
    """A stream callable of mitmproxy: bytes in, the same bytes out. Never raises: that would hang the runner."""

    def __init__(self, content_type: str, applied: tuple[str, ...]) -> None:
        self.body = bytearray()
        """The beginning of the response, unpacked where it can be."""
        self._usage = _reader(content_type.lower())
        try:
            self._unpacking = Decoder(applied, _MOST_UNPACKED) if self._usage else None
        except DecodingError:
            self._usage = self._unpacking = None

    @property
    def usage(self) -> dict[str, Any]:
        """What the response says of its tokens, once it is over."""
        return self._usage.usage if self._usage is not None else {}

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
            if len(self.body) < _KEPT:
                self.body += piece[: _KEPT - len(self.body)]
            if self._usage is not None:
                self._usage.feed(piece)
        if not data and self._usage is not None:  # mitmproxy's last call, at the end of the message
            self._usage.end()


class _Inner(msgspec.Struct):
    usage: dict[str, Any] | None = None


class _Told(_Inner):
    """Where a document may tell its usage: OpenAI's at the top, Anthropic's ``message_start``, and Responses' last event."""

    message: _Inner | str | None = None
    response: _Inner | str | None = None


_decoder = msgspec.json.Decoder(_Told)


class _Usage(ABC):
    """The usage of a response, gathered while it passes."""

    def __init__(self) -> None:
        self.usage: dict[str, Any] = {}
        self._buffer = bytearray()

    @abstractmethod
    def feed(self, piece: bytes) -> None: ...

    @abstractmethod
    def end(self) -> None: ...

    def _take(self, document: bytes | bytearray) -> None:
        try:
            told = _decoder.decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        for found in (told, told.message, told.response):
            if isinstance(found, _Inner) and found.usage is not None:
                self._note(found.usage)

    def _note(self, usage: dict[str, Any]) -> None:
        self.usage |= {name: value for name, value in usage.items() if value is not None}


class _Events(_Usage):
    """A stream of events: each says what is known by then, and the last one counts."""

    def feed(self, piece: bytes) -> None:
        self._buffer += piece.replace(b"\r", b"\n")
        if b"\n" not in self._buffer[-len(piece) :]:
            if len(self._buffer) > _LONGEST_LINE:
                self._buffer.clear()
            return
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            self._line(line)

    def end(self) -> None:
        self._line(bytes(self._buffer))

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:") and b'"usage"' in line:
            self._take(line[5:])


class _Document(_Usage):
    """One JSON document. Of a long one only the end is kept, which is where usage stands."""

    def __init__(self) -> None:
        super().__init__()
        self._whole = True

    def feed(self, piece: bytes) -> None:
        self._buffer += piece
        if len(self._buffer) > _LONGEST_DOCUMENT:
            self._whole = False
            del self._buffer[:-_TAIL]

    def end(self) -> None:
        if self._whole:
            self._take(self._buffer)
            return
        text = self._buffer[-_TAIL:].decode(errors="replace")
        for found in _MEMBER.finditer(text):
            try:
                value, _ = json.JSONDecoder().raw_decode(text, found.end())
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                self._note(value)


_MEMBER = re.compile(r'"usage"\s{0,16}:\s{0,16}')
"""Within a string the quotes would be escaped."""


def _reader(content_type: str) -> _Usage | None:
    if content_type.startswith("text/event-stream"):
        return _Events()
    return _Document() if "json" in content_type else None
