"""Spending in SQLite, in buckets.

A request is counted in the transaction that checks the limit, so that concurrent requests, even of several proxies, cannot all
pass it. Its cost is added when it ends.
"""

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
    """A ``Spending`` in SQLite."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._db = database

    async def count_request(self, agent_id: str, budget: Budget) -> BudgetExcess | None:
        """Drop old buckets, and count one more request if the limits allow it, in one transaction."""
        await self._db.wait_for_checkpoint()
        now = self._clock()
        with self._db.transaction() as execute:
            execute("DELETE FROM spending WHERE agent = ? AND ends <= ?", (agent_id, now - budget.seconds))
            rows = execute("SELECT ends, requests, cost, unknown FROM spending WHERE agent = ?", (agent_id,))
            excess = find_excess(budget, [Bucket(*row) for row in rows], now)
            if excess is None or budget.behavior == "soft_alert":
                execute(_ADD, (agent_id, bucket_end(budget, now), 1, 0.0, 0))
        return excess

    def add_cost(self, agent_id: str, budget: Budget, cost: float | None, on_error: OnWriteError) -> None:
        try:
            self._db.write(_ADD, agent_id, bucket_end(budget, self._clock()), 0, cost or 0.0, int(cost is None))
        except StoreError as error:  # the turn is not affected
            on_error(str(error))

    async def close(self) -> None:
        self._db.close()
