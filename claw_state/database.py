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
"""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from claw_state.health import GoneError, Health
from claw_state.sqlite import REMEDY, check, opened, reason

_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_ELSEWHERE = "its file, or the log beside it, was deleted or replaced: put it back, or start the proxy again"


class Database:
    """One connection to it."""

    def __init__(self, file: str, schema: str, health: Health | None = None) -> None:
        """``file``: a path, or empty for memory. Raises ``sqlite3.Error`` or ``OSError`` when it can't be opened."""
        self.health = health or Health()
        self._db = opened(file, schema)
        self._parts = (file, f"{file}-wal") if file else ()
        self._opened = self._known()

    def check(self) -> None:
        """Raises ``sqlite3.DatabaseError`` for a file that is damaged: better now than in the middle of a turn."""
        check(self._db)

    def write(self, statement: str, *values: object) -> int:
        """How many rows it changed. Raises ``StoreError``, and ``sqlite3.IntegrityError`` as it is."""
        if self.health.resting:
            raise GoneError("another process has locked it")
        return self.probe(statement, *values)

    def probe(self, statement: str, *values: object) -> int:
        """As ``write``, also behind a lock that was waited for in vain: everybody waits with us."""
        self._look()
        try:
            changed = self._db.execute(statement, values).rowcount
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            if _code(error) in _LOCKED:
                self.health.rest()
            raise self._failed(error) from error
        if changed:  # else nothing had to be written, which a full disk allows
            self.health.written()
        return changed

    def read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Its rows. Raises ``StoreError``."""
        self._look()
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def close(self) -> None:
        self._db.close()

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

    def _failed(self, error: sqlite3.Error) -> GoneError:
        if _code(error) in _DAMAGED:
            return self.health.over(f"{error}; {REMEDY}")
        return self.health.failed(reason(error))


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
