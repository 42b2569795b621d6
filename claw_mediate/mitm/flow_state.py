"""The governed requests under way: their answers that are given chunk by chunk, and what else is noted of them.

Nothing of this is kept in ``flow.metadata``, which is deep-copied, nor in the addon: a script that is reloaded between two
hooks of a request must not lose it, and this module outlives the script.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from mitmproxy import http

from claw_mediate.agents.authenticate import Identity

_MOST_AT_ONCE = 65_536
"""Bytes that are collected, where they are ready, before they are sent."""


class Source:
    """The chunks of one answer, and what is left to do with them."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self.chunks = chunks
        self.ready = b""
        self.ended = False
        self.served = False
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


@dataclass
class Passing:
    """One request under way. ``over`` when the last byte of its answer was handed to the connection, or never will be."""

    client: str
    """The connection that it came on."""
    admitted: Identity | None = None
    """Who asks, while the body is still to come."""
    handed: Callable[[], Awaitable[None]] | None = None
    """To be told when the whole answer went to the runner's connection."""
    told: bool = False
    """mitmproxy has said how it ended."""
    over: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


passing: dict[str, Passing] = {}
"""By the flow's id, like the others."""
sources: dict[str, Source] = {}
deciding: dict[str, asyncio.Task[Any]] = {}
"""Hooks that are still deciding."""
fallbacks: dict[str, Callable[[], http.Response]] = {}
"""What the runner is told when its provider gives no response."""
held: dict[str, Callable[[bytes], bytes]] = {}
"""What a response streams through, should it be too long to be held back."""
_kept: set[asyncio.Future[Any]] = set()


def settle(flow_id: str) -> None:
    """Whatever was to be done for this flow was done; it is over if it has ended."""
    if (found := passing.get(flow_id)) is not None and found.told:
        del passing[flow_id]
        found.over.set_result(None)


def gone(client: str) -> None:
    """Nothing of what this connection asked for goes on."""
    for flow_id in [flow_id for flow_id, each in passing.items() if each.client == client]:
        passing.pop(flow_id).over.set_result(None)


async def all_over(requests: Collection[Passing], seconds: float) -> None:
    """Wait for these requests, for so long at most."""
    if requests:
        await asyncio.wait([each.over for each in requests], timeout=seconds)


def _keep(future: asyncio.Future[Any]) -> None:
    _kept.add(future)
    future.add_done_callback(_kept.discard)


async def _anext(chunks: AsyncIterator[bytes]) -> bytes:
    return await anext(chunks)
