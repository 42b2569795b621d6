"""Waiting for facts, with a deadline, and never for a time."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import Callable

DEADLINE = 30.0


def eventually[T](find: Callable[[], T | None], what: str) -> T:
    """Looks again and again until there is something, or the deadline has passed."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        found = find()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {DEADLINE:.0f} s in vain: {what}")


async def happens(find: Callable[[], object], what: str) -> None:
    """The same for tests on a loop of their own."""
    try:
        async with asyncio.timeout(DEADLINE):
            while not find():  # noqa: ASYNC110 - the facts of other threads set no event of ours
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"waited {DEADLINE:.0f} s in vain: {what}") from None


def free_port() -> int:
    """A port below those that the system gives to outgoing connections, of which one might take it before it is used."""
    while True:
        port = random.randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as held:
            held.bind(("127.0.0.1", port))
            return port
