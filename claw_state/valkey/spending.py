"""Spending on a server that several proxies share: all of them together have one limit.

Each agent has a hash from the end of a bucket to its requests, cost and requests of unknown cost. Each change is one script.
"""

import asyncio
from collections.abc import Callable

from claw_contract.metadata import Budget
from claw_state.spending import Bucket, BudgetExcess, OnWriteError, bucket_width, find_excess
from claw_state.url import StoreError
from claw_state.valkey.link import Link
from claw_state.valkey.scripts import load_script

_BUCKETS = load_script("spending_buckets")
_COUNT = load_script("spending_buckets", "spending_count")
_ADD = _BUCKETS + "add(0, tonumber(ARGV[5]), tonumber(ARGV[6])) return 1"


class ValkeySpending:
    """A ``Spending`` on a server."""

    def __init__(self, link: Link, clock: Callable[[], float] | None = None) -> None:
        self._link = link
        self._clock = clock
        self._pending: set[asyncio.Task[None]] = set()

    async def count_request(self, agent_id: str, budget: Budget) -> BudgetExcess | None:
        limits = ["" if limit is None else limit for limit in (budget.max_requests, budget.limit_usd)]
        soft = int(budget.behavior == "soft_alert")
        exceeded, now, rows = await self._link.run(_COUNT, *self._arguments(agent_id, budget), *limits, soft)
        if not exceeded:
            return None
        try:
            buckets = [_bucket(*bucket.split()) for bucket in rows]
        except (ValueError, TypeError) as error:
            raise StoreError(f"the spending of {agent_id} on the server can't be read: {error}") from error
        return find_excess(budget, buckets, float(now))

    def add_cost(self, agent_id: str, budget: Budget, cost: float | None, on_error: OnWriteError) -> None:
        task = asyncio.ensure_future(self._add_cost(agent_id, budget, cost, on_error))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def close(self) -> None:
        if self._pending:
            await asyncio.wait(self._pending)
        await self._link.close()

    async def _add_cost(self, agent_id: str, budget: Budget, cost: float | None, on_error: OnWriteError) -> None:
        try:
            await self._link.run(_ADD, *self._arguments(agent_id, budget), cost or 0.0, int(cost is None))
        except StoreError as error:  # the turn is not affected
            on_error(str(error))

    def _arguments(self, agent_id: str, budget: Budget) -> tuple[float | str, str, float, float]:
        return self._clock() if self._clock else "", agent_id, budget.seconds, bucket_width(budget)


def _bucket(ends: bytes, requests: bytes, cost: bytes, unknown: bytes) -> Bucket:
    return Bucket(float(ends), int(requests), float(cost), int(unknown))
