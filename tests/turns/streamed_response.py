"""A provider's stream as the proxy's HTTP client gives it, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx2

_STEPS = 4  # Turns of the loop in which a waiting runner is woken and reads


class StreamedResponse:
    """The part of ``http.client.Response`` that a live reply is read by, one event at a time.

    ``breaks``: its connection does, behind all that there is. ``yields_between``: others have their
    turn between two events. ``pause``: behind the event that has these bytes, nothing comes until
    that is set.
    """

    def __init__(
        self,
        stream: bytes,
        on_event: Callable[[], None] = lambda: None,
        *,
        breaks: bool = False,
        yields_between: bool = False,
        pause: tuple[bytes, asyncio.Event] | None = None,
    ) -> None:
        *events, rest = stream.split(b"\n\n")
        self._events = [event + b"\n\n" for event in events] + [rest] * bool(rest)
        self._on_event = on_event
        self._breaks = breaks
        self._steps = _STEPS * yields_between
        self._pause = pause

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        for event in self._events:
            yield event
            self._on_event()
            for _ in range(self._steps):
                await asyncio.sleep(0)
            if self._pause is not None and self._pause[0] in event:
                await self._pause[1].wait()
        if self._breaks:
            raise httpx2.ReadError("the connection broke")
