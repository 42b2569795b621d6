"""What a file of SQLite keeps, told and forgotten, also while a proxy runs on it.

there is                reading                                             so that
──────────────────────  ──────────────────────────────────────────────────  ───────────────────────────────────
a log and its index     reads as every process does                         a proxy that runs goes on meanwhile
a log without an index  has an index of its own: nobody else is there, or   no index is made
                        there would be one
no log                  takes the file as it is                             neither is made
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from claw_state.inventory import AgentState, DeletionCounts, Inventory, RoundStats, SpendingTotal, current_state, count_states, is_deletable
from claw_state.lease import Owner
from claw_state.sqlite.schema import low_priority_transaction, vacuum_and_truncate_log, describe_error, check_version
from claw_state.url import File, StoreError

_PATIENCE_SECONDS = 5.0
"""How long another process's lock is waited for: nobody waits with us here."""
_TRIES = 5
_OURS = {"kept", "turns", "steps", "spending"}
_ROUNDS = """
SELECT CAST(agent AS TEXT), COUNT(*) FILTER (WHERE LENGTH(messages) > 1), SUM(LENGTH(messages)),
    CAST(MIN(used) FILTER (WHERE LENGTH(messages) > 1) AS REAL), CAST(MAX(used) FILTER (WHERE LENGTH(messages) > 1) AS REAL),
    COUNT(*) FILTER (WHERE LENGTH(messages) <= 1)
FROM kept GROUP BY agent
"""
_TURNS = "SELECT CAST(agent AS TEXT), CAST(state AS TEXT), CAST(owner AS TEXT), CAST(seen AS REAL) FROM turns"
_SPENT = """
SELECT CAST(agent AS TEXT), CAST(SUM(requests) AS INTEGER), CAST(SUM(cost) AS REAL), CAST(SUM(unknown) AS INTEGER)
FROM spending GROUP BY agent
"""
_ROUNDS_OF = "SELECT id FROM kept WHERE agent = ? AND LENGTH(messages) > 1"
_MARKS_OF = "SELECT id FROM kept WHERE agent = ? AND LENGTH(messages) <= 1"
_TURNS_OF = "SELECT turn FROM turns WHERE agent = ?"
_TURN = "SELECT CAST(state AS TEXT), CAST(owner AS TEXT), CAST(seen AS REAL) FROM turns WHERE turn = ?"


class _Way(NamedTuple):
    """How the file is opened, and what must still be so when it was read."""

    options: str
    unchanged: int = 0


