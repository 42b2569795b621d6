"""The inventory of a SQLite file, also while a proxy uses it.

next to the file        how it is read          so that
a log and its index     like any process        a running proxy goes on meanwhile
a log without an index  with an index in        no index is created (no other process uses
                        memory                  the file)
no log                  as an immutable file    neither log nor index is created
"""

import os
import sqlite3
import stat
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from claw_state.inventory import (
    AgentState,
    DeletionCounts,
    Inventory,
    RoundStats,
    SpendingTotal,
    count_states,
    current_state,
    is_deletable,
)
from claw_state.lease import LeaseOwner
from claw_state.sqlite.clock import Uptime, find_clock
from claw_state.sqlite.schema import (
    check_version,
    describe_error,
    low_priority_transaction,
    vacuum_and_truncate_log,
)
from claw_state.url import File, StoreError

_PATIENCE_SECONDS = 5.0  # The longest wait for another process's lock
_TRIES = 5
_OURS = {"kept", "turns", "steps", "spending", "reservations", "owned", "provider_objects"}
_ROUNDS = """
SELECT CAST(agent AS TEXT), COUNT(*) FILTER (WHERE LENGTH(messages) > 1), SUM(LENGTH(messages)),
    CAST(MIN(used) FILTER (WHERE LENGTH(messages) > 1) AS REAL),
    CAST(MAX(used) FILTER (WHERE LENGTH(messages) > 1) AS REAL),
    COUNT(*) FILTER (WHERE LENGTH(messages) <= 1)
FROM kept GROUP BY agent
"""
_TURNS = (
    "SELECT CAST(agent AS TEXT), CAST(state AS TEXT), CAST(owner AS TEXT), CAST(seen AS REAL) "
    "FROM turns"
)
_SPENDING = """
SELECT CAST(agent AS TEXT), CAST(SUM(requests) AS INTEGER), CAST(SUM(cost) AS REAL),
    CAST(SUM(unknown) AS INTEGER)
FROM spending GROUP BY agent
"""
_OWNED = "SELECT CAST(agent AS TEXT), COUNT(*) FROM owned GROUP BY agent"
_OBJECTS = "SELECT CAST(agent AS TEXT), COUNT(*) FROM provider_objects GROUP BY agent"
_ROUND_IDS = "SELECT id FROM kept WHERE agent = ? AND LENGTH(messages) > 1"
_MARK_IDS = "SELECT id FROM kept WHERE agent = ? AND LENGTH(messages) <= 1"
_OWNED_IDS = "SELECT agent, id FROM owned WHERE agent = ?"
_OBJECT_NAMES = "SELECT agent, kind, id FROM provider_objects WHERE agent = ?"
_TURN_IDS = "SELECT turn FROM turns WHERE agent = ?"
_TURN = (
    "SELECT CAST(state AS TEXT), CAST(owner AS TEXT), CAST(seen AS REAL) FROM turns WHERE turn = ?"
)


class _OpenMode(NamedTuple):
    """The way to open the file. If it differs after reading, the file is read again."""

    options: str
    modified_ns: int = 0
    """The modification time, of a file without a log."""


