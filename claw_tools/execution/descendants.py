"""The processes of a call: their memory, and their end.

Part of the launcher: the standard library alone.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Final

_KIB: Final = 1 << 10
_PAUSE_SECONDS: Final = 0.001
_RESIDENT: Final = (b"RssAnon:", b"RssShmem:")
_PROPORTIONAL: Final = (b"Pss_Anon:", b"Pss_Shmem:")


def descendants(process: int) -> Iterator[int]:
    """Yield the processes below a process, as the kernel lists children."""
    waiting = [process]
    while waiting:
        children = _children(waiting.pop())
        yield from children
        waiting += children


def _children(process: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{process}/task"):
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{process}/task/{task}/children", "rb") as file,
            ):
                found += map(int, file.read().split())
    return found


def uses_more_than(limit: int, process: int) -> bool:
    """Return True if a process and those below it hold more memory than so many bytes.

    Memory that several processes share is counted once for each at first, which is quick; only if
    that is too much, each counts its share.
    """
    processes = [process, *descendants(process)]
    upper_bound = sum(_memory(number, "status", _RESIDENT) for number in processes)
    if upper_bound <= limit:
        return False

    exact = sum(_memory(number, "smaps_rollup", _PROPORTIONAL) for number in processes)
    return exact > limit


def _memory(process: int, table: str, names: tuple[bytes, ...]) -> int:
    """Return the sum of these lines of a table in /proc, in bytes."""
    try:
        with open(f"/proc/{process}/{table}", "rb") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith(names)) * _KIB
    except PermissionError:
        if table == "status":
            return 0
        return _memory(process, "status", _RESIDENT)
    except OSError:
        return 0  # It has ended


def end_descendants(but: frozenset[int] = frozenset()) -> None:
    """Kill every process below this one, and wait for it.

    ``but`` are children that stay, with the processes below them. This process is a subreaper.
    """
    while True:
        # All are stopped before any is killed, so that a bomb can't fork faster than it dies
        stopped: set[int] = set()
        while running := set(_all_but(but)) - stopped:
            for process in running:
                _send(process, signal.SIGSTOP)
            stopped |= running

        for process in stopped:
            _send(process, signal.SIGKILL)
        if _reap(but):
            time.sleep(_PAUSE_SECONDS)
        elif not stopped:
            return


def _all_but(but: frozenset[int]) -> Iterator[int]:
    for child in _children(os.getpid()):
        if child not in but:
            yield child
            yield from descendants(child)


def _reap(but: frozenset[int]) -> bool:
    """Wait for the children that have ended; return True if others are left."""
    is_left = False
    for child in _children(os.getpid()):
        if child not in but:
            with contextlib.suppress(ChildProcessError):
                is_left |= os.waitpid(child, os.WNOHANG)[0] == 0
    return is_left


def _send(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
