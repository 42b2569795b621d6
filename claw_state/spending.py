"""Spending of agents in the window of their budget: its port, records and arithmetic.

docs/spec/mediation.md section 8.

A bucket is named by its end, and leaves the window when the window begins after that end. So no
bucket leaves too early, and ``Retry-After`` is never too short.

A limit in dollars also counts what requests under way may cost. Each has a reservation, which is

    made      in the transaction that counts the request; its estimate must fit into the rest of
              the limit
    held      at the estimate, or at the average cost of this agent's requests if that is more;
              while no cost is known it holds the whole limit, so that one request goes ahead alone
    renewed   every ``RENEWAL_SECONDS``, by the process that made it
    settled   in the transaction that adds the cost: it is removed
    lapsed    if it was not renewed for ``LAPSE_SECONDS``, because its process died: the agent's
              next request adds its estimate to the spending and marks it as charged; if the
              process was only silent, it corrects that later
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal, NamedTuple, Protocol

from claw_contract.metadata import Budget

type OnWriteError = Callable[[str], None]

MAX_AHEAD_SECONDS = 61.0
"""A bucket that ends further ahead was made by a clock that was set back since.

It counts as spent now, else it would count until its own time comes.
"""
LAPSE_SECONDS = 60.0
"""Without a sign of life of its process for so long, a reservation becomes spending."""
RENEWAL_SECONDS = LAPSE_SECONDS / 4
_RETRY_RESERVED_SECONDS = 2
"""The time to wait if only requests under way fill the limit: any may end at any moment."""
_ROUNDING = 1e-9  # Sums of floats: 0.1 + 0.2 fits into 0.3
_MIN_BUCKETS = 60
"""A window has at least so many buckets, unless they would be shorter than a second."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Spending in the interval that ends at ``ends`` (seconds since 1970)."""

    ends: float
    requests: int
    cost: float
    unknown: int  # Requests whose cost is not known: ``cost`` contains their estimates


@dataclass(eq=False, slots=True, weakref_slot=True)
class Reservation:
    """The dollars that a request under way may cost."""

    id: str
    """The turn's id, so that an attempt that resumes the turn replaces the reservation."""
    agent_id: str
    estimate: float
    """The expected cost, which is charged if the true cost stays unknown.

    0.0 without a price; then admission sets it to the average cost of the agent's requests.
    """
    needed: float
    """The dollars that must be left of the limit for the request to be admitted."""


class Charge(NamedTuple):
    """The charge for a request in US dollars."""

    cost: float  # An estimate, or 0.0, if the cost is not known
    is_known: bool = True
    reservation: Reservation | None = None


CHARGED = -1.0
"""The value of ``Hold.held`` after the reservation has lapsed and its estimate was charged."""


class Hold(NamedTuple):
    """A reservation as it is stored."""

    id: str
    estimate: float
    held: float
    seen: float  # When its process last renewed it, or when it was charged


@dataclass(frozen=True, slots=True)
class BudgetExcess:
    """An exhausted budget, and the totals of its window."""

    limit: Literal["max_requests", "limit_usd"]
    retry_after: int  # Seconds until a request fits
    requests: int
    cost: float
    unknown: int
    reserved: float = 0.0
    is_reserved_only: bool = False
    """True if a request fits as soon as those under way have ended, and have cost little enough."""


def bucket_width(budget: Budget) -> float:
    """Return the length of a bucket in seconds."""
    return max(1.0, min(60.0, budget.seconds / _MIN_BUCKETS))


def bucket_end(budget: Budget, now: float) -> float:
    """Return the end of the bucket that contains ``now``."""
    width = bucket_width(budget)
    return (math.floor(now / width) + 1) * width


def has_lapsed(seen: float, now: float) -> bool:
    """Return whether a reservation's process is gone.

    After a clock was set back, ``seen`` may be in the future: the distance counts.
    """
    # Not ">=", so that a reservation whose time is NaN has lapsed.
    return not abs(now - seen) < LAPSE_SECONDS