class SqliteInventory:
    """A ``Kept`` in a file."""

    def __init__(self, place: File, clock: Callable[[], float] = time.time) -> None:
        self._shown = place.shown
        self._file = Path(place.path)
        self._clock = clock
        self._me = Owner.current().with_file(place.path)

    def inventory(self) -> Inventory:
        with self._told():
            for _ in range(_TRIES):
                way = self._way()
                try:
                    with closing(self._open(way.options, os.R_OK)) as database:
                        found = self._read(database)
                except sqlite3.Error:
                    if way == self._way():
                        raise
                    continue
                if way == self._way():  # else a proxy has begun or ended meanwhile
                    return found
        raise StoreError(f"the state {self._shown} is opened and closed again and again: try again")

    def forget(self, agent_id: str) -> DeletionCounts | None:
        with self._told(), closing(self._open("mode=rw", os.R_OK | os.W_OK)) as database:
            tables = self._tables(database)
            database.execute("PRAGMA secure_delete=ON")  # what is forgotten can't be read from the disk either
            rounds = _ids(database, _ROUNDS_OF, agent_id, "kept" in tables)
            marks = _ids(database, _MARKS_OF, agent_id, "kept" in tables)
            turns = _ids(database, _TURNS_OF, agent_id, "turns" in tables)
            if not rounds and not marks and not turns:
                return None
            gone, unmarked = (_in_parts(database, ids, self._forget_round) for ids in (rounds, marks))
            ended = _in_parts(database, turns, self._forget_turn)
            left = _ids(database, _TURNS_OF, agent_id, "turns" in tables)
            return DeletionCounts(gone, unmarked, ended, len(left), lingers=not vacuum_and_truncate_log(database))

    def _way(self) -> _Way:
        log, index = (Path(f"{self._file}{part}") for part in ("-wal", "-shm"))
        if not log.exists():
            return _Way("mode=ro&immutable=1", self._file.stat().st_mtime_ns)
        return _Way("mode=ro" if index.exists() else "mode=ro&vfs=unix-none")

    def _open(self, options: str, wanted: int) -> sqlite3.Connection:
        """The file is never opened but by SQLite: closing it would take its locks from it, where a process has both."""
        if not stat.S_ISREG(self._file.stat().st_mode):
            raise StoreError(f"{self._shown} is no file: name the one that the proxy's CLAW_STATE names")
        if not os.access(self._file, wanted, effective_ids=os.access in os.supports_effective_ids):
            raise PermissionError
        uri = f"{self._file.absolute().as_uri()}?{options}"
        database = sqlite3.connect(uri, uri=True, autocommit=True, timeout=_PATIENCE_SECONDS)
        database.text_factory = lambda text: text.decode(errors="replace")
        if "unix-none" in options:
            database.execute("PRAGMA locking_mode=EXCLUSIVE")
        return database

    def _read(self, database: sqlite3.Connection) -> Inventory:
        database.execute("BEGIN")
        tables = self._tables(database)
        rounds = {agent: RoundStats(*row) for agent, *row in _rows(database, _ROUNDS, "kept" in tables)}
        spent = {agent: SpendingTotal(*row) for agent, *row in _rows(database, _SPENT, "spending" in tables)}
        turns: dict[str, list[str]] = {}
        for agent, state, owner, seen in _rows(database, _TURNS, "turns" in tables):
            turns.setdefault(agent, []).append(self._as_it_is(state, owner, seen))
        agents = tuple(
            AgentState(agent, rounds.get(agent, RoundStats()), count_states(turns.get(agent, ())), spent.get(agent))
            for agent in sorted(rounds.keys() | turns.keys() | spent.keys())
        )
        log = Path(f"{self._file}-wal")
        size, log_size = self._file.stat().st_size, log.stat().st_size if log.exists() else 0
        return Inventory(self._shown, "SQLite", check_version(database), agents, size, log_size)

    def _tables(self, database: sqlite3.Connection) -> set[str]:
        check_version(database)
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and not tables & _OURS:
            raise StoreError(
                f"{self._shown} is a database of something else: name the file that the proxy's CLAW_STATE names"
            )
        return tables

    def _as_it_is(self, state: str, owner: str, seen: float) -> str:
        return current_state(self._me, state, owner, self._clock() - seen)

    def _forget_round(self, database: sqlite3.Connection, number: int) -> int:
        return database.execute("DELETE FROM kept WHERE id = ?", (number,)).rowcount

    def _forget_turn(self, database: sqlite3.Connection, turn: str) -> int:
        row = database.execute(_TURN, (turn,)).fetchone()
        if row is None or not is_deletable(self._as_it_is(*row)):
            return 0
        database.execute(
            "DELETE FROM steps WHERE turn = ?", (turn,)
        )  # a file that an earlier claw has written has no trigger
        return database.execute("DELETE FROM turns WHERE turn = ?", (turn,)).rowcount

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What can go wrong, as one line."""
        shown = self._shown
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(
                f"there is no state at {shown}: the proxy makes it when it starts with CLAW_STATE={shown}"
            ) from None
        except PermissionError:
            raise StoreError(f"this user has no right to the state {shown}: run this as the proxy's user") from None
        except OSError as error:
            raise StoreError(f"the state {shown} can't be opened: {error.strerror}") from None
        except sqlite3.Error as error:
            locked = getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            why = "another process has locked it for too long; try again" if locked else describe_error(error)
            raise StoreError(f"the state {shown} can't be used: {why}") from None


def _rows(database: sqlite3.Connection, query: str, exists: bool) -> Iterable[tuple[Any, ...]]:
    return database.execute(query) if exists else ()


def _ids(database: sqlite3.Connection, query: str, agent_id: str, exists: bool) -> list[Any]:
    return [row[0] for row in database.execute(query, (agent_id,))] if exists else []


def _in_parts[T](database: sqlite3.Connection, ids: list[T], forget: Callable[[sqlite3.Connection, T], int]) -> int:
    """How many were forgotten."""
    gone, waiting = 0, deque(ids)
    while waiting:
        with low_priority_transaction(database) as until:
            gone += forget(database, waiting.popleft())
            while waiting and time.monotonic() < until:
                gone += forget(database, waiting.popleft())
    return gone
