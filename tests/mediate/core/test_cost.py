"""The rules of budgets: windows, buckets, and the cost of a request."""

from __future__ import annotations

from typing import Any

import pytest

from claw_contract.prices import Price
from claw_mediate.core.cost import compute_cost, find_price

PRICES = {
    "openai/gpt-4o": Price(input=2.5, output=10.0, cached_input=1.25),
    "openai/gpt-4o-mini": Price(input=0.15, output=0.6),
    "claude-sonnet-4": Price(input=3.0, output=15.0, cached_input=0.3),
    "gpt-4o": Price(input=100.0, output=100.0),
}


@pytest.mark.requirement("budget:cost")
@pytest.mark.parametrize(
    ("provider", "model", "name"),
    [
        ("openai", "gpt-4o", "openai/gpt-4o"),
        ("openai", "gpt-4o-2024-08-06", "openai/gpt-4o"),
        ("openai", "gpt-4o-mini-2024", "openai/gpt-4o-mini"),
        ("anthropic", "claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("other", "gpt-4o", "gpt-4o"),
        ("openai", "gpt-4", None),
        ("x", "", None),
    ],
)
def test_the_longest_name_that_fits_is_the_price(
    provider: str, model: str, name: str | None
) -> None:
    assert find_price(PRICES, provider, model) == (PRICES[name] if name else None)


@pytest.mark.requirement("budget:cost")
@pytest.mark.parametrize(
    ("usage", "price", "cost"),
    [
        ({"prompt_tokens": 1000, "completion_tokens": 100}, "openai/gpt-4o", 0.0025 + 0.001),
        (
            {
                "prompt_tokens": 1000,
                "completion_tokens": 0,
                "prompt_tokens_details": {"cached_tokens": 400},
            },
            "openai/gpt-4o",
            0.0015 + 0.0005,
        ),
        (
            {
                "input_tokens": 100,
                "cache_creation_input_tokens": 200,
                "cache_read_input_tokens": 1000,
                "output_tokens": 10,
            },
            "claude-sonnet-4",
            0.0009 + 0.0003 + 0.00015,
        ),
        (
            {
                "input_tokens": 1000,
                "input_tokens_details": {"cached_tokens": 400},
                "output_tokens": 100,
            },
            "openai/gpt-4o",
            0.0015 + 0.0005 + 0.001,
        ),
        ({"prompt_tokens": 1000, "completion_tokens": 100, "cost": 0.5}, "openai/gpt-4o", 0.5),
        ({"prompt_tokens": 1, "cost": 0.25}, None, 0.25),
        ({"prompt_tokens": 1}, None, None),
        ({}, "openai/gpt-4o", None),
        ({"prompt_tokens": 1000, "completion_tokens": None}, "openai/gpt-4o", 0.0025),
    ],
)
def test_a_cost_is_what_the_provider_says_else_what_the_list_says_else_unknown(
    usage: dict[str, Any], price: str | None, cost: float | None
) -> None:
    found = compute_cost(usage, PRICES[price] if price else None)
    assert found == (None if cost is None else pytest.approx(cost))


ODD = [-1, -0.5, True, "5", None, [], {}, 10**400, float("inf"), float("nan")]


@pytest.mark.requirement("budget:cost")
@pytest.mark.parametrize("odd", ODD)
def test_odd_numbers_of_a_provider_never_give_money_back(odd: Any) -> None:
    price = PRICES["openai/gpt-4o"]
    for usage in (
        {"cost": odd, "prompt_tokens": 10},
        {"prompt_tokens": odd},
        {"input_tokens": odd, "output_tokens": odd},
        {
            "prompt_tokens": 10,
            "completion_tokens": odd,
            "prompt_tokens_details": {"cached_tokens": odd},
        },
    ):
        cost = compute_cost(usage, price)
        assert cost is None or 0 <= cost < 1e6
