"""Spending of agents in the window of their budget: the port, its records, and the arithmetic of buckets.

A bucket is named by its end, and leaves the window when the window begins after that end. So no bucket leaves too early, and
``Retry-After`` is never too short (docs/spec/mediation.md section 8).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from claw_contract.metadata import Budget

type OnWriteError = Callable[[str], None]
_MIN_BUCKETS = 60  # Buckets of a window. No bucket is longer than a minute or shorter than a second.


@dataclass(frozen=True, slots=True)
class Bucket:
    """Spending in the interval that ends at ``ends`` (seconds since 1970)."""

    ends: float
    requests: int
    cost: float
    unknown: int  # Requests of unknown cost


@dataclass(frozen=True, slots=True)
class BudgetExcess:
    """An exhausted budget: the limit, the seconds until a request fits, and the totals of the window."""

    limit: Literal["max_requests", "limit_usd"]
    retry_after: int
    requests: int
    cost: float
    unknown: int


def bucket_width(budget: Budget) -> float:
    """Return the length of a bucket in seconds."""
    return max(1.0, min(60.0, budget.seconds / _MIN_BUCKETS))


def bucket_end(budget: Budget, now: float) -> float:
    """Return the end of the bucket that contains ``now``."""
    width = bucket_width(budget)
    return (math.floor(now / width) + 1) * width


def find_excess(budget: Budget, buckets: Sequence[Bucket], now: float) -> BudgetExcess | None:
    """Return the limit that allows no further request, or None."""
    current = sorted((bucket for bucket in buckets if bucket.ends > now - budget.seconds), key=lambda bucket: bucket.ends)
    requests = sum(bucket.requests for bucket in current)
    cost = math.fsum(bucket.cost for bucket in current)
    unknown = sum(bucket.unknown for bucket in current)
    limits: list[tuple[Literal["max_requests", "limit_usd"], float]] = []
    if budget.max_requests is not None and requests >= budget.max_requests:
        counts = [bucket.requests for bucket in current]
        limits.append(("max_requests", _free_at(current, counts, budget.max_requests)))
    if budget.limit_usd is not None and cost >= budget.limit_usd:
        limits.append(("limit_usd", _free_at(current, [bucket.cost for bucket in current], budget.limit_usd)))
    if not limits:
        return None
    name, free_at = max(limits, key=lambda limit: limit[1])
    return BudgetExcess(name, max(1, math.ceil(free_at + budget.seconds - now)), requests, cost, unknown)


def _free_at(buckets: Sequence[Bucket], amounts: Sequence[float], limit: float) -> float:
    left = math.fsum(amounts)
    for bucket, amount in zip(buckets, amounts, strict=True):
        left -= amount
        if left < limit:
            return bucket.ends
    return buckets[-1].ends


class Spending(Protocol):
    """A persistent count of each agent's spending."""

    async def count_request(self, agent_id: str, budget: Budget) -> BudgetExcess | None:
        """Return the exceeded limit, or count one more request. Raise ``StoreError``.

        A budget that only alerts (``soft_alert``) counts the request in either case.
        """

    def add_cost(self, agent_id: str, budget: Budget, cost: float | None, on_error: OnWriteError) -> None:
        """Add the cost of a counted request; None if it is unknown. The write may happen later."""

    async def close(self) -> None:
        """Wait for pending writes, and close."""
