"""Waiting for facts, with a deadline, and never for a fixed time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator

DEADLINE = 60.0


def eventually[T](find: Callable[[], T | None], what: str, *, pause: float = 0.02) -> T:
    """Call the function until it returns something true, and return that; fail
    after the deadline.
    """
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        found = find()
        if found:
            return found
        time.sleep(pause)
    raise AssertionError(f"waited {DEADLINE:.0f} s in vain: {what}")


async def eventually_async[T](find: Callable[[], T | None], what: str) -> T:
    """Do the same as ``eventually`` without blocking the event loop."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        found = find()
        if found:
            return found
        await asyncio.sleep(0.005)
    raise AssertionError(f"waited {DEADLINE:.0f} s in vain: {what}")


def growing_times(first: float) -> Iterator[float]:
    """Yield seconds, each twice the last, for what is to run out of time until it does so behind
    the step that a test is about.

    On a busy machine a short time may be over before that step has begun.
    """
    seconds = first
    while seconds < DEADLINE:
        yield seconds
        seconds *= 2
    raise AssertionError(f"{DEADLINE:.0f} s were over before the step began")


def free_port() -> int:
    """Return a free port for a process that can't be handed a listener; no two
    processes of a run get the same.
    """
    while True:
        port = next(_PORTS)
        with contextlib.suppress(OSError), socket.socket() as held:
            held.bind(("127.0.0.1", port))
            return port


def _ports() -> Iterator[int]:
    """Return this process's ports (pytest-xdist says which of how many processes it
    is), from a random start.

    They are below those that the system gives to outgoing connections, one of which might take a
    port before it is used.
    """
    mine = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = range(10_000 + mine, 32_000, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    first = secrets.randbelow(len(ports))
    return itertools.cycle((*ports[first:], *ports[:first]))


_PORTS = _ports()


@contextlib.contextmanager
def nobody_listens() -> Iterator[str]:
    """Yield an address that refuses connections: its port is bound, but nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
