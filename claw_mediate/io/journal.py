"""The turn journal: what a turn did, written down before it matters (spec/mediation.md section 5). In SQLite.

    begun      running   a process is at it
    replied              a model's good answer: never asked for again
    intends              a call that may write is about to leave: from here on its outcome is unknown until
    answered             what came of a call: never run again
    ended      answered  there is an answer, which was not yet handed to the runner
               failed    there is none
    handed     done      the whole answer went to the runner's connection

A kill -9 loses nothing: each record is in the database's log before the step that it announces. A power cut may lose the last
moments, but never an intent: that record is flushed to the disk first (``synchronous=FULL``, for it alone).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from claw_mediate.io.journaling import (
    LEASE_SECONDS,
    LEFT,
    RESUMED_WITHIN,
    Asked,
    Given,
    OnItsWay,
    Past,
    as_answer,
    as_kept,
)
from claw_mediate.io.owner import Owner
from claw_mediate.io.store import StoreError, opened
from claw_mediate.model import Answer, Call

_SCHEMA = """
CREATE TABLE IF NOT EXISTS turns (
    turn TEXT PRIMARY KEY, agent TEXT NOT NULL, request TEXT NOT NULL, earlier TEXT NOT NULL, said TEXT NOT NULL,
    attempt TEXT NOT NULL, state TEXT NOT NULL, owner TEXT NOT NULL, seen REAL NOT NULL, answer BLOB
);
CREATE UNIQUE INDEX IF NOT EXISTS one_runs ON turns (agent, request) WHERE state = 'running';
CREATE INDEX IF NOT EXISTS turns_by_request ON turns (agent, request, seen);
CREATE INDEX IF NOT EXISTS turns_that_may_go_on ON turns (agent, earlier, seen) WHERE state IN ('failed', 'running');
CREATE INDEX IF NOT EXISTS turns_by_time ON turns (seen);
CREATE TABLE IF NOT EXISTS steps (
    turn TEXT NOT NULL, round INTEGER NOT NULL, place INTEGER NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (turn, round, place)
) WITHOUT ROWID;
"""
_REPLY = -1
"""The place of a model's reply in its round."""
_FOUND = "SELECT turn, state, owner, seen, attempt, answer FROM turns WHERE agent = ? AND seen > ?"
_SAME = f"{_FOUND} AND request = ? ORDER BY seen DESC LIMIT 1"
_ALTERED = (
    f"{_FOUND} AND earlier = ? AND state IN ('failed', 'running') AND said != '' AND substr(?, 1, length(said)) = said"
    " ORDER BY seen DESC LIMIT 1"
)
_BEGIN = "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, 'running', ?, ?, NULL)"
_RESUME = """
UPDATE turns SET state = 'running', request = ?, earlier = ?, said = ?, attempt = ?, owner = ?, seen = ?
WHERE turn = ? AND state = ? AND owner = ? AND seen = ?
"""
_KEEP = "INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?)"
_KEPT = "SELECT record FROM steps WHERE turn = ? AND round = ? AND place = ?"


