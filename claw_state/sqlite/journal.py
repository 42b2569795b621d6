"""The turn journal in SQLite.

A kill -9 loses nothing: each record is in the database's log before the step that it announces. A
power cut may lose the last moments, but never an intent: only an intent is flushed to the disk, in
a thread (``claw_state/sqlite/wal.py``).
"""

import sqlite3
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import msgspec

from claw_state.journal import (
    LEASE_LOST,
    MAX_CANDIDATES,
    RESUME_SECONDS,
    PreviousAttempt,
    RequestFingerprint,
    StoredResponse,
    TurnState,
    holds_lease,
)
from claw_state.lease import LeaseOwner, LifeLock
from claw_state.sqlite.connection import Database
from claw_state.url import StoreError

_SHRINK_SECONDS = 0.9  # Time between two steps that return free pages to the disk
_RESPONSE = -1  # The place of a model's response in its round
_SELECT = "SELECT turn, state, owner, seen, attempt, said FROM turns WHERE agent = ? AND seen > ?"
_TURN = "SELECT turn, state, owner, seen FROM turns WHERE turn = ?"
_SAME = f"{_SELECT} AND request = ? ORDER BY state = 'running' DESC, seen DESC LIMIT 1"
"""A running turn is the latest, even if the clock was changed: no other can begin."""
_ALTERED = (
    f"{_SELECT} AND earlier = ? AND state != 'done' AND said != '' ORDER BY seen DESC LIMIT "
    f"{MAX_CANDIDATES}"
)
_READ_ANSWER = "SELECT answer FROM turns WHERE turn = ? AND answer IS NOT NULL"
_BEGIN = "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, 'running', ?, ?, NULL)"
_RESUME = """
UPDATE turns
SET state = 'running', request = ?, earlier = ?, said = ?, attempt = ?, owner = ?, seen = ?
WHERE turn = ? AND state = ? AND owner = ? AND seen = ?
"""
_RECORD_STEP = (
    "INSERT OR REPLACE INTO steps SELECT turn, ?, ?, ? FROM turns WHERE turn = ? AND owner = ?"
)
_RENEW = (
    "UPDATE turns SET seen = ? WHERE turn = ? AND owner = ? AND state IN ('running', 'abandoned')"
)
_ABANDON = (
    "UPDATE turns SET state = 'abandoned', seen = ? WHERE turn = ? AND owner = ? AND state = "
    "'running'"
)
_END = (
    "UPDATE turns SET state = ?, answer = ?, seen = ? WHERE turn = ? AND owner = ? AND answer "
    "IS NULL"
)
_MARK_DELIVERED = "UPDATE turns SET state = 'done' WHERE turn = ? AND state = 'answered'"
_PRUNE_INTERVAL = 8
"""Expired turns are deleted with every eighth turn that begins, several at once.

Turns that were written together are in the same pages.
"""
_PRUNE = """
DELETE FROM turns WHERE turn IN (SELECT turn FROM turns WHERE seen <= ? ORDER BY seen LIMIT 32)
"""
"""It deletes more turns than begin meanwhile, and not so many that other writers must wait."""
_DELETE_EXPIRED = "DELETE FROM turns WHERE seen <= ? AND request = ? AND state = 'running'"
_READ_STEP = "SELECT record FROM steps WHERE turn = ? AND round = ? AND place = ?"


class _TurnRow(NamedTuple):
    """A row of ``_SELECT``; one of ``_TURN`` has the first four columns."""

    turn_id: str
    state: TurnState
    owner: str
    seen: float
    idempotency_key: str = ""
    message_digest: str = ""


