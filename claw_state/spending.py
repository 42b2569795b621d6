"""What each agent has spent in its budget's window: the port, its records, and the arithmetic of buckets.

Spending is kept in buckets, each named by when it ends: what happened in it has left the window when the window begins behind
that end. So a bucket never leaves too early, and ``Retry-After`` is never too short (docs/spec/mediation.md section 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from claw_contract.metadata import Budget

type OnWriteError = Callable[[str], None]
_BUCKETS = 60
"""In a window, at least; no bucket is longer than a minute, and none shorter than a second."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """What was spent until ``ends``."""

    ends: float
    requests: int
    cost: float
    unknown: int
    """Requests whose cost nobody told."""


@dataclass(frozen=True, slots=True)
class BudgetExcess:
    """A budget that is spent: which limit, and the seconds until enough of the window has passed."""

    limit: Literal["max_requests", "limit_usd"]
    retry_after: int
    requests: int
    cost: float
    unknown: int


def bucket_width(budget: Budget) -> float:
    """Seconds of a bucket."""
    return max(1.0, min(60.0, budget.seconds / _BUCKETS))


def bucket_end(budget: Budget, now: float) -> float:
    """The end of the bucket that ``now`` belongs to."""
    width = bucket_width(budget)
    return (math.floor(now / width) + 1) * width


def find_excess(budget: Budget, buckets: Sequence[Bucket], now: float) -> BudgetExcess | None:
    """The limit that leaves no room for one more request; None when there is room."""
    current = sorted((bucket for bucket in buckets if bucket.ends > now - budget.seconds), key=lambda kept: kept.ends)
    requests = sum(bucket.requests for bucket in current)
    cost = math.fsum(bucket.cost for bucket in current)
    unknown = sum(bucket.unknown for bucket in current)
    limits: list[tuple[Literal["max_requests", "limit_usd"], float]] = []
    if budget.max_requests is not None and requests >= budget.max_requests:
        left = [bucket.requests for bucket in current]
        limits.append(("max_requests", _free_at(current, left, budget.max_requests)))
    if budget.limit_usd is not None and cost >= budget.limit_usd:
        limits.append(("limit_usd", _free_at(current, [bucket.cost for bucket in current], budget.limit_usd)))
    if not limits:
        return None
    name, free_at = max(limits, key=lambda limit: limit[1])
    return BudgetExcess(name, max(1, math.ceil(free_at + budget.seconds - now)), requests, cost, unknown)


def _free_at(buckets: Sequence[Bucket], amounts: Sequence[float], limit: float) -> float:
    """The end of the bucket with which enough goes."""
    left = math.fsum(amounts)
    for bucket, amount in zip(buckets, amounts, strict=True):
        left -= amount
        if left < limit:
            return bucket.ends
    return buckets[-1].ends


class Spending(Protocol):
    """What each agent has spent in its window."""

    async def count(self, agent_id: str, budget: Budget) -> BudgetExcess | None:
        """One more request, where there is room for it, or where the budget only tells. Raises ``StoreError``."""

    def add(self, agent_id: str, budget: Budget, cost: float | None, failed: OnWriteError) -> None:
        """What a request cost that was counted; None: nobody knows. It may be written later."""

    async def close(self) -> None:
        """When all is written."""
