"""The ownership store in SQLite: in a file, or in memory for as long as the process lives."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from claw_state.ownership import MAX_AGE_SECONDS, MAX_OBJECTS, OwnedObject, decode_owned, encode_owned
from claw_state.sqlite.connection import Database, Execute
from claw_state.url import StoreError

_SAVE = "INSERT INTO owned VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET record = excluded.record, used = excluded.used"
_DELETE_OLD = "DELETE FROM owned WHERE agent = ? AND used < ?"
_EVICT = """
DELETE FROM owned WHERE agent = ? AND used < (SELECT used FROM owned WHERE agent = ? ORDER BY used DESC LIMIT 1 OFFSET ?)
"""
_EVICT_EVERY = 64
"""Saves of an agent between evictions, which count all its rows: so many more than the most may be there."""
_FIND = "SELECT record FROM owned WHERE agent = ? AND id = ? AND used >= ?"
_MARK_USED = "UPDATE owned SET used = ? WHERE agent = ? AND id = ?"


class SqliteOwnershipStore:
    """An ``OwnershipStore`` in SQLite."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._db = database
        self._saves: Counter[str] = Counter()

    async def save(self, agent_id: str, owned: OwnedObject) -> None:
        now = self._clock()

        def insert(execute: Execute) -> None:
            execute(_SAVE, (agent_id, owned.id, encode_owned(owned), now))
            execute(_DELETE_OLD, (agent_id, now - MAX_AGE_SECONDS))
            if self._saves[agent_id] % _EVICT_EVERY == 0:  # also at the first: a process may die after each
                execute(_EVICT, (agent_id, agent_id, MAX_OBJECTS - 1))

        await self._db.transact(insert)
        self._saves[agent_id] += 1

    async def find(self, agent_id: str, object_id: str) -> OwnedObject | None:
        now = self._clock()
        rows = self._db.read(_FIND, agent_id, object_id, now - MAX_AGE_SECONDS)
        if not rows:
            return None
        with suppress(StoreError):  # a state that can only be read tells whose an id is
            await self._db.write(_MARK_USED, now, agent_id, object_id)
        return decode_owned(bytes(rows[0][0]))

    async def delete(self, agent_id: str, object_id: str) -> None:
        await self._db.write("DELETE FROM owned WHERE agent = ? AND id = ?", agent_id, object_id)

    async def close(self) -> None:
        self._db.close()
