"""The turn journal: what a turn did, written down before it matters (spec/mediation.md section 5). In SQLite.

    begun      running    a process is at it
    replied               a model's good answer: never asked for again
    intends               a call that may write is about to leave: from here on its outcome is unknown until
    answered              what came of a call: never run again
    left       abandoned  the runner has gone while a write is on its way: whoever asks again waits for it
    ended      answered   there is an answer, which was not yet handed to the runner; what led to it is kept no longer
               failed     there is none
    handed     done       the whole answer went to the runner's connection

A kill -9 loses nothing: each record is in the database's log before the step that it announces. A power cut may lose the last
moments, but never an intent: the log is flushed to the disk first (``claw_state/sqlite/wal.py``), for it alone, and the loop
goes on meanwhile.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from claw_state.journal import (
    LEASE_LOST,
    MAX_CANDIDATES,
    RESUME_SECONDS,
    PreviousAttempt,
    RequestFingerprint,
    StoredResponse,
    holds_lease,
)
from claw_state.lease import Owner
from claw_state.lease import LifeLock
from claw_state.sqlite.connection import Database
from claw_state.url import StoreError

_SHRINK_SECONDS = 0.9
"""How often a little of the file is given back to the disk, while turns begin."""
_REPLY = -1
"""The place of a model's reply in its round."""
_FOUND = "SELECT turn, state, owner, seen, attempt, said FROM turns WHERE agent = ? AND seen > ?"
_SAME = f"{_FOUND} AND request = ? ORDER BY state = 'running' DESC, seen DESC LIMIT 1"
"""One that runs is the latest, whatever the clock has been set to meanwhile: no other can begin."""
_ALTERED = f"{_FOUND} AND earlier = ? AND state != 'done' AND said != '' ORDER BY seen DESC LIMIT {MAX_CANDIDATES}"
_ANSWER = "SELECT answer FROM turns WHERE turn = ? AND answer IS NOT NULL"
_BEGIN = "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, 'running', ?, ?, NULL)"
_RESUME = """
UPDATE turns SET state = 'running', request = ?, earlier = ?, said = ?, attempt = ?, owner = ?, seen = ?
WHERE turn = ? AND state = ? AND owner = ? AND seen = ?
"""
_KEEP = "INSERT OR REPLACE INTO steps SELECT turn, ?, ?, ? FROM turns WHERE turn = ? AND owner = ?"
_ALIVE = "UPDATE turns SET seen = ? WHERE turn = ? AND owner = ? AND state IN ('running', 'abandoned')"
_LEAVE = "UPDATE turns SET state = 'abandoned', seen = ? WHERE turn = ? AND owner = ? AND state = 'running'"
_END = "UPDATE turns SET state = ?, answer = ?, seen = ? WHERE turn = ? AND owner = ? AND answer IS NULL"
_FORGETS = 8
"""The turn, of so many that begin, with which others go: those that are written together, and so lie together."""
_FORGET = """
DELETE FROM turns WHERE turn IN (SELECT turn FROM turns WHERE seen <= ? ORDER BY seen LIMIT 32)
"""
"""More go than come, and never so many that the others wait."""
_FORGET_ONE = "DELETE FROM turns WHERE seen <= ? AND request = ? AND state = 'running'"
_KEPT = "SELECT record FROM steps WHERE turn = ? AND round = ? AND place = ?"


