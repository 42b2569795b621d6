"""The time of a state in a SQLite file, which goes on evenly when somebody sets the
machine's clock.

Rules. All users of a file are on one machine (SQLite's write-ahead log requires it), and a machine
has a clock that nobody can set: the time since it was started, which counts its sleep too. The
first process that opens the file after a start of the machine stores how far the wall clock is
ahead of that one; from then on the sum of both is the time of the file, for every process. Where
the system has no such clock, the wall clock is the time.
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
        """Return None where the system has no such clock."""
        try:
            number = time.CLOCK_BOOTTIME
            boot = f"{_BOOT_ID.read_text(encoding='ascii').strip()} {_TIME_NAMESPACE.readlink()}"
        except (AttributeError, OSError):
            return None
        return cls(boot, lambda: time.clock_gettime(number))


def open_clock(database: sqlite3.Connection, wall: Clock, uptime: Uptime | None) -> Clock:
    """Return the time of the file in seconds since 1970; store what it is made of if nobody has
    since the machine's start.

    It never begins before the latest time in the file: a machine may start with a clock that stands
    at 1970.
    """
    if uptime is None:
        return wall

    clock = find_clock(database, uptime)
    if clock is not None:
        return clock

    (latest,) = database.execute(_LATEST).fetchone()
    ahead = max(wall(), latest or 0.0) - uptime.clock()
    with suppress(
        sqlite3.OperationalError
    ):  # another process has the lock: the next one that opens the file stores it
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
