"""What an agent has spent in its window, and what a request costs (spec/mediation.md section 8, budgets). Pure.

Spending is kept in buckets, each named by when it ends: what happened in it has left the window when the window begins behind
that end. So a bucket never leaves too early, and ``Retry-After`` is never too short.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from claw_contract.base import JsonObject
from claw_contract.metadata import Budget
from claw_contract.prices import Price

_MILLION = 1_000_000
_BEYOND_ANY_BILL = 1e12
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
class Over:
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


def over(budget: Budget, buckets: Sequence[Bucket], now: float) -> Over | None:
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
    return Over(name, max(1, math.ceil(free_at + budget.seconds - now)), requests, cost, unknown)


def priced(prices: Mapping[str, Price], provider: str, model: str) -> Price | None:
    """The price of a model: of all names that it begins with, the longest, that with its provider before that without."""
    for name in (f"{provider}/{model}", model):
        if fitting := [known for known in prices if name.startswith(known)]:
            return prices[max(fitting, key=len)]
    return None


def cost_of(usage: JsonObject, price: Price | None) -> float | None:
    """US dollars: what the provider says, else what the price list says, else None. An answer without usage tells nothing."""
    reported = _amount(usage.get("cost"))
    if reported is not None or price is None:
        return reported
    tokens = _openai_tokens(usage) or _anthropic_tokens(usage)
    if tokens is None:
        return None
    fresh, cached, output = tokens
    cached_price = price.input if price.cached_input is None else price.cached_input
    return (fresh * price.input + cached * cached_price + output * price.output) / _MILLION


def _free_at(buckets: Sequence[Bucket], amounts: Sequence[float], limit: float) -> float:
    """The end of the bucket with which enough goes."""
    left = math.fsum(amounts)
    for bucket, amount in zip(buckets, amounts, strict=True):
        left -= amount
        if left < limit:
            return bucket.ends
    return buckets[-1].ends


def _openai_tokens(usage: JsonObject) -> tuple[float, float, float] | None:
    """(fresh input, cached input, output): the cached ones are a part of the input."""
    chat = "prompt_tokens", "prompt_tokens_details", "completion_tokens"
    responses = "input_tokens", "input_tokens_details", "output_tokens"
    names = responses if responses[1] in usage else chat
    prompt, details, output = (usage.get(name) for name in names)
    if (tokens := _amount(prompt)) is None:
        return None
    cached = min(_amount(details.get("cached_tokens")) or 0.0 if isinstance(details, dict) else 0.0, tokens)
    return tokens - cached, cached, _amount(output) or 0.0


def _anthropic_tokens(usage: JsonObject) -> tuple[float, float, float] | None:
    """The same: what was read from a cache or written to it comes beside ``input_tokens``."""
    fresh, written, cached, output = (
        _amount(usage.get(name))
        for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    )
    return None if fresh is None else (fresh + (written or 0.0), cached or 0.0, output or 0.0)


def _amount(value: object) -> float | None:
    """A number that a bill can hold: a provider's odd numbers must not give money back."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _BEYOND_ANY_BILL:
        return None
    return float(value)
