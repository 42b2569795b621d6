"""One open SQLite file, and the ways in which it can fail.

event                               unusable until                 recovery
──────────────────────────────────  ─────────────────────────────  ─────────────────────────
the disk is full, or unreadable     something can be written       by itself
another process locks it for long   something can be written;      by itself
                                    writers try once a second
the file, or its log, was deleted   it is there again, or the      putting it back loses
or replaced: writes would go to     proxy restarts                 nothing
a file that nobody finds again
the file is damaged                 the proxy restarts, after it   a new file begins
                                    was moved away

Every failure is reported to ``Health`` and raised as ``StoreError``.

Other processes write to the file, too, and lock it for each write. Writers wait for that lock
without blocking the event loop, and readers never wait.

All parts of a mediator share one connection, and so does the next mediator on the same state
(``share``). For SQLite drops its page cache whenever another connection has written, and a state in
memory belongs to its connection.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any

from claw_state.health import Health, StateUnavailableError
from claw_state.sqlite.clock import Clock, Uptime, open_clock
from claw_state.sqlite.schema import (
    REMEDY,
    TABLES,
    VACUUM_STEP,
    check_integrity,
    describe_error,
    open_database,
)
from claw_state.sqlite.wal import WriteAheadLog

_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCK_SECONDS = 1.0  # The longest wait of a writer for another process's lock
_MAX_PAUSE_SECONDS = 0.004  # The longest pause between two tries; the first is a quarter of it
_PAGES_PER_FREE_PAGE = 4  # One page in four may stay free, for later turns
type Execute = Callable[..., sqlite3.Cursor]
_REPLACED = (
    "its file, or the log beside it, was deleted or replaced: put it back, or start the proxy again"
)


class Database:
    """One connection to a file, or to a database in memory."""

    def __init__(self, file: str, schema: str = TABLES, health: Health | None = None) -> None:
        """Open ``file``, a path, or a database in memory if it is empty.

        Raise ``sqlite3.Error`` or ``OSError`` if it can't be opened or is damaged: better now than
        in the middle of a turn.
        """
        self.file = file
        self.health = health or Health()
        self._db = open_database(file, schema)
        try:
            check_integrity(self._db)
            self._log = WriteAheadLog(file) if file else None
        except sqlite3.Error:
            self._db.close()
            raise
        self._paths = (file, f"{file}-wal") if file else ()
        self._opened_files = self._current_files()
        self._users: set[Database] = {self}

    def share(self) -> Database:
        """Return the same connection for one more user, who must close it, too."""
        other = copy(self)
        self._users.add(other)
        return other

    def open_clock(self, wall: Clock = time.time) -> Clock:
        """Return the time of the file (``claw_state/sqlite/clock.py``). Raise ``sqlite3.Error``."""
        return open_clock(self._db, wall, Uptime.of_machine())

    async def flush(self) -> None:
        """Flush all previous writes to the disk.

        Raise ``StoreError`` if they may not survive a power cut.
        """
        if self._log is not None:
            try:
                await self._log.flush()
            except OSError as error:
                raise self.health.fail(f"the log of the state can't be flushed: {error}") from error

    async def write(self, statement: str, *values: object) -> int:
        """Run a statement and return the number of changed rows.

        Raise ``StoreError``; an ``sqlite3.IntegrityError`` passes unchanged.
        """
        return await self._when_free(lambda: self._execute(statement, values))

    async def probe(self, statement: str, *values: object) -> int:
        """Run ``write`` even while other writers back off from a lock."""
        return await self._when_free(lambda: self._execute(statement, values), backs_off=False)

    def try_transact(self, work: Callable[[Execute], None]) -> bool:
        """Do ``transact`` without waiting.

        Return False, and change nothing, if another process has the lock.
        """
        try:
            self._attempt(lambda: self._transact(work), backs_off=True)
        except sqlite3.OperationalError:
            return False
        return True

    async def transact[T](self, work: Callable[[Execute], T]) -> T:
        """Return the result of ``work(execute)``, in a transaction that is rolled back if it fails.

        Raise ``StoreError``.
        """
        return await self._when_free(lambda: self._transact(work))

    async def _when_free[T](self, work: Callable[[], T], *, backs_off: bool = True) -> T:
        """Return the result of ``work``, which writes, as soon as no other process has the lock."""
        waited = 0.0  # The sum of the pauses: the time of a busy event loop does not count
        pause = _MAX_PAUSE_SECONDS / 4
        while True:
            try:
                return self._attempt(work, backs_off=backs_off)
            except sqlite3.OperationalError as error:
                if waited >= _LOCK_SECONDS:
                    self.health.back_off()
                    raise self._failure(error) from error

            await asyncio.sleep(pause)
            waited += pause
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    def _attempt[T](self, work: Callable[[], T], *, backs_off: bool) -> T:
        """Return the result of ``work``.

        Raise ``sqlite3.OperationalError`` only if another process has the lock.
        """
        if backs_off and self.health.is_backing_off:
            raise StateUnavailableError("another process has locked it")

        self._check_file()
        try:
            return work()
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            if _code(error) in _LOCKED:
                raise
            raise self._failure(error) from error

    def _execute(self, statement: str, values: tuple[object, ...]) -> int:
        changed = self._db.execute(statement, values).rowcount
        if changed:  # else nothing was written, which a full disk allows
            self._record_write(values)
        return changed

    def _transact[T](self, work: Callable[[Execute], T]) -> T:
        before = self._db.total_changes
        self._db.execute("BEGIN IMMEDIATE")
        try:
            result = work(self._db.execute)
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise
        if self._db.total_changes > before:
            self._record_write(())
        return result

    def read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Raise ``StoreError``."""
        self.health.check()
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def shrink(self) -> None:
        """Return some pages to the disk if many are free. Raise ``StoreError``."""
        ((free,),) = self.read("PRAGMA freelist_count")
        ((pages,),) = self.read("PRAGMA page_count")
        if free * _PAGES_PER_FREE_PAGE <= pages:
            return

        try:
            self._db.execute(VACUUM_STEP).fetchall()
        except sqlite3.Error as error:
            if _code(error) in _LOCKED:
                return  # Somebody else writes now: the next call takes the pages.
            raise self._failure(error) from error

        if self._log is not None:
            self._log.checkpoint()  # only a checkpoint shortens the file

    def close(self) -> None:
        """Close the connection after the last of its users has called this.

        A second call by the same user does nothing.
        """
        self._users.discard(self)
        if self._users:
            return

        if self._log is not None:
            self._log.close()
        self._db.close()

    def _record_write(self, values: tuple[object, ...]) -> None:
        self.health.record_write()
        if self._log is not None:
            self._log.record_write(sum(len(value) for value in values if isinstance(value, bytes)))

    def _check_file(self) -> None:
        """Raise ``StoreError`` if the paths no longer name the files that were opened.

        This takes microseconds.
        """
        self.health.check()
        if self._current_files() != self._opened_files:
            raise self.health.fail(_REPLACED)

    def _current_files(self) -> list[tuple[int, int]]:
        try:
            return [(status.st_dev, status.st_ino) for status in map(os.stat, self._paths)]
        except OSError:
            return []

    def _failure(self, error: sqlite3.Error) -> StateUnavailableError:
        if _code(error) in _DAMAGED:
            return self.health.fail_permanently(f"{error}; {REMEDY}")
        return self.health.fail(describe_error(error))


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
