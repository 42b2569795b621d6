"""A file of SQLite in use, and what becomes of it meanwhile.

what happens                        until                          then
──────────────────────────────────  ─────────────────────────────  ─────────────────────────
the disk is full, or can't be read  something can be written       it goes on by itself
another process has it locked       something can be written; who  it goes on by itself
                                    writes asks once a second
the file, or its log, was deleted   it is there again, or the      what was in it is not lost
or replaced: what is written goes   proxy starts again             where it is put back
to a file that nobody finds again
the file is damaged                 the proxy starts again, when   a new file begins
                                    it was moved away

All of it is told to ``Health``, and raised as ``StoreError``.

One connection serves all of a mediator, and the next one's of the same state (``again``): SQLite throws away the pages it knows
whenever another connection has written, and what is in memory is the connection's.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from typing import Any

from claw_state.health import StateUnavailableError, Health
from claw_state.sqlite.schema import REMEDY, SHRINK, TABLES, check_integrity, open_database, describe_error
from claw_state.sqlite.wal import WriteAheadLog

_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_MOST_FREE = 4
"""Of so many pages one may be free: what turns leave, later ones take."""
_ELSEWHERE = "its file, or the log beside it, was deleted or replaced: put it back, or start the proxy again"


class Database:
    """One connection to it."""

    def __init__(self, file: str, schema: str = TABLES, health: Health | None = None) -> None:
        """``file``: a path, or empty for memory. Raises ``sqlite3.Error`` or ``OSError`` when it can't be opened, or is
        damaged: better now than in the middle of a turn.
        """
        self.file = file
        self.health = health or Health()
        self._db = open_database(file, schema)
        try:
            check_integrity(self._db)
            self._disk = WriteAheadLog(file) if file else None
        except sqlite3.Error:
            self._db.close()
            raise
        self._parts = (file, f"{file}-wal") if file else ()
        self._opened = self._known()
        self._users: set[Database] = {self}

    def again(self) -> Database:
        """The same for one more user, who closes it too."""
        other = copy(self)
        self._users.add(other)
        return other

    async def still(self) -> None:
        """Who writes, and can wait, waits here first."""
        if self._disk is not None:
            await self._disk.still()

    async def flushed(self) -> None:
        """What is written by now outlives a power cut. Raises ``StoreError``: then it may not."""
        if self._disk is not None:
            try:
                await self._disk.flushed()
            except OSError as error:
                raise self.health.failed(f"the log of the state can't be flushed: {error}") from error

    def write(self, statement: str, *values: object) -> int:
        """How many rows it changed. Raises ``StoreError``, and ``sqlite3.IntegrityError`` as it is."""
        self._unless_resting()
        return self.probe(statement, *values)

    def probe(self, statement: str, *values: object) -> int:
        """As ``write``, also behind a lock that was waited for in vain: everybody waits with us."""
        self._look()
        try:
            changed = self._db.execute(statement, values).rowcount
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise self._not_written(error) from error
        if changed:  # else nothing had to be written, which a full disk allows
            self._was_written(values)
        return changed

    @contextmanager
    def change(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """What is read and written by what is given is one change, or none. Raises ``StoreError``."""
        self._unless_resting()
        self._look()
        before = self._db.total_changes
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db.execute
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._not_written(error) from error
        if self._db.total_changes > before:
            self._was_written(())

    def read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Its rows. Raises ``StoreError``."""
        self._look()
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def shrink(self) -> None:
        """Where much of the file is free, a little of it goes back to the disk. Raises ``StoreError``."""
        ((free,),), ((pages,),) = self.read("PRAGMA freelist_count"), self.read("PRAGMA page_count")
        if free * _MOST_FREE > pages:
            self.read(SHRINK)
            if self._disk is not None:
                self._disk.carry()  # only then is the file shorter

    def close(self) -> None:
        """Once more does nothing. It is closed when its last user has closed it."""
        self._users.discard(self)
        if self._users:
            return
        if self._disk is not None:
            self._disk.close()
        self._db.close()

    def _unless_resting(self) -> None:
        if self.health.resting:
            raise StateUnavailableError("another process has locked it")

    def _was_written(self, values: tuple[object, ...]) -> None:
        self.health.written()
        if self._disk is not None:
            self._disk.written(sum(len(value) for value in values if isinstance(value, bytes)))

    def _look(self) -> None:
        """Takes microseconds."""
        self.health.check()
        if self._known() != self._opened:
            raise self.health.failed(_ELSEWHERE)

    def _known(self) -> list[tuple[int, int]]:
        """The files that have the names now."""
        try:
            return [(found.st_dev, found.st_ino) for found in map(os.stat, self._parts)]
        except OSError:
            return []

    def _not_written(self, error: sqlite3.Error) -> StateUnavailableError:
        if _code(error) in _LOCKED:
            self.health.rest()
        return self._failed(error)

    def _failed(self, error: sqlite3.Error) -> StateUnavailableError:
        if _code(error) in _DAMAGED:
            return self.health.over(f"{error}; {REMEDY}")
        return self.health.failed(describe_error(error))


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
