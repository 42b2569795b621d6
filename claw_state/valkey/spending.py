"""What agents have spent, on a server that several proxies share: a limit is one limit, however many proxies there are.

A hash for each agent: the end of a bucket, and its requests, cost and requests of unknown cost. Each change is one script.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from claw_contract.metadata import Budget
from claw_state.spending import Bucket, BudgetExcess, OnWriteError, bucket_width, find_excess
from claw_state.url import StoreError
from claw_state.valkey.link import Link

_BUCKETS = """
local key, seconds, width = of(ARGV[2]) .. 'spent', tonumber(ARGV[3]), tonumber(ARGV[4])
local function parts(bucket)
  local requests, cost, unknown = string.match(bucket or '0 0 0', '^(%S+) (%S+) (%S+)$')
  return tonumber(requests), tonumber(cost), tonumber(unknown)
end
local function add(more_requests, more_cost, more_unknown)
  local ends = exact((math.floor(now / width) + 1) * width)
  local requests, cost, unknown = parts(redis.call('HGET', key, ends))
  redis.call('HSET', key, ends, string.format('%d %.17g %d', requests + more_requests, cost + more_cost,
    unknown + more_unknown))
  redis.call('EXPIRE', key, math.ceil(seconds + width))
end
"""
_COUNT = (
    _BUCKETS
    + """
local most_requests, most_cost, soft = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local all, requests, cost, current = redis.call('HGETALL', key), 0, 0, {}
for place = 1, #all, 2 do
  if tonumber(all[place]) <= now - seconds then
    redis.call('HDEL', key, all[place])
  else
    local more_requests, more_cost = parts(all[place + 1])
    requests, cost = requests + more_requests, cost + more_cost
    current[#current + 1] = all[place] .. ' ' .. all[place + 1]
  end
end
local spent = (most_requests and requests >= most_requests) or (most_cost and cost >= most_cost)
if soft or not spent then add(1, 0, 0) end
return {spent and 1 or 0, exact(now), current}
"""
)
_ADD = _BUCKETS + "add(0, tonumber(ARGV[5]), tonumber(ARGV[6])) return 1"


class ValkeySpending:
    """A ``Spending`` on a server."""

    def __init__(self, link: Link, clock: Callable[[], float] | None = None) -> None:
        self._link = link
        self._clock = clock
        self._writing: set[asyncio.Task[None]] = set()

    async def count(self, agent_id: str, budget: Budget) -> BudgetExcess | None:
        most = ["" if limit is None else limit for limit in (budget.max_requests, budget.limit_usd)]
        soft = int(budget.behavior == "soft_alert")
        spent, now, found = await self._link.run(_COUNT, *self._words(agent_id, budget), *most, soft)
        if not spent:
            return None
        try:
            buckets = [_bucket(*bucket.split()) for bucket in found]
        except (ValueError, TypeError) as error:
            raise StoreError(f"what the server keeps of {agent_id} can't be read: {error}") from error
        return find_excess(budget, buckets, float(now))

    def add(self, agent_id: str, budget: Budget, cost: float | None, failed: OnWriteError) -> None:
        task = asyncio.ensure_future(self._add(agent_id, budget, cost, failed))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def close(self) -> None:
        if self._writing:
            await asyncio.wait(self._writing)
        await self._link.close()

    async def _add(self, agent_id: str, budget: Budget, cost: float | None, failed: OnWriteError) -> None:
        try:
            await self._link.run(_ADD, *self._words(agent_id, budget), cost or 0.0, int(cost is None))
        except StoreError as error:  # the answer is good all the same
            failed(str(error))

    def _words(self, agent_id: str, budget: Budget) -> tuple[float | str, str, float, float]:
        return self._clock() if self._clock else "", agent_id, budget.seconds, bucket_width(budget)


def _bucket(ends: bytes, requests: bytes, cost: bytes, unknown: bytes) -> Bucket:
    return Bucket(float(ends), int(requests), float(cost), int(unknown))
