"""Spending of agents in the window of their budget: the port, its records, and the
arithmetic of buckets.

A bucket is named by its end, and leaves the window when the window begins after that end. So no
bucket leaves too early, and ``Retry-After`` is never too short (docs/spec/mediation.md section 8).

A limit in dollars also counts what requests under way may cost. Each has a reservation:

    asked for      in the transaction that counts the request: its estimate must fit into what is left of the limit
    held           at least the estimate, and what this agent's requests have cost on average;
                   the whole limit while nothing is known of their cost, so that one request goes ahead alone
    settled        removed in the transaction that adds the cost
    renewed        every ``RENEWAL_SECONDS`` by the process that made it
    lapsed         not renewed for ``LAPSE_SECONDS``, because that process died: the next request of the agent
                   adds its estimate to what is spent, and marks it as charged (a process that was only silent corrects it)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal, NamedTuple, Protocol

from claw_contract.metadata import Budget

type OnWriteError = Callable[[str], None]
MAX_AHEAD_SECONDS = 61.0
"""A bucket that ends further ahead is of a clock that was set back: it counts from now on, and not
until its time comes.
"""
LAPSE_SECONDS = (
    60.0  # Without a sign of life of its process, after which a reservation becomes spending
)
RENEWAL_SECONDS = LAPSE_SECONDS / 4
_RETRY_RESERVED_SECONDS = (
    2  # The time to wait where only requests under way are in the way: any may end at any moment
)
_ROUNDING = 1e-9  # Sums of floats: 0.1 + 0.2 fits into 0.3
_MIN_BUCKETS = (
    60  # Buckets of a window. No bucket is longer than a minute or shorter than a second.
)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Spending in the interval that ends at ``ends`` (seconds since 1970)."""

    ends: float
    requests: int
    cost: float
    unknown: int  # Requests whose cost is not known; what ``cost`` has of them is an estimate


@dataclass(eq=False, slots=True, weakref_slot=True)
class Reservation:
    """The dollars that a request under way may cost.

    ``id`` is the turn's: an attempt that resumes it takes its place.
    """

    id: str
    agent_id: str
    estimate: float
    """The expected cost: the charge if the true cost stays unknown.

    Without a price it is set at admission, to what the agent's requests have cost on average.
    """
    needed: float  # What must be left of the limit before it is admitted


class Charge(NamedTuple):
    """The charge for a request in US dollars; an estimate (or 0.0) where the cost is not known."""

    cost: float
    is_known: bool = True
    reservation: Reservation | None = None


CHARGED = (
    -1.0
)  # Is held in place of an amount where a reservation has lapsed, and its estimate was charged


class Hold(NamedTuple):
    """A reservation as it is stored.

    ``seen``: when its process last renewed it, or when it was charged.
    """

    id: str
    estimate: float
    held: float
    seen: float


@dataclass(frozen=True, slots=True)
class BudgetExcess:
    """An exhausted budget: the limit, the seconds until a request fits, and the
    totals of the window.
    """

    limit: Literal["max_requests", "limit_usd"]
    retry_after: int
    requests: int
    cost: float
    unknown: int
    reserved: float = 0.0
    is_reserved_only: bool = False
    """True if there is room as soon as requests under way have ended, and have cost
    little enough.
    """


def bucket_width(budget: Budget) -> float:
    """Return the length of a bucket in seconds."""
    return max(1.0, min(60.0, budget.seconds / _MIN_BUCKETS))


def bucket_end(budget: Budget, now: float) -> float:
    """Return the end of the bucket that contains ``now``."""
    width = bucket_width(budget)
    return (math.floor(now / width) + 1) * width


def has_lapsed(seen: float, now: float) -> bool:
    """Return whether a reservation's process is gone.

    A sign of life from the future is of a clock that was set back.
    """
    return not abs(now - seen) < LAPSE_SECONDS


