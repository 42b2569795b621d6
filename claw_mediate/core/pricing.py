"""The price of a request, from its provider's own figure or from the price list. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from claw_contract.base import JsonObject
from claw_contract.prices import Price

_MILLION = 1_000_000
_MAX_AMOUNT = 1e12


def find_price(prices: Mapping[str, Price], provider: str, model: str) -> Price | None:
    """Return the price of a model: of all names that it begins with, the longest, with its provider before without."""
    for name in (f"{provider}/{model}", model):
        if matches := [known for known in prices if name.startswith(known)]:
            return prices[max(matches, key=len)]
    return None


def compute_cost(usage: JsonObject, price: Price | None) -> float | None:
    """Return US dollars: the provider's own figure, else the price list's, else None. A response without usage has no cost."""
    reported = _amount(usage.get("cost"))
    if reported is not None or price is None:
        return reported
    tokens = _openai_tokens(usage) or _anthropic_tokens(usage)
    if tokens is None:
        return None
    fresh, cached, output = tokens
    cached_price = price.input if price.cached_input is None else price.cached_input
    return (fresh * price.input + cached * cached_price + output * price.output) / _MILLION


def _openai_tokens(usage: JsonObject) -> tuple[float, float, float] | None:
    """Return (fresh input, cached input, output): the cached tokens are a part of the input."""
    chat = "prompt_tokens", "prompt_tokens_details", "completion_tokens"
    responses = "input_tokens", "input_tokens_details", "output_tokens"
    names = responses if responses[1] in usage else chat
    prompt, details, output = (usage.get(name) for name in names)
    if (tokens := _amount(prompt)) is None:
        return None
    cached = min(_amount(details.get("cached_tokens")) or 0.0 if isinstance(details, dict) else 0.0, tokens)
    return tokens - cached, cached, _amount(output) or 0.0


def _anthropic_tokens(usage: JsonObject) -> tuple[float, float, float] | None:
    """Return (fresh input, cached input, output): cache reads and writes are counted beside ``input_tokens``."""
    fresh, written, cached, output = (
        _amount(usage.get(name))
        for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    )
    return None if fresh is None else (fresh + (written or 0.0), cached or 0.0, output or 0.0)


def _amount(value: object) -> float | None:
    """Return a plausible amount, or None: a provider's odd numbers must not give money back."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_AMOUNT:
        return None
    return float(value)
