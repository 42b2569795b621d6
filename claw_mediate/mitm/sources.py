"""The answers that are given chunk by chunk, and what else is noted of flows under way.

Nothing of this is kept in ``flow.metadata``, which is deep-copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from mitmproxy import http

_MOST_AT_ONCE = 65_536
"""Bytes that are collected, where they are ready, before they are sent."""


class Source:
    """The chunks of one answer, and what is left to do with them."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self.chunks = chunks
        self.ready = b""
        self.ended = False
        self.served = False
        self.over = asyncio.Event()
        """Set when the last byte was handed to the connection, or never will be."""
        self.error: BaseException | None = None
        self._next: asyncio.Future[bytes] | None = None

    async def pull(self) -> None:
        """Wait for a chunk, and take what is ready behind it. Never raises: sets ``ended``, and ``error`` where it broke."""
        self.served = True
        collected = bytearray()
        while len(collected) < _MOST_AT_ONCE and not self.ended:
            if self._next is None:
                self._next = asyncio.ensure_future(_anext(self.chunks))
            if collected and not self._next.done():
                break
            await asyncio.wait([self._next])
            taken, self._next = self._next, None
            try:
                collected += taken.result()
            except StopAsyncIteration:
                self.ended = True
            except BaseException as error:  # noqa: BLE001 - whatever broke, the stream is cut, and never left hanging
                self.error, self.ended = error, True
        self.ready = bytes(collected)

    def cancel(self) -> None:
        """The runner has gone, or the stream is over: whoever makes the chunks hears of it, also where none was asked for."""
        if self._next is not None:
            self._next.cancel()
        if not self.ended:
            _keep(asyncio.ensure_future(self._close(self._next)))
        self.ended = True

    async def _close(self, pulling: asyncio.Future[bytes] | None) -> None:
        if pulling is not None:
            await asyncio.wait([pulling])
        if (close := getattr(self.chunks, "aclose", None)) is not None:
            await close()


sources: dict[str, Source] = {}
"""By the flow's id, like the others."""
deciding: dict[str, asyncio.Task[Any]] = {}
"""Hooks that are still deciding."""
fallbacks: dict[str, Callable[[], http.Response]] = {}
"""What the runner is told when its provider gives no response."""
held: dict[str, Callable[[bytes], bytes]] = {}
"""What a response streams through, should it be too long to be held back."""
_kept: set[asyncio.Future[Any]] = set()


def _keep(future: asyncio.Future[Any]) -> None:
    _kept.add(future)
    future.add_done_callback(_kept.discard)


async def _anext(chunks: AsyncIterator[bytes]) -> bytes:
    return await anext(chunks)