class SqliteJournal:
    """A ``Journal`` in a file, or in memory."""

    def __init__(self, database: Database, owner: Owner, clock: Callable[[], float] = time.time) -> None:
        """Raises ``OSError`` where it can't be said who we are."""
        self._owner = owner.with_file(database.file)
        self._clock = clock
        self._db = database
        self._begun = 0
        self._shrunk = 0.0
        self._life = LifeLock(database.file, owner.life) if database.file else None

    async def find(self, agent_id: str, asked: RequestFingerprint) -> PreviousAttempt | None:
        """The latest attempt at this request; else one that failed, or lost its answer, that this one goes on with."""
        since = self._clock() - RESUME_SECONDS
        row = self._one(_SAME, agent_id, since, asked.request)
        if altered := row is None and bool(asked.said):
            alike = self._db.read(_ALTERED, agent_id, since, asked.earlier)
            goes_on = asked.goes_on_from({(one[-1], one[1]) for one in alike})
            row = next((one for one in alike if (one[-1], one[1]) in goes_on and not self._runs(one)), None)
        if row is None:
            return None
        turn_id, state, owner, seen, attempt, _ = row
        alive, answer = self._lives(row, altered=altered), self._one(_ANSWER, turn_id)
        try:
            given = msgspec.msgpack.decode(answer[0], type=StoredResponse) if answer else None
        except msgspec.DecodeError as error:
            raise StoreError(f"what is kept of a turn can't be read: {error}") from error
        return PreviousAttempt(turn_id, state, alive, attempt, given, owner, seen)

    def _lives(self, row: tuple[Any, ...], *, altered: bool = False) -> bool:
        """Whether another process, or another mediator of this one, is at a turn."""
        _, state, owner, seen, *_ = row
        return holds_lease(self._owner, state, owner, self._clock() - seen, altered=altered)

    def _runs(self, row: tuple[Any, ...]) -> bool:
        """Whether a turn runs, and its runner waits. One that runs here is looked for by its own request only (``Playing``)."""
        return row[1] == "running" and (self._lives(row) or row[2] == self._owner.name)

    async def begin(self, turn_id: str, agent_id: str, asked: RequestFingerprint) -> bool:
        """A new turn; False: another process just began it."""
        await self._prune()
        row = (
            turn_id,
            agent_id,
            asked.request,
            asked.earlier,
            asked.words,
            asked.attempt,
            self._owner.name,
            self._clock(),
        )
        return await self._unless_one_runs(asked.request, _BEGIN, *row) == 1

    async def resume(self, past: PreviousAttempt, asked: RequestFingerprint) -> bool:
        """A turn that failed, or whose process died, goes on here; False: it goes on elsewhere by now."""
        who = (self._owner.name, self._clock(), past.turn_id, past.state, past.owner, past.seen)
        words = (asked.request, asked.earlier, asked.words, asked.attempt)
        return await self._unless_one_runs(asked.request, _RESUME, *words, *who) == 1

    async def alive(self, turn_ids: Collection[str]) -> None:
        """These go on here."""
        for turn_id in turn_ids:
            await self._do(_ALIVE, self._clock(), turn_id, self._owner.name)

    async def replied(self, turn_id: str, round_number: int, body: bytes) -> None:
        """A model's good answer of this round."""
        await self._keep(turn_id, round_number, _REPLY, body)

    async def reply(self, turn_id: str, round_number: int) -> bytes | None:
        """What the model said in this round."""
        return self._step(turn_id, round_number, _REPLY)

    async def intends(self, turn_id: str, round_number: int, place: int, record: bytes) -> None:
        """A call is about to leave; it must not, when this fails."""
        await self._keep(turn_id, round_number, place, record)
        await self._db.flushed()

    async def answered(self, turn_id: str, round_number: int, place: int, record: bytes) -> None:
        """What came of a call."""
        await self._keep(turn_id, round_number, place, record)

    async def answer(self, turn_id: str, round_number: int, place: int) -> bytes | None:
        """The latest record of a call; None where there is none."""
        return self._step(turn_id, round_number, place)

    async def abandoned(self, turn_id: str) -> None:
        """Its runner has left while a write is on its way."""
        await self._do(_LEAVE, self._clock(), turn_id, self._owner.name)

    async def ended(self, turn_id: str, given: StoredResponse | None) -> None:
        """The turn has its answer, or failed."""
        state, answer = ("answered", msgspec.msgpack.encode(given)) if given else ("failed", None)
        await self._do(_END, state, answer, self._clock(), turn_id, self._owner.name)

    async def handed(self, turn_id: str) -> None:
        """The whole answer went to the runner's connection."""
        await self._do(
            "UPDATE turns SET state = 'done', seen = ? WHERE turn = ? AND state = 'answered'", self._clock(), turn_id
        )

    async def close(self) -> None:
        if self._life is not None:
            self._life.close()
        self._db.close()

    async def _prune(self) -> None:
        """Of what can't be resumed any more nothing is kept, and what it took of the disk is given back: a little each time."""
        self._begun += 1
        if self._begun % _FORGETS == 1:
            now = self._clock()
            await self._do(_FORGET, now - RESUME_SECONDS)
            if now > self._shrunk + _SHRINK_SECONDS:
                self._shrunk = now
                self._db.shrink()

    async def _keep(self, turn_id: str, round_number: int, place: int, record: bytes) -> None:
        """A step of a turn that is entered, and is ours: else nobody finds it again, or somebody else goes on with it."""
        if await self._do(_KEEP, round_number, place, record, turn_id, self._owner.name) == 0:
            raise StoreError(LEASE_LOST)

    async def _unless_one_runs(self, request: str, statement: str, *values: object) -> int:
        """Of one request one turn runs. One that was seen too long ago to be found may still be there, and must not be."""
        for _ in range(2):
            try:
                return await self._do(statement, *values)
            except sqlite3.IntegrityError:
                await self._do(_FORGET_ONE, self._clock() - RESUME_SECONDS, request)
        return 0

    async def _do(self, statement: str, *values: object) -> int:
        await self._db.still()
        return self._db.write(statement, *values)

    def _step(self, turn_id: str, round_number: int, place: int) -> bytes | None:
        row = self._one(_KEPT, turn_id, round_number, place)
        return None if row is None else bytes(row[0])

    def _one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        return next(iter(self._db.read(query, *values)), None)
