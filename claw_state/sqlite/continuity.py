"""The continuity store in SQLite: in a file, or in memory for as long as the process lives.

An evicted entry leaves a mark, as does an answer without hidden rounds. So an equal answer of
another conversation is not mistaken for it.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Collection

from claw_state.continuity import (
    MAX_AGE_SECONDS,
    MAX_BYTES,
    MAX_CANDIDATES,
    MAX_MARKS,
    MAX_NAMES,
    MAX_TURNS,
    Anchor,
    StoredRounds,
    decode_stored_rounds,
    join_by_id,
)
from claw_state.sqlite.connection import Database, Execute
from claw_state.sqlite.schema import SCHEMA
from claw_state.url import StoreError

_INSERT = "INSERT INTO kept (agent, key, before, session, messages, used) VALUES (?, ?, ?, ?, ?, ?)"
_DELETE_OLD = "DELETE FROM kept WHERE agent = ? AND used < ?"
_DELETE_ANY_OLD = "DELETE FROM kept WHERE id IN (SELECT id FROM kept WHERE used < ? LIMIT 256)"
_SWEEP_SECONDS = 600.0
"""The time between two searches for old entries of agents that do not return.

Each reads a whole index.
"""
_EVICT_BY_USE = """
UPDATE kept SET messages = x'2d' WHERE agent = ? AND LENGTH(messages) > 1 AND used < (
    SELECT used FROM kept WHERE agent = ? AND LENGTH(messages) > 1
    ORDER BY used DESC LIMIT 1 OFFSET ?
)
"""
_MARKS_INTERVAL = 16
"""Marks above the limit are deleted with every sixteenth save of their agent.

Finding them reads a thousand places of an index, which SQLite has dropped from its cache if another
process has written.
"""
_DELETE_MARKS = """
DELETE FROM kept WHERE agent = ? AND LENGTH(messages) <= 1 AND used < (
    SELECT used FROM kept WHERE agent = ? AND LENGTH(messages) <= 1
    ORDER BY used DESC LIMIT 1 OFFSET ?
)
"""
_EVICT_BY_SIZE = """
UPDATE kept SET messages = x'2d' WHERE id IN (
    SELECT id FROM (
        SELECT id, SUM(LENGTH(messages)) OVER (ORDER BY used DESC, id DESC) AS held FROM kept
        WHERE agent = ? AND LENGTH(messages) > 1
    ) WHERE held > ?
)
"""
_FIND = """
SELECT id, key, before, session, messages FROM kept
WHERE agent = ? AND key = ? AND +used >= ? ORDER BY id DESC LIMIT ?
"""
"""The plus sign keeps SQLite from using the index by age: nearly all entries are young enough."""
_FIND_STORED_KEYS = """
SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM kept WHERE agent = ? AND key = value)
OR EXISTS (SELECT 1 FROM kept_names WHERE agent = ? AND key = value)
"""
_INSERT_NAME = "INSERT OR IGNORE INTO kept_names VALUES (?, ?, ?)"
_FIND_NAMED = """
SELECT id, kept.key, before, session, messages FROM kept_names CROSS JOIN kept USING (id)
WHERE kept_names.agent = ? AND kept_names.key = ? AND +used >= ? ORDER BY id DESC LIMIT ?
"""
_SIZE = "SELECT SUM(LENGTH(messages)) FROM kept WHERE agent = ?"
_MARK_USED = "UPDATE kept SET used = ? WHERE agent = ? AND id IN (SELECT value FROM json_each(?))"


class SqliteContinuityStore:
    """A ``ContinuityStore`` in SQLite."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._size_bounds: dict[str, int] = {}
        """Each agent has at most so many bytes. They are summed up only if the bound is too high.
        """
        self._saves: Counter[str] = Counter()
        self._swept_at = 0.0
        self._db = database

    async def save(self, agent_id: str, anchor: Anchor, session: str, messages: bytes) -> None:
        now = self._clock()
        self._saves[agent_id] += 1

        def insert(execute: Execute) -> None:
            row = (agent_id, anchor.key, " ".join(anchor.before), session, messages, now)
            number = execute(_INSERT, row).lastrowid
            for name in anchor.names[:MAX_NAMES]:
                execute(_INSERT_NAME, (agent_id, name, number))

            execute(_DELETE_OLD, (agent_id, now - MAX_AGE_SECONDS))
            execute(_EVICT_BY_USE, (agent_id, agent_id, MAX_TURNS - 1))
            if self._saves[agent_id] % _MARKS_INTERVAL == 1:
                execute(_DELETE_MARKS, (agent_id, agent_id, MAX_MARKS - 1))

            # A sweep deletes a part: the next save goes on, until one finds nothing.
            if not 0 <= now - self._swept_at < _SWEEP_SECONDS:
                deleted = execute(_DELETE_ANY_OLD, (now - MAX_AGE_SECONDS,)).rowcount
                self._swept_at = 0.0 if deleted else now

        await self._db.transact(insert)
        await self._evict(agent_id, len(messages))

    async def find(self, agent_id: str, keys: Collection[str]) -> list[StoredRounds]:
        # A request has many keys, and few of them are stored: one query finds these.
        wanted = json.dumps(sorted(set(keys)))
        stored = self._db.read(_FIND_STORED_KEYS, wanted, agent_id, agent_id)
        return join_by_id(entry for (key,) in stored for entry in self._find_key(agent_id, key))

    async def mark_used(self, agent_id: str, entries: Collection[StoredRounds]) -> None:
        if entries:
            ids = json.dumps([entry.id for entry in entries])
            await self._db.write(_MARK_USED, self._clock(), agent_id, ids)

    async def is_writable(self) -> bool:
        try:
            await self._db.probe(f"PRAGMA user_version={SCHEMA}")  # a full disk refuses only writes
        except StoreError:
            return False
        return True

    async def close(self) -> None:
        self._db.close()

    async def _evict(self, agent_id: str, added: int) -> None:
        # What an earlier process has stored is not known yet; it may be as much as is allowed.
        bound = self._size_bounds.get(agent_id, MAX_BYTES) + added
        self._size_bounds[agent_id] = bound
        if bound <= MAX_BYTES:
            return

        await self._db.write(_EVICT_BY_SIZE, agent_id, MAX_BYTES)
        ((size,),) = self._db.read(_SIZE, agent_id)
        self._size_bounds[agent_id] = size or 0

    def _find_key(self, agent_id: str, key: str) -> list[StoredRounds]:
        """Return the entries that have the key as their own, then those that have it as a name."""
        bounds = (agent_id, key, self._clock() - MAX_AGE_SECONDS, MAX_CANDIDATES)
        entries: list[StoredRounds] = []
        for query, names in ((_FIND, ()), (_FIND_NAMED, (key,))):
            for number, own, before, session, messages in self._db.read(query, *bounds):
                anchor = Anchor(own, tuple(before.split()), names=names)
                entries.append(decode_stored_rounds(number, anchor, session, bytes(messages)))
        return entries
