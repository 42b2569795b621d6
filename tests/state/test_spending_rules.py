"""The rules of budgets: windows and buckets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.metadata import Budget
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
