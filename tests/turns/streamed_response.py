"""A provider's stream as the proxy's HTTP client gives it, without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable


class StreamedResponse:
    """The part of ``http.client.Response`` that a live reply is read by, one event at a time."""

    def __init__(self, stream: bytes, on_event: Callable[[], None] = lambda: None) -> None:
        self._events = [event + b"\n\n" for event in stream.split(b"\n\n")[:-1]]
        self._on_event = on_event

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        for event in self._events:
            yield event
            self._on_event()