def fix_estimate(buckets: Sequence[Bucket], under_way: int, reservation: Reservation) -> float:
    """Set the estimate of a request without one to the agent's average.

    Return the average; 0.0 if none is known.

    ``under_way``: requests that are counted in the buckets, and whose cost is not.
    """
    settled = sum(bucket.requests for bucket in buckets) - under_way
    average = max(0.0, math.fsum(bucket.cost for bucket in buckets)) / max(settled, 1)
    reservation.estimate = reservation.estimate or average
    return average


def amount_to_hold(
    budget: Budget, buckets: Sequence[Bucket], average: float, estimate: float
) -> float:
    """Return the dollars to hold for a request that is admitted."""
    is_cost_known = average > 0 or any(bucket.unknown for bucket in buckets)
    return max(estimate, average if is_cost_known else budget.limit_usd or 0.0)


def find_excess(
    budget: Budget,
    buckets: Sequence[Bucket],
    now: float,
    reserved: float = 0.0,
    needed: float = 0.0,
) -> BudgetExcess | None:
    """Return the limit that allows no further request, or None.

    ``reserved``: dollars held for requests under way; ``needed``: dollars that this request must
    find left.
    """
    current = sorted(
        (bucket for bucket in buckets if bucket.ends > now - budget.seconds),
        key=lambda bucket: bucket.ends,
    )
    requests = sum(bucket.requests for bucket in current)
    costs = [bucket.cost for bucket in current]
    cost = max(0.0, math.fsum(costs))
    unknown = sum(bucket.unknown for bucket in current)
    waits: dict[
        Literal["max_requests", "limit_usd"], int
    ] = {}  # Seconds until there is room, by limit
    is_reserved_only = False

    def wait_until_free(amounts: Sequence[float], has_room: Callable[[float], bool]) -> int:
        free_at = _free_at(current, amounts, has_room)
        return max(1, math.ceil(free_at + budget.seconds - now))

    max_requests, limit = budget.max_requests, budget.limit_usd
    if max_requests is not None and requests >= max_requests:
        counts = [bucket.requests for bucket in current]
        waits["max_requests"] = wait_until_free(counts, lambda left: left < max_requests)

    if limit is not None and not _has_room(limit, cost + reserved, needed):
        is_reserved_only = _has_room(limit, cost, needed) and not waits
        waits["limit_usd"] = _RETRY_RESERVED_SECONDS
        if not _has_room(limit, cost, needed):
            waits["limit_usd"] = wait_until_free(costs, lambda left: _has_room(limit, left, needed))

    if not waits:
        return None
    name, retry_after = max(waits.items(), key=itemgetter(1))
    return BudgetExcess(name, retry_after, requests, cost, unknown, reserved, is_reserved_only)


def _has_room(limit: float, used: float, needed: float) -> bool:
    """Return whether a request fits.

    The first one does, however dear it is: else it could never be made.
    """
    if used <= limit * _ROUNDING:
        return True
    return used < limit and used + needed <= limit * (1 + _ROUNDING)


def _free_at(
    buckets: Sequence[Bucket], amounts: Sequence[float], has_room: Callable[[float], bool]
) -> float:
    left = math.fsum(amounts)
    for bucket, amount in zip(buckets, amounts, strict=True):
        left -= amount
        if has_room(left):
            return bucket.ends
    return buckets[-1].ends


class Spending(Protocol):
    """A persistent count of each agent's spending."""

    async def count_request(
        self, agent_id: str, budget: Budget, reservation: Reservation | None = None
    ) -> BudgetExcess | None:
        """Return the exceeded limit, or count one more request and store its reservation.

        Raise ``StoreError``.

        A budget that only alerts (``soft_alert``) counts the request in either case.
        """

    def add_cost(
        self, agent_id: str, budget: Budget, charge: Charge, on_error: OnWriteError
    ) -> None:
        """Add the cost of a counted request, and remove its reservation.

        The write may happen later.
        """

    async def renew(self, reservations: Sequence[Reservation]) -> int:
        """Show that these are under way; return how many are still reserved. Raise ``StoreError``.

        One whose estimate has changed holds that from now on.
        """

    async def close(self) -> None:
        """Wait for pending writes, and close."""
