"""Saves that run where nothing can be awaited.

Whoever looks for what is being saved waits for it, and so does the end of the mediator. mitmproxy's
loop starts tasks eagerly: a save that never suspends is over before its task is known.
"""

import asyncio
from collections.abc import Coroutine, Hashable, Iterable
from typing import Any


class PendingSaves[Place: Hashable]:
    """The saves that are not over, by the places that they write."""

    def __init__(self) -> None:
        self._last: dict[Place, asyncio.Task[None]] = {}
        self._all: set[asyncio.Task[None]] = set()

    @property
    def places(self) -> list[Place]:
        """The places whose last save is not over."""
        return [*self._last]

    def start(self, places: Iterable[Place], save: Coroutine[Any, Any, None]) -> None:
        """Start a save that writes these places."""
        task = asyncio.ensure_future(save)
        if task.done():
            return

        written = [*places]
        self._last |= dict.fromkeys(written, task)
        self._all.add(task)

        def forget(task: asyncio.Task[None]) -> None:
            self._all.discard(task)
            for place in written:
                if self._last.get(place) is task:
                    del self._last[place]

        task.add_done_callback(forget)

    async def wait(self, places: Iterable[Place]) -> None:
        """Wait until the last save of each place is over."""
        tasks = {self._last[place] for place in places if place in self._last}
        if tasks:
            await asyncio.wait(tasks)

    async def finish(self) -> None:
        """Wait until all saves are over."""
        if self._all:
            await asyncio.wait([*self._all])
