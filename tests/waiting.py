"""Waiting for facts, with a deadline, and never for a time."""

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
    """Looks again and again until there is something, or the deadline has passed."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        found = find()
        if found:
            return found
        time.sleep(pause)
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
    """A port for a process that can't be handed a listener. None is given twice in a run, in whichever of its processes."""
    while True:
        port = next(_PORTS)
        with contextlib.suppress(OSError), socket.socket() as held:
            held.bind(("127.0.0.1", port))
            return port


def _ports() -> Iterator[int]:
    """Those of this process (pytest-xdist tells which of how many it is), from a place of its own beside other runs.

    They are below those that the system gives to outgoing connections, of which one might take a port before it is used.
    """
    mine = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = range(10_000 + mine, 32_000, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    first = secrets.randbelow(len(ports))
    return itertools.cycle((*ports[first:], *ports[:first]))


_PORTS = _ports()


@contextlib.contextmanager
def nobody_listens() -> Iterator[str]:
    """An address at which connections are refused: it is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