class SqliteJournal:
    """A ``Journal`` in SQLite: in a file, or in memory."""

    def __init__(
        self, database: Database, owner: LeaseOwner, clock: Callable[[], float] = time.time
    ) -> None:
        """Raise ``OSError`` if the lock that proves this mediator's life can't be taken."""
        self._owner = owner.with_file(database.file)
        self._clock = clock
        self._db = database
        self._begun = 0
        self._shrunk_at = 0.0
        self._life = LifeLock(database.file, owner.life) if database.file else None

    async def find(self, agent_id: str, fingerprint: RequestFingerprint) -> PreviousAttempt | None:
        since = self._clock() - RESUME_SECONDS
        row = self._first_turn(_SAME, agent_id, since, fingerprint.request)
        is_altered = row is None and bool(fingerprint.last_message)
        if is_altered:
            row = self._find_altered(agent_id, since, fingerprint)
        if row is None:
            return None

        answer = self._first(_READ_ANSWER, row.turn_id)
        try:
            response = msgspec.msgpack.decode(answer[0], type=StoredResponse) if answer else None
        except msgspec.DecodeError as error:
            raise StoreError(f"the record of a turn can't be read: {error}") from error

        return PreviousAttempt(
            turn_id=row.turn_id,
            state=row.state,
            is_alive=self._is_alive(row, altered=is_altered),
            idempotency_key=row.idempotency_key,
            response=response,
            owner=row.owner,
            seen=row.seen,
        )

    def _find_altered(
        self, agent_id: str, since: float, fingerprint: RequestFingerprint
    ) -> _TurnRow | None:
        """Return the latest turn that the request repeats with a note appended."""
        rows = self._db.read(_ALTERED, agent_id, since, fingerprint.earlier)
        candidates = [_TurnRow(*row) for row in rows]
        attempts = {(turn.message_digest, turn.state) for turn in candidates}
        matches = fingerprint.openclaw_retry_of(attempts)
        for turn in candidates:
            is_match = (turn.message_digest, turn.state) in matches
            if is_match and not self._runs(turn):
                return turn
        return None

    async def is_alive(self, turn_id: str) -> bool:
        turn = self._first_turn(_TURN, turn_id)
        return turn is not None and self._is_alive(turn)

    def _is_alive(self, turn: _TurnRow, *, altered: bool = False) -> bool:
        silent = self._clock() - turn.seen
        return holds_lease(self._owner, turn.state, turn.owner, silent, altered=altered)

    def _runs(self, turn: _TurnRow) -> bool:
        """Return True if a turn runs, here or elsewhere, and its runner waits.

        A turn that runs here is found only by its own request (``claw_mediate/turns/registry.py``).
        """
        runs_here = turn.owner == self._owner.name
        return turn.state == "running" and (self._is_alive(turn) or runs_here)

    async def begin(self, turn_id: str, agent_id: str, fingerprint: RequestFingerprint) -> bool:
        await self._prune()
        row = (turn_id, agent_id, *fingerprint.columns, self._owner.name, self._clock())
        return await self._write_unless_one_runs(fingerprint.request, _BEGIN, *row) == 1

    async def resume(self, past: PreviousAttempt, fingerprint: RequestFingerprint) -> bool:
        values = (*fingerprint.columns, self._owner.name, self._clock())
        before = (past.turn_id, past.state, past.owner, past.seen)
        return (
            await self._write_unless_one_runs(fingerprint.request, _RESUME, *values, *before) == 1
        )

    async def renew_leases(self, turn_ids: Collection[str]) -> None:
        for turn_id in turn_ids:
            await self._db.write(_RENEW, self._clock(), turn_id, self._owner.name)

    async def record_response(self, turn_id: str, round_number: int, body: bytes) -> None:
        await self._record_step(turn_id, round_number, _RESPONSE, body)

    async def response(self, turn_id: str, round_number: int) -> bytes | None:
        return self._read_step(turn_id, round_number, _RESPONSE)

    async def record_intent(
        self, turn_id: str, round_number: int, place: int, record: bytes
    ) -> None:
        await self._record_step(turn_id, round_number, place, record)
        await self._db.flush()

    async def record_result(
        self, turn_id: str, round_number: int, place: int, record: bytes
    ) -> None:
        await self._record_step(turn_id, round_number, place, record)

    async def call_record(self, turn_id: str, round_number: int, place: int) -> bytes | None:
        return self._read_step(turn_id, round_number, place)

    async def abandon(self, turn_id: str) -> None:
        await self._db.write(_ABANDON, self._clock(), turn_id, self._owner.name)

    async def end(self, turn_id: str, response: StoredResponse | None) -> None:
        state = "answered" if response else "failed"
        answer = msgspec.msgpack.encode(response) if response else None
        await self._db.write(_END, state, answer, self._clock(), turn_id, self._owner.name)

    async def mark_delivered(self, turn_id: str) -> None:
        await self._db.write(_MARK_DELIVERED, turn_id)

    async def close(self) -> None:
        if self._life is not None:
            self._life.close()
        self._db.close()

    async def _prune(self) -> None:
        self._begun += 1
        if self._begun % _PRUNE_INTERVAL != 1:
            return

        now = self._clock()
        await self._db.write(_PRUNE, now - RESUME_SECONDS)
        if now > self._shrunk_at + _SHRINK_SECONDS:
            self._shrunk_at = now
            self._db.shrink()

    async def _record_step(
        self, turn_id: str, round_number: int, place: int, record: bytes
    ) -> None:
        """Record a step.

        Raise ``StoreError`` if the turn is not in the journal, or not ours any more.
        """
        values = (round_number, place, record, turn_id, self._owner.name)
        if await self._db.write(_RECORD_STEP, *values) == 0:
            raise StoreError(LEASE_LOST)

    async def _write_unless_one_runs(self, request: str, statement: str, *values: object) -> int:
        """Run a statement that makes a turn the running one of its request.

        Return 0 if another turn of that request is running. An expired one does not count: it is
        deleted, and the statement runs again.
        """
        for _ in range(2):
            try:
                return await self._db.write(statement, *values)
            except sqlite3.IntegrityError:
                await self._db.write(_DELETE_EXPIRED, self._clock() - RESUME_SECONDS, request)
        return 0

    def _read_step(self, turn_id: str, round_number: int, place: int) -> bytes | None:
        row = self._first(_READ_STEP, turn_id, round_number, place)
        return None if row is None else bytes(row[0])

    def _first_turn(self, query: str, *values: object) -> _TurnRow | None:
        row = self._first(query, *values)
        return None if row is None else _TurnRow(*row)

    def _first(self, query: str, *values: object) -> tuple[Any, ...] | None:
        return next(iter(self._db.read(query, *values)), None)
