"""A forwarded response, read from a copy for its usage and for history, while its bytes go through unchanged."""

from __future__ import annotations

from typing import Any

import msgspec

_LONGEST_LINE = 1 << 20
_LONGEST_BODY = 4 << 20
_KEPT = 256 << 10


class Tap:
    """A stream callable of mitmproxy: bytes in, the same bytes out. Never raises: that would hang the runner."""

    def __init__(self, content_type: str) -> None:
        self._events = content_type.startswith("text/event-stream")
        self._buffer = bytearray()
        self.usage: dict[str, Any] = {}
        self.body = bytearray()
        """The beginning of the response."""
        self.whole = False

    def __call__(self, data: bytes) -> bytes:
        if len(self.body) < _KEPT:
            self.body += data[: _KEPT - len(self.body)]
        self.whole = not data  # mitmproxy's last call, at the end of the message
        if self._events:
            self._read_lines(data)
        elif len(self._buffer) <= _LONGEST_BODY:
            self._buffer += data
        if not data and not self._events:
            self._take(bytes(self._buffer))
        return data

    def _read_lines(self, data: bytes) -> None:
        self._buffer += data
        if b"\n" not in data and len(self._buffer) <= _LONGEST_LINE:
            return
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest if len(rest) <= _LONGEST_LINE else b"")
        for line in lines:
            if line.startswith(b"data:") and b'"usage"' in line:
                self._take(line[5:])

    def _take(self, document: bytes) -> None:
        try:
            found = msgspec.json.decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if isinstance(found, dict):
            message = found.get("message")
            usage = found.get("usage") or (message.get("usage") if isinstance(message, dict) else None)
            if isinstance(usage, dict):
                self.usage |= usage
