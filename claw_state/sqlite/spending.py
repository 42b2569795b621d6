"""What agents have spent, in buckets, beside the rest of the state: in a file here, on a server in ``valkey_spending``.

A request is counted in the same transaction that finds room for it, so that requests at one time, of several proxies even, do
not all slip under the limit. What it cost is added when it is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from claw_contract.metadata import Budget
from claw_state.spending import Bucket, BudgetExcess, OnWriteError, bucket_end, find_excess
from claw_state.sqlite.connection import Database
from claw_state.url import StoreError

_ADD = """
INSERT INTO spending VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
SET requests = requests + excluded.requests, cost = cost + excluded.cost, unknown = unknown + excluded.unknown
"""


class SqliteSpending:
    """In a file, or in memory."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._db = database

    async def count(self, agent_id: str, budget: Budget) -> BudgetExcess | None:
        """In one change: what has left the window goes, and one more request comes where there is room for it."""
        await self._db.still()
        now = self._clock()
        with self._db.change() as run:
            run("DELETE FROM spending WHERE agent = ? AND ends <= ?", (agent_id, now - budget.seconds))
            rows = run("SELECT ends, requests, cost, unknown FROM spending WHERE agent = ?", (agent_id,))
            spent = find_excess(budget, [Bucket(*row) for row in rows], now)
            if spent is None or budget.behavior == "soft_alert":
                run(_ADD, (agent_id, bucket_end(budget, now), 1, 0.0, 0))
        return spent

    def add(self, agent_id: str, budget: Budget, cost: float | None, failed: OnWriteError) -> None:
        try:
            self._db.write(_ADD, agent_id, bucket_end(budget, self._clock()), 0, cost or 0.0, int(cost is None))
        except StoreError as error:  # the answer is good all the same
            failed(str(error))

    async def close(self) -> None:
        self._db.close()
