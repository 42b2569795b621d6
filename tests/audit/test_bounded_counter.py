"""Counters of bounded size."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_audit.bounded_counter import HashSet, LatencyHistogram, hash_names


@pytest.mark.requirement("audit:quantiles")
@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=60), st.sampled_from([0.5, 0.95]))
def test_a_quantile_is_a_value_that_occurred_to_within_one_percent(
    times: list[int], part: float
) -> None:
    latencies = LatencyHistogram()
    for ms in times:
        latencies.add(ms)
    exact = sorted(times)[math.ceil(part * len(times)) - 1]
    assert abs((latencies.quantile(part) or 0) - exact) <= 0.01 * exact


@pytest.mark.requirement("audit:constant-memory")
def test_a_hash_set_knows_every_hash_that_was_added_and_no_other() -> None:
    known = HashSet()
    for number in range(140_000):
        known.add(hash_names("analyst", f"turn_{number}"))
    assert all(hash_names("analyst", f"turn_{number}") in known for number in range(0, 140_000, 97))
    assert not any(
        hash_names("clerk", f"turn_{number}") in known for number in range(0, 140_000, 97)
    )
