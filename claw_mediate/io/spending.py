"""What agents have spent, in buckets, beside the rest of the state: in a file here, on a server in ``valkey_spending``.

A request is counted in the same transaction that finds room for it, so that requests at one time, of several proxies even, do
not all slip under the limit. What it cost is added when it is over.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from claw_contract.metadata import Budget
from claw_mediate.budget import Bucket, Over, bucket_end, over
from claw_state.place import StoreError
from claw_state.sqlite import opened, reason

type Failed = Callable[[str], None]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS spending (
    agent TEXT NOT NULL, ends REAL NOT NULL, requests INTEGER NOT NULL, cost REAL NOT NULL, unknown INTEGER NOT NULL,
    PRIMARY KEY (agent, ends)
) WITHOUT ROWID;
"""
_ADD = """
INSERT INTO spending VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
SET requests = requests + excluded.requests, cost = cost + excluded.cost, unknown = unknown + excluded.unknown
"""


class Spending(Protocol):
    """What each agent has spent in its window."""

    async def count(self, agent_id: str, budget: Budget) -> Over | None:
        """One more request, where there is room for it, or where the budget only tells. Raises ``StoreError``."""

    def add(self, agent_id: str, budget: Budget, cost: float | None, failed: Failed) -> None:
        """What a request cost that was counted; None: nobody knows. It may be written later."""

    async def close(self) -> None:
        """When all is written."""


class SqliteSpending:
    """In a file, or in memory."""

    def __init__(self, file: str, clock: Callable[[], float] = time.time) -> None:
        """``file``: a path, or empty for memory. Raises ``sqlite3.Error`` or ``OSError`` when it can't be opened."""
        self._clock = clock
        self._db = opened(file, _SCHEMA)

    async def count(self, agent_id: str, budget: Budget) -> Over | None:
        try:
            return self._counted(agent_id, budget)
        except sqlite3.Error as error:
            raise StoreError(reason(error)) from error

    def add(self, agent_id: str, budget: Budget, cost: float | None, failed: Failed) -> None:
        row = (agent_id, bucket_end(budget, self._clock()), 0, cost or 0.0, int(cost is None))
        try:
            self._db.execute(_ADD, row)
        except sqlite3.Error as error:  # the answer is good all the same
            failed(reason(error))

    async def close(self) -> None:
        self._db.close()

    def _counted(self, agent_id: str, budget: Budget) -> Over | None:
        """In one transaction: what has left the window goes, and one more request comes where there is room for it."""
        now = self._clock()
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute("DELETE FROM spending WHERE agent = ? AND ends <= ?", (agent_id, now - budget.seconds))
            rows = self._db.execute("SELECT ends, requests, cost, unknown FROM spending WHERE agent = ?", (agent_id,))
            spent = over(budget, [Bucket(*row) for row in rows], now)
            if spent is None or budget.behavior == "soft_alert":
                self._db.execute(_ADD, (agent_id, bucket_end(budget, now), 1, 0.0, 0))
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise
        return spent
