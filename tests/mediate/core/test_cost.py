"""The rules of budgets: windows, buckets, and the cost of a request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.metadata import Budget
from claw_contract.prices import Price
from claw_mediate.core.cost import compute_cost, find_price
from claw_state.spending import Bucket, bucket_end, find_excess


def budget(**more: Any) -> Budget:
    return Budget.model_validate({"window": "1h", **more})


HOUR = 3600.0


@pytest.mark.requirement("budget:retry-after")
def test_room_comes_back_when_enough_of_the_window_has_passed() -> None:
    spent = [Bucket(1020, 2, 0, 0), Bucket(1080, 1, 0, 0)]
    assert find_excess(budget(max_requests=4), spent, 1100.0) is None
    three, two = (
        find_excess(budget(max_requests=3), spent, 1100.0),
        find_excess(budget(max_requests=1), spent, 1100.0),
    )
    assert three is not None
    assert two is not None
    assert (three.limit, three.requests, three.retry_after) == (
        "max_requests",
        3,
        1020 + 3600 - 1100,
    )
    assert two.retry_after == 1080 + 3600 - 1100


@pytest.mark.requirement("budget:retry-after")
def test_money_counts_like_requests_and_the_later_of_two_limits_is_told() -> None:
    spent = [Bucket(60, 1, 4.0, 0), Bucket(120, 9, 2.0, 1)]
    money, requests = (
        find_excess(budget(limit_usd=5), spent, 130.0),
        find_excess(budget(limit_usd=5, max_requests=9), spent, 130.0),
    )
    assert money is not None
    assert requests is not None
    assert (money.limit, money.cost, money.unknown, money.retry_after) == (
        "limit_usd",
        6.0,
        1,
        60 + 3600 - 130,
    )
    assert (requests.limit, requests.retry_after) == ("max_requests", 120 + 3600 - 130)
    assert find_excess(budget(limit_usd=6.01), spent, 130.0) is None


@pytest.mark.requirement("budget:window")
def test_what_has_left_the_window_does_not_count() -> None:
    assert find_excess(budget(max_requests=1), [Bucket(60, 5, 9, 0)], 60 + HOUR) is None
    assert find_excess(budget(max_requests=1), [Bucket(60, 5, 9, 0)], 60 + HOUR - 1) is not None


@pytest.mark.requirement("budget:retry-after")
@given(
    st.lists(st.tuples(st.floats(0, 3600), st.integers(1, 4)), min_size=1, max_size=20),
    st.integers(1, 30),
    st.sampled_from(["10s", "5m", "1h", "24h"]),
)
def test_after_the_time_that_it_says_there_is_room_and_never_more_than_the_limit_in_any_window(
    made: list[tuple[float, int]], most: int, window: str
) -> None:
    rule = budget(max_requests=most, window=window)
    buckets = [Bucket(bucket_end(rule, at), count, 0.0, 0) for at, count in made]
    now = max(at for at, _ in made)
    found = find_excess(rule, buckets, now)
    current = sum(count for at, count in made if at > now - rule.seconds)
    if current >= most:
        assert found is not None
    if found is not None:
        assert found.retry_after >= 1
        assert find_excess(rule, buckets, now + found.retry_after) is None


@pytest.mark.requirement("budget:window")
@given(st.floats(0, 1e10), st.sampled_from(["1s", "10s", "10m", "1h", "720h"]))
def test_a_bucket_ends_after_now_and_soon(now: float, window: str) -> None:
    rule = budget(window=window)
    end = bucket_end(rule, now)
    assert now < end <= now + max(1.0, min(60.0, rule.seconds / 60)) + 1e-3


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
