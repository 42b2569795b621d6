"""Limits of the log lines that anybody can cause."""

from __future__ import annotations

import pytest

from claw_contract.limits import PERIOD_SECONDS, LineLimit


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.requirement("connections:refusals-limited")
def test_lines_of_each_kind_are_limited_and_the_next_says_how_many_are_missing(
    clock: Clock,
) -> None:
    limit = LineLimit(max_lines=2, clock=clock)
    assert [limit.take("wrong token for agent a") for _ in range(5)] == [0, 0, None, None, None]
    assert limit.take("wrong token for agent b") == 0
    clock.now += PERIOD_SECONDS
    assert limit.take("wrong token for agent a") == 3
    assert limit.take("wrong token for agent a") == 0


@pytest.mark.requirement("connections:refusals-limited")
def test_kinds_that_strangers_make_up_take_bounded_memory(clock: Clock) -> None:
    limit = LineLimit(max_lines=1, clock=clock)
    passed = [limit.take(f"host {number}") for number in range(5000)]
    assert passed.count(0) == 1001


@pytest.mark.requirement("connections:refusals-limited")
def test_kinds_that_strangers_made_up_are_forgotten_though_lines_of_them_were_left_out(
    clock: Clock,
) -> None:
    limit = LineLimit(max_lines=1, clock=clock)
    for number in range(2000):
        limit.take(f"host {number}")
        limit.take(f"host {number}")
    clock.now += PERIOD_SECONDS

    assert limit.take("host of an operator") == 0
    assert limit.take("another one") == 0
    left_out = [limit.take(f"host {number}") for number in range(3000, 5000)]
    assert sum(filter(None, left_out)) == 2 * 2000 - 1001  # all that were not logged
