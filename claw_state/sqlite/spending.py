"""Spending in SQLite, in buckets.

A request is counted in the transaction that checks the limit, so that concurrent requests, even of several proxies, cannot all
pass it. Its cost is added when it ends.
"""

import asyncio
import time
from collections.abc import Callable

from claw_contract.metadata import Budget
from claw_state.spending import Bucket, BudgetExcess, OnWriteError, bucket_end, find_excess
from claw_state.sqlite.connection import Database, Execute
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
        self._pending: set[asyncio.Task[None]] = set()

    async def count_request(self, agent_id: str, budget: Budget) -> BudgetExcess | None:
        """Drop old buckets, and count one more request if the limits allow it, in one transaction."""
        now = self._clock()

        def count(execute: Execute) -> BudgetExcess | None:
            execute("DELETE FROM spending WHERE agent = ? AND ends <= ?", (agent_id, now - budget.seconds))
            rows = execute("SELECT ends, requests, cost, unknown FROM spending WHERE agent = ?", (agent_id,))
            excess = find_excess(budget, [Bucket(*row) for row in rows], now)
            if excess is None or budget.behavior == "soft_alert":
                execute(_ADD, (agent_id, bucket_end(budget, now), 1, 0.0, 0))
            return excess

        return await self._db.transact(count)

    def add_cost(self, agent_id: str, budget: Budget, cost: float | None, on_error: OnWriteError) -> None:
        row = agent_id, bucket_end(budget, self._clock()), 0, cost or 0.0, int(cost is None)
        try:
            is_written = self._db.try_write(_ADD, *row) is not None
        except StoreError as error:  # the turn is not affected
            on_error(str(error))
            return
        if not is_written:
            task = asyncio.ensure_future(self._add_later(row, on_error))
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)

    async def close(self) -> None:
        if self._pending:
            await asyncio.wait(self._pending)
        self._db.close()

    async def _add_later(self, row: tuple[object, ...], on_error: OnWriteError) -> None:
        try:
            await self._db.write(_ADD, *row)
        except StoreError as error:
            on_error(str(error))