def average_cost(buckets: Sequence[Bucket], under_way: int) -> float:
    """Return the average cost of the agent's requests; 0.0 if no cost is known.

    ``under_way``: the number of requests that the buckets count, but not yet their costs.
    """
    settled = sum(bucket.requests for bucket in buckets) - under_way
    cost = max(0.0, math.fsum(bucket.cost for bucket in buckets))
    return cost / max(settled, 1)


def amount_to_hold(
    budget: Budget, buckets: Sequence[Bucket], average: float, estimate: float
) -> float:
    """Return the dollars to hold for a request that is admitted."""
    is_cost_known = average > 0 or any(bucket.unknown for bucket in buckets)
    if is_cost_known:
        return max(estimate, average)
    return max(estimate, budget.limit_usd or 0.0)


def find_excess(
    budget: Budget,
    buckets: Sequence[Bucket],
    now: float,
    reserved: float = 0.0,
    needed: float = 0.0,
) -> BudgetExcess | None:
    """Return the limit that allows no further request, or None.

    Of two such limits, return the one with the longer wait.

    ``reserved``: the dollars that are held for requests under way. ``needed``: the dollars that
    must be left for this request.
    """
    current = [bucket for bucket in buckets if bucket.ends > now - budget.seconds]
    current.sort(key=lambda bucket: bucket.ends)
    counts = [bucket.requests for bucket in current]
    costs = [bucket.cost for bucket in current]
    requests = sum(counts)
    cost = max(0.0, math.fsum(costs))

    def wait_until_free(amounts: Sequence[float], has_room: Callable[[float], bool]) -> int:
        """Return the seconds until enough buckets have left the window."""
        free_at = _free_at(current, amounts, has_room)
        return max(1, math.ceil(free_at + budget.seconds - now))

    # Each limit into which this request does not fit, with the seconds until it does.
    waits: dict[Literal["max_requests", "limit_usd"], int] = {}

    max_requests = budget.max_requests
    if max_requests is not None and requests >= max_requests:
        waits["max_requests"] = wait_until_free(counts, lambda left: left < max_requests)

    limit = budget.limit_usd
    fits_without_others = False
    if limit is not None and not _has_room(limit, cost + reserved, needed):
        fits_without_others = _has_room(limit, cost, needed)
        if fits_without_others:
            # A request under way may end at any moment, and release what is held for it.
            waits["limit_usd"] = _RETRY_RESERVED_SECONDS
        else:
            waits["limit_usd"] = wait_until_free(costs, lambda left: _has_room(limit, left, needed))

    if not waits:
        return None

    name, retry_after = max(waits.items(), key=itemgetter(1))
    return BudgetExcess(
        limit=name,
        retry_after=retry_after,
        requests=requests,
        cost=cost,
        unknown=sum(bucket.unknown for bucket in current),
        reserved=reserved,
        is_reserved_only=fits_without_others and "max_requests" not in waits,
    )


def _has_room(limit: float, used: float, needed: float) -> bool:
    """Return whether a request fits into a limit of which ``used`` is used.

    The first request always fits: else one that costs more than the limit could never be made.
    """
    if used <= limit * _ROUNDING:
        return True
    return used < limit and used + needed <= limit * (1 + _ROUNDING)


def _free_at(
    buckets: Sequence[Bucket], amounts: Sequence[float], has_room: Callable[[float], bool]
) -> float:
    """Return the end of the first bucket that makes room when it leaves the window.

    Buckets leave in their order. ``amounts`` has what each bucket adds. ``has_room`` is called with
    the sum of the buckets that are left.
    """
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

        A budget that only alerts (``soft_alert``) counts the request in either case. Raise
        ``StoreError``.
        """

    def add_cost(
        self, agent_id: str, budget: Budget, charge: Charge, on_error: OnWriteError
    ) -> None:
        """Add the cost of a counted request, and remove its reservation.

        The write may happen later; ``on_error`` gets the reason if it fails.
        """

    async def renew(self, reservations: Sequence[Reservation]) -> int:
        """Record that these are under way, and return how many are still reserved.

        If an estimate has changed, its reservation holds the new one. Raise ``StoreError``.
        """

    async def close(self) -> None:
        """Wait for pending writes, and close."""
