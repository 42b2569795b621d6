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
_PAUSE = 0.001


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

    What several share is counted once for each at first, which is quick, and by its share only
    where that is too much.
    """
    processes = [process, *descendants(process)]
    if sum(_memory(each, "status", (b"RssAnon:", b"RssShmem:")) for each in processes) <= limit:
        return False
    return (
        sum(_memory(each, "smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:")) for each in processes)
        > limit
    )


def _memory(process: int, table: str, names: tuple[bytes, ...]) -> int:
    try:
        with open(f"/proc/{process}/{table}", "rb") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith(names)) * _KIB
    except PermissionError:
        return _memory(process, "status", (b"RssAnon:", b"RssShmem:")) if table != "status" else 0
    except OSError:
        return 0  # It has ended


def end_descendants(but: frozenset[int] = frozenset()) -> None:
    """Kill every process below this one, and wait for it; ``but`` are children that
    stay, with what is below them.

    This process is a subreaper. Processes are stopped before any is killed, so that a bomb can't
    fork faster than it dies.
    """
    while True:
        stopped: set[int] = set()
        while found := set(_all_but(but)) - stopped:
            for each in found:
                _send(each, signal.SIGSTOP)
            stopped |= found
        for each in stopped:
            _send(each, signal.SIGKILL)
        if _reap(but):
            time.sleep(_PAUSE)
        elif not stopped:
            return


def _all_but(but: frozenset[int]) -> Iterator[int]:
    for child in _children(os.getpid()):
        if child not in but:
            yield child
            yield from descendants(child)


def _reap(but: frozenset[int]) -> bool:
    """Take leave of the children that have ended; return True if there are others."""
    is_left = False
    for child in _children(os.getpid()):
        if child not in but:
            with contextlib.suppress(ChildProcessError):
                is_left |= os.waitpid(child, os.WNOHANG)[0] == 0
    return is_left


def _send(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