class SqliteJournal:
    """A ``Journal`` in a file, or in memory."""

    def __init__(self, file: str, owner: Owner, clock: Callable[[], float] = time.time) -> None:
        """``file``: a path, or empty for memory. Raises ``sqlite3.Error`` or ``OSError`` when it can't be opened."""
        self._owner = owner
        self._clock = clock
        self._db = opened(file, _SCHEMA)
        self._pruned = 0.0

    async def find(self, agent_id: str, asked: Asked) -> Past | None:
        """The latest attempt at this request; else one that failed and that this request goes on with."""
        since = self._clock() - RESUMED_WITHIN
        row = self._one(_SAME, agent_id, since, asked.request)
        if row is None and asked.said:
            row = self._one(_ALTERED, agent_id, since, asked.earlier, asked.said)
            # One that runs here is looked for by its own request only (``Playing``): by these words it can but be another.
            row = None if row and (self._lives(row) or row[1:3] == ("running", self._owner.name)) else row
        if row is None:
            return None
        turn_id, state, owner, seen, attempt, answer = row
        alive = self._lives(row)
        given = msgspec.msgpack.decode(answer, type=Given) if answer else None
        return Past(turn_id, state, alive, attempt, given, owner, seen)

    def _lives(self, row: tuple[Any, ...]) -> bool:
        """Whether another process, or another mediator of this one, is at a turn."""
        _, state, owner, seen, *_ = row
        return state == "running" and self._owner.may_live(owner) and seen > self._clock() - LEASE_SECONDS

    async def begin(self, turn_id: str, agent_id: str, asked: Asked) -> bool:
        """A new turn; False: another process just began it."""
        self._prune()
        row = (
            turn_id,
            agent_id,
            asked.request,
            asked.earlier,
            asked.said,
            asked.attempt,
            self._owner.name,
            self._clock(),
        )
        try:
            self._db.execute(_BEGIN, row)
        except sqlite3.IntegrityError:
            stale = (
                "UPDATE turns SET state = 'failed' WHERE agent = ? AND request = ? AND state = 'running' AND seen <= ?"
            )
            self._do(stale, agent_id, asked.request, self._clock() - RESUMED_WITHIN)
            return False
        except sqlite3.Error as error:
            raise StoreError(str(error)) from error
        return True

    async def resume(self, past: Past, asked: Asked) -> bool:
        """A turn that failed, or whose process died, goes on here; False: it goes on elsewhere by now."""
        who = (self._owner.name, self._clock(), past.turn_id, past.state, past.owner, past.seen)
        return self._do(_RESUME, asked.request, asked.earlier, asked.said, asked.attempt, *who) == 1

    async def alive(self, turn_ids: Collection[str]) -> None:
        """These go on here."""
        for turn_id in turn_ids:
            self._do("UPDATE turns SET seen = ? WHERE turn = ? AND state = 'running'", self._clock(), turn_id)

    async def replied(self, turn_id: str, round_number: int, body: bytes) -> None:
        """A model's good answer of this round."""
        self._do(_KEEP, turn_id, round_number, _REPLY, body)

    async def reply(self, turn_id: str, round_number: int) -> bytes | None:
        """What the model said in this round."""
        row = self._one(_KEPT, turn_id, round_number, _REPLY)
        return None if row is None else bytes(row[0])

    async def intends(self, turn_id: str, round_number: int, place: int) -> None:
        """A call is about to leave; it must not, when this fails."""
        self._do("PRAGMA synchronous=FULL")
        try:
            self._do(_KEEP, turn_id, round_number, place, LEFT)
        finally:
            self._do("PRAGMA synchronous=NORMAL")

    async def answered(self, turn_id: str, round_number: int, place: int, answer: Answer) -> None:
        """What came of a call."""
        self._do(_KEEP, turn_id, round_number, place, as_kept(answer))

    async def answer(self, turn_id: str, round_number: int, place: int, call: Call) -> Answer | OnItsWay | None:
        """What is known of a call: its answer, that it left, or nothing."""
        row = self._one(_KEPT, turn_id, round_number, place)
        return None if row is None else as_answer(row[0], call)

    async def ended(self, turn_id: str, given: Given | None) -> None:
        """The turn has its answer, or failed."""
        state, answer = ("answered", msgspec.msgpack.encode(given)) if given else ("failed", None)
        self._do(
            "UPDATE turns SET state = ?, answer = ?, seen = ? WHERE turn = ?", state, answer, self._clock(), turn_id
        )

    async def handed(self, turn_id: str) -> None:
        """The whole answer went to the runner's connection."""
        self._do(
            "UPDATE turns SET state = 'done', seen = ? WHERE turn = ? AND state = 'answered'", self._clock(), turn_id
        )

    async def close(self) -> None:
        self._db.close()

    def _prune(self) -> None:
        """Of what can't be resumed any more nothing is kept."""
        now = self._clock()
        if now > self._pruned + RESUMED_WITHIN / 10:
            self._pruned = now
            self._do("DELETE FROM turns WHERE seen < ?", now - RESUMED_WITHIN)
            self._do("DELETE FROM steps WHERE turn NOT IN (SELECT turn FROM turns)")

    def _do(self, statement: str, *values: object) -> int:
        try:
            return self._db.execute(statement, values).rowcount
        except sqlite3.Error as error:
            raise StoreError(str(error)) from error

    def _one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        try:
            row: tuple[Any, ...] | None = self._db.execute(query, values).fetchone()
        except sqlite3.Error as error:
            raise StoreError(str(error)) from error
        return row
