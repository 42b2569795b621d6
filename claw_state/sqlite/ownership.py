"""The ownership store in SQLite: in a file, or in memory for as long as the process lives."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from claw_state.ownership import (
    MAX_AGE_SECONDS,
    MAX_OBJECTS,
    MAX_PROVIDER_OBJECT_AGE_SECONDS,
    MAX_PROVIDER_OBJECTS,
    USE_MARK_SECONDS,
    KeptObject,
    ObjectName,
    ProviderObject,
    decode_kept,
    encode_kept,
)
from claw_state.sqlite.connection import Database, Execute
from claw_state.url import StoreError

_SAVE = (
    "INSERT INTO owned VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET record = "
    "excluded.record, used = excluded.used"
)
_DELETE_OLD = "DELETE FROM owned WHERE agent = ? AND used < ?"
_EVICT = """
DELETE FROM owned WHERE agent = ?
AND used < (SELECT used FROM owned WHERE agent = ? ORDER BY used DESC LIMIT 1 OFFSET ?)
"""
_EVICT_EVERY = 64
"""Saves of an agent between two evictions, each of which reads all its records.

So an agent may have as many records above the limit.
"""
_FIND_OWNERS = "SELECT agent, record FROM owned WHERE id = ? AND used >= ?"
_FIND = "SELECT record FROM owned WHERE agent = ? AND id = ? AND used >= ?"
_MARK_USED = "UPDATE owned SET used = ? WHERE agent = ? AND id = ?"
_SAVE_OBJECT = """
INSERT INTO provider_objects VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE
SET provider = excluded.provider, key_label = excluded.key_label, used = excluded.used
"""
_FIND_OBJECT_OWNERS = (
    "SELECT agent FROM provider_objects WHERE kind = ? AND id = ? AND provider = ? AND used >= ?"
)
_DELETE_OLD_OBJECTS = "DELETE FROM provider_objects WHERE agent = ? AND used < ?"
_EVICT_OBJECTS = """
DELETE FROM provider_objects WHERE agent = ?
AND used < (SELECT used FROM provider_objects WHERE agent = ? ORDER BY used DESC LIMIT 1 OFFSET ?)
"""
_FIND_OBJECT = (
    "SELECT provider, key_label, used FROM provider_objects WHERE agent = ? AND kind = ? AND "
    "id = ? AND used >= ?"
)
_LIST_OBJECTS = (
    "SELECT id, provider, key_label FROM provider_objects WHERE agent = ? AND kind = ? AND "
    "used >= ?"
)
_MARK_OBJECT_USED = "UPDATE provider_objects SET used = ? WHERE agent = ? AND kind = ? AND id = ?"


class SqliteOwnershipStore:
    """An ``OwnershipStore`` in SQLite."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._db = database
        self._saves: Counter[str] = Counter()
        self._object_saves: Counter[str] = Counter()

    async def save(self, agent_id: str, kept: KeptObject, *, may_share: bool = False) -> bool:
        now = self._clock()

        def insert(execute: Execute) -> bool:
            if not may_share and _is_anothers(execute, agent_id, kept, now - MAX_AGE_SECONDS):
                return False

            execute(_SAVE, (agent_id, kept.id, encode_kept(kept), now))
            execute(_DELETE_OLD, (agent_id, now - MAX_AGE_SECONDS))
            # Also at the first save: a process may die after each.
            if self._saves[agent_id] % _EVICT_EVERY == 0:
                execute(_EVICT, (agent_id, agent_id, MAX_OBJECTS - 1))
            return True

        is_saved = await self._db.transact(insert)
        self._saves[agent_id] += is_saved
        return is_saved

    async def find(self, agent_id: str, object_id: str) -> KeptObject | None:
        now = self._clock()
        rows = self._db.read(_FIND, agent_id, object_id, now - MAX_AGE_SECONDS)
        if not rows:
            return None

        with suppress(StoreError):  # a state that can only be read still says who owns it
            await self._db.write(_MARK_USED, now, agent_id, object_id)
        return decode_kept(bytes(rows[0][0]))

    async def delete(self, agent_id: str, object_id: str) -> None:
        await self._db.write("DELETE FROM owned WHERE agent = ? AND id = ?", agent_id, object_id)

    async def save_objects(
        self, agent_id: str, objects: Sequence[ProviderObject], *, may_share: bool = False
    ) -> list[ProviderObject]:
        now = self._clock()
        oldest = now - MAX_PROVIDER_OBJECT_AGE_SECONDS

        def insert(execute: Execute) -> list[ProviderObject]:
            refused: list[ProviderObject] = []
            for each in objects:
                if not may_share and _is_anothers_object(execute, agent_id, each, oldest):
                    refused.append(each)
                    continue

                columns = (agent_id, each.kind, each.id, each.provider, each.key_label, now)
                execute(_SAVE_OBJECT, columns)

            execute(_DELETE_OLD_OBJECTS, (agent_id, oldest))
            if self._object_saves[agent_id] % _EVICT_EVERY == 0:
                execute(_EVICT_OBJECTS, (agent_id, agent_id, MAX_PROVIDER_OBJECTS - 1))
            return refused

        refused = await self._db.transact(insert)
        self._object_saves[agent_id] += 1
        return refused

    async def find_objects(
        self, agent_id: str, names: Collection[ObjectName]
    ) -> list[ProviderObject]:
        now = self._clock()
        oldest = now - MAX_PROVIDER_OBJECT_AGE_SECONDS
        found: list[ProviderObject] = []
        to_mark: list[ObjectName] = []
        for name in names:
            for provider, key_label, used in self._db.read(_FIND_OBJECT, agent_id, *name, oldest):
                found.append(ProviderObject(*name, provider, key_label))
                if used < now - USE_MARK_SECONDS:
                    to_mark.append(name)

        def mark(execute: Execute) -> None:
            for name in to_mark:
                execute(_MARK_OBJECT_USED, (now, agent_id, *name))

        if to_mark:
            with suppress(StoreError):  # a state that can only be read still says who owns it
                await self._db.transact(mark)
        return found

    async def list_objects(self, agent_id: str, kind: str) -> list[ProviderObject]:
        oldest = self._clock() - MAX_PROVIDER_OBJECT_AGE_SECONDS
        rows = self._db.read(_LIST_OBJECTS, agent_id, kind, oldest)
        return [ProviderObject(kind, *row) for row in rows]

    async def close(self) -> None:
        self._db.close()


def _is_anothers(execute: Execute, agent_id: str, kept: KeptObject, oldest: float) -> bool:
    """Return whether another agent owns one of the object's two ids at its provider."""
    for object_id in {kept.id, kept.provider_id}:
        owners: set[str] = set()
        for agent, record in execute(_FIND_OWNERS, (object_id, oldest)).fetchall():
            if decode_kept(bytes(record)).provider == kept.provider:
                owners.add(agent)

        # A state of an earlier version may have several owners, the agent among them.
        if owners and agent_id not in owners:
            return True

    return False


def _is_anothers_object(
    execute: Execute, agent_id: str, each: ProviderObject, oldest: float
) -> bool:
    rows = execute(_FIND_OBJECT_OWNERS, (each.kind, each.id, each.provider, oldest)).fetchall()
    return bool(rows) and (agent_id,) not in rows
