"""The time of a state in a SQLite file, which does not jump when somebody sets the machine's clock.

All users of a file are on one machine, because SQLite's write-ahead log requires it. A machine has
a clock that nobody can set: the time since it was started, with its sleep. The first process that
opens the file after a start of the machine stores how far the wall clock is ahead of that clock.
From then on the sum of both is the time of the file, for every process. If the system has no such
clock, the wall clock is the time.
"""

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

type Clock = Callable[[], float]
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TIME_NAMESPACE = Path("/proc/self/ns/time")  # In another one the time since the start differs
_READ = "SELECT ahead FROM clock WHERE boot = ? AND typeof(ahead) = 'real'"
_LATEST = "SELECT MAX(seen) FROM turns WHERE typeof(seen) = 'real'"


class Uptime(NamedTuple):
    """The time since the machine was started, and the name of that start."""

    boot: str
    clock: Clock

    @classmethod
    def of_machine(cls) -> "Uptime | None":
        """Return the uptime of this machine; None if the system has no such clock."""
        try:
            number = time.CLOCK_BOOTTIME
            boot = f"{_BOOT_ID.read_text(encoding='ascii').strip()} {_TIME_NAMESPACE.readlink()}"
        except (AttributeError, OSError):
            return None
        return cls(boot, lambda: time.clock_gettime(number))


def open_clock(database: sqlite3.Connection, wall: Clock, uptime: Uptime | None) -> Clock:
    """Return the time of the file in seconds since 1970.

    Store how far the wall clock is ahead, if no process has since the machine's start. The time
    never begins before the latest one in the file: some machines start with a clock at 1970.
    """
    if uptime is None:
        return wall

    clock = find_clock(database, uptime)
    if clock is not None:
        return clock

    (latest,) = database.execute(_LATEST).fetchone()
    ahead = max(wall(), latest or 0.0) - uptime.clock()
    # If another process has the lock, the next one that opens the file stores it.
    with suppress(sqlite3.OperationalError):
        database.execute("INSERT OR IGNORE INTO clock VALUES (?, ?)", (uptime.boot, ahead))
    return find_clock(database, uptime) or (lambda: ahead + uptime.clock())


def find_clock(database: sqlite3.Connection, uptime: Uptime | None) -> Clock | None:
    """Return the time of the file, if a process has stored it since the machine was started."""
    if uptime is None:
        return None

    row = database.execute(_READ, (uptime.boot,)).fetchone()
    if row is None:
        return None

    ahead = float(row[0])
    return lambda: ahead + uptime.clock()