class SqliteInventory:
    """A ``StateInventory`` of a SQLite file."""

    def __init__(self, place: File, clock: Callable[[], float] | None = None) -> None:
        """``clock`` replaces the time of the file in tests."""
        self._shown = place.shown
        self._file = Path(place.path)
        self._fixed_clock = clock
        self._clock = clock or time.time
        self._me = LeaseOwner.current().with_file(place.path)

    def inventory(self) -> Inventory:
        with self._errors():
            for _ in range(_TRIES):
                mode = self._open_mode()
                try:
                    with closing(self._open(mode.options, os.R_OK)) as database:
                        inventory = self._read(database)
                except sqlite3.Error:
                    if mode == self._open_mode():
                        raise
                    continue
                if mode == self._open_mode():  # else a proxy has started or ended meanwhile
                    return inventory

        raise StoreError(f"the state {self._shown} is opened and closed again and again: try again")

    def forget(self, agent_id: str) -> DeletionCounts | None:
        with self._errors(), closing(self._open("mode=rw", os.R_OK | os.W_OK)) as database:
            tables = self._tables(database)
            database.execute("PRAGMA secure_delete=ON")  # overwrites the deleted data on the disk

            rounds = _ids(database, _ROUND_IDS, agent_id, "kept" in tables)
            marks = _ids(database, _MARK_IDS, agent_id, "kept" in tables)
            turns = _ids(database, _TURN_IDS, agent_id, "turns" in tables)
            owned = [*_rows(database, _OWNED_IDS, "owned" in tables, agent_id)]
            objects = [*_rows(database, _OBJECT_NAMES, "provider_objects" in tables, agent_id)]
            if not any((rounds, marks, turns, owned, objects)):
                return None

            round_count = _delete_in_parts(database, rounds, self._delete_round)
            mark_count = _delete_in_parts(database, marks, self._delete_round)
            turn_count = _delete_in_parts(database, turns, self._delete_turn)
            owned_count = _delete_in_parts(database, owned, _delete_owned)
            owned_count += _delete_in_parts(database, objects, _delete_object)
            remaining_turns = _ids(database, _TURN_IDS, agent_id, "turns" in tables)
            is_log_truncated = vacuum_and_truncate_log(database)
            return DeletionCounts(
                rounds=round_count,
                marks=mark_count,
                turns=turn_count,
                running=len(remaining_turns),
                owned=owned_count,
                lingers=not is_log_truncated,
            )

    def _open_mode(self) -> _OpenMode:
        """Return how to open the file now; the table at the top of this module has the reasons."""
        log = Path(f"{self._file}-wal")
        index = Path(f"{self._file}-shm")
        if not log.exists():
            return _OpenMode("mode=ro&immutable=1", self._file.stat().st_mtime_ns)
        return _OpenMode("mode=ro" if index.exists() else "mode=ro&vfs=unix-none")

    def _open(self, options: str, access: int) -> sqlite3.Connection:
        """Open the file through SQLite.

        Nothing else may open it: closing another descriptor would release SQLite's locks in this
        process.
        """
        if not stat.S_ISREG(self._file.stat().st_mode):
            raise StoreError(
                f"{self._shown} is not a file: name the one that the proxy's CLAW_STATE names"
            )
        if not os.access(self._file, access, effective_ids=os.access in os.supports_effective_ids):
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
        rounds: dict[str, RoundStats] = {}
        for agent, *stats in _rows(database, _ROUNDS, "kept" in tables):
            rounds[agent] = RoundStats(*stats)

        spent: dict[str, SpendingTotal] = {}
        for agent, *total in _rows(database, _SPENDING, "spending" in tables):
            spent[agent] = SpendingTotal(*total)

        owned = Counter[str](dict(_rows(database, _OWNED, "owned" in tables)))
        owned.update(dict(_rows(database, _OBJECTS, "provider_objects" in tables)))

        turns: dict[str, list[str]] = {}
        for agent, state, owner, seen in _rows(database, _TURNS, "turns" in tables):
            turns.setdefault(agent, []).append(self._state(state, owner, seen))

        agents = [
            AgentState(
                agent=agent,
                rounds=rounds.get(agent, RoundStats()),
                turns=count_states(turns.get(agent, ())),
                spent=spent.get(agent),
                owned=owned[agent],
            )
            for agent in sorted(rounds.keys() | turns.keys() | spent.keys() | owned.keys())
        ]
        log = Path(f"{self._file}-wal")
        return Inventory(
            place=self._shown,
            store="SQLite",
            schema=check_version(database),
            agents=tuple(agents),
            size=self._file.stat().st_size,
            log=log.stat().st_size if log.exists() else 0,
        )

    def _tables(self, database: sqlite3.Connection) -> set[str]:
        """Return the names of the tables, and take the time of the file from them.

        A file of an older version may lack some. Raise ``StoreError`` if it is no state.
        """
        check_version(database)
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = {name for (name,) in names}
        if tables and not tables & _OURS:
            raise StoreError(
                f"{self._shown} is a database of something else: name the file that the "
                "proxy's CLAW_STATE names"
            )

        if self._fixed_clock is None and "clock" in tables:
            self._clock = find_clock(database, Uptime.of_machine()) or time.time
        return tables

    def _state(self, state: str, owner: str, seen: float) -> str:
        return current_state(self._me, state, owner, self._clock() - seen)

    def _delete_round(self, database: sqlite3.Connection, number: int) -> int:
        return database.execute("DELETE FROM kept WHERE id = ?", (number,)).rowcount

    def _delete_turn(self, database: sqlite3.Connection, turn: str) -> int:
        row = database.execute(_TURN, (turn,)).fetchone()
        if row is None or not is_deletable(self._state(*row)):
            return 0

        # A file of an old version has no trigger that deletes the steps with their turn.
        database.execute("DELETE FROM steps WHERE turn = ?", (turn,))
        return database.execute("DELETE FROM turns WHERE turn = ?", (turn,)).rowcount

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn every error into a ``StoreError`` with one line."""
        shown = self._shown
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(
                f"there is no state at {shown}: the proxy makes it when it starts with "
                f"CLAW_STATE={shown}"
            ) from None
        except PermissionError:
            raise StoreError(
                f"this user has no access to the state {shown}: run this as the proxy's user"
            ) from None
        except OSError as error:
            raise StoreError(f"the state {shown} can't be opened: {error.strerror}") from None
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                why = "another process has locked it for too long; try again"
            else:
                why = describe_error(error)
            raise StoreError(f"the state {shown} can't be used: {why}") from None


def _rows(
    database: sqlite3.Connection, query: str, exists: bool, *about: str
) -> Iterable[tuple[Any, ...]]:
    return database.execute(query, about) if exists else ()


def _ids(database: sqlite3.Connection, query: str, agent_id: str, exists: bool) -> list[Any]:
    return [row[0] for row in _rows(database, query, exists, agent_id)]


def _delete_owned(database: sqlite3.Connection, place: tuple[str, str]) -> int:
    return database.execute("DELETE FROM owned WHERE agent = ? AND id = ?", place).rowcount


def _delete_object(database: sqlite3.Connection, place: tuple[str, str, str]) -> int:
    return database.execute(
        "DELETE FROM provider_objects WHERE agent = ? AND kind = ? AND id = ?", place
    ).rowcount


def _delete_in_parts[T](
    database: sqlite3.Connection, ids: list[T], delete: Callable[[sqlite3.Connection, T], int]
) -> int:
    """Delete entries in short transactions, so that a proxy can write in between.

    Return how many were deleted.
    """
    deleted = 0
    remaining = deque(ids)
    while remaining:
        with low_priority_transaction(database) as deadline:
            deleted += delete(database, remaining.popleft())
            while remaining and time.monotonic() < deadline:
                deleted += delete(database, remaining.popleft())
    return deleted
