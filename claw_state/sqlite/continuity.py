"""The continuity store: hidden rounds by agent and anchor (spec/mediation.md section 7), in SQLite.

With a file it survives a restart; without one it lives as long as the process. Bounded per agent by turns, bytes and age,
least recently used first out. What goes for want of room leaves a mark, as does an answer before which nothing was hidden: so
an equal answer of another conversation is not taken for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection

from claw_state.continuity import (
    MAX_AGE_SECONDS,
    MAX_BYTES,
    MAX_CANDIDATES,
    MAX_MARKS,
    MAX_TURNS,
    Anchor,
    StoredRounds,
    decode_stored_rounds,
)
from claw_state.sqlite.connection import Database
from claw_state.sqlite.schema import SCHEMA
from claw_state.url import StoreError

_INSERT = "INSERT INTO kept (agent, key, before, session, messages, used) VALUES (?, ?, ?, ?, ?, ?)"
_BY_AGE = "DELETE FROM kept WHERE agent = ? AND used < ?"
_GONE = "DELETE FROM kept WHERE id IN (SELECT id FROM kept WHERE used < ? LIMIT 256)"
_LOOK_SECONDS = 600.0
"""How often it is looked for what agents have left that come no more: the whole of an index is read."""
_BY_USE = """
UPDATE kept SET messages = x'2d' WHERE agent = ? AND LENGTH(messages) > 1 AND used < (
    SELECT used FROM kept WHERE agent = ? AND LENGTH(messages) > 1 ORDER BY used DESC LIMIT 1 OFFSET ?
)
"""
_MARKS = """
DELETE FROM kept WHERE agent = ? AND LENGTH(messages) <= 1 AND used < (
    SELECT used FROM kept WHERE agent = ? AND LENGTH(messages) <= 1 ORDER BY used DESC LIMIT 1 OFFSET ?
)
"""
_BY_SIZE = """
UPDATE kept SET messages = x'2d' WHERE id IN (
    SELECT id FROM (
        SELECT id, SUM(LENGTH(messages)) OVER (ORDER BY used DESC, id DESC) AS held FROM kept
        WHERE agent = ? AND LENGTH(messages) > 1
    ) WHERE held > ?
)
"""
_ROWS = """
SELECT id, before, session, messages FROM kept WHERE agent = ? AND key = ? AND +used >= ? ORDER BY id DESC LIMIT ?
"""
"""The sign keeps SQLite from looking by age: nearly all are young enough."""
_USED = "UPDATE kept SET used = ? WHERE agent = ? AND id IN (SELECT value FROM json_each(?))"


class SqliteContinuityStore:
    """In a file, or in memory."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._held: dict[str, int] = {}
        """By agent the bytes that are held at most: they are summed up again only when it seems to be too many."""
        self._looked = 0.0
        self._db = database

    async def keep(self, agent_id: str, anchor: Anchor, session: str, messages: bytes) -> None:
        await self._db.still()
        now = self._clock()
        with self._db.change() as run:
            run(_INSERT, (agent_id, anchor.key, " ".join(anchor.before), session, messages, now))
            run(_BY_AGE, (agent_id, now - MAX_AGE_SECONDS))
            run(_BY_USE, (agent_id, agent_id, MAX_TURNS - 1))
            run(_MARKS, (agent_id, agent_id, MAX_MARKS - 1))
            if not 0 <= now - self._looked < _LOOK_SECONDS:
                more = run(_GONE, (now - MAX_AGE_SECONDS,)).rowcount
                self._looked = 0.0 if more else now
        self._bound(agent_id, len(messages))

    async def candidates(self, agent_id: str, keys: Collection[str]) -> list[StoredRounds]:
        return [kept for key in set(keys) for kept in self._rows(agent_id, key)]

    async def used(self, agent_id: str, kept: Collection[StoredRounds]) -> None:
        if kept:
            await self._db.still()
            ids = json.dumps([one.id for one in kept])
            self._db.write(_USED, self._clock(), agent_id, ids)

    async def writable(self) -> bool:
        try:
            self._db.probe(f"PRAGMA user_version={SCHEMA}")  # a full disk says no only to what is written
        except StoreError:
            return False
        return True

    async def close(self) -> None:
        self._db.close()

    def _bound(self, agent_id: str, added: int) -> None:
        self._held[agent_id] = self._held.get(agent_id, MAX_BYTES) + added
        if self._held[agent_id] > MAX_BYTES:
            self._db.write(_BY_SIZE, agent_id, MAX_BYTES)
            ((sized,),) = self._db.read("SELECT SUM(LENGTH(messages)) FROM kept WHERE agent = ?", agent_id)
            self._held[agent_id] = sized or 0

    def _rows(self, agent_id: str, key: str) -> list[StoredRounds]:
        rows = self._db.read(_ROWS, agent_id, key, self._clock() - MAX_AGE_SECONDS, MAX_CANDIDATES)
        return [
            decode_stored_rounds(row, Anchor(key, tuple(before.split())), session, bytes(held))
            for row, before, session, held in rows
        ]
