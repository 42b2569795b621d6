"""The records of turns and calls."""

from __future__ import annotations

import pytest

from claw_audit.turns import parse_time, usage_of_attempt


@pytest.mark.requirement("budget:cost-unknown")
def test_an_estimate_is_counted_beside_the_known_cost_and_an_odd_one_is_none() -> None:
    used = usage_of_attempt(1, 1, 0, 0.25, 0.5)
    used.add(usage_of_attempt(1, 1, 0, None, 0.25))
    for odd in (-1, "1", True, None):
        used.add(usage_of_attempt(1, 1, 0, 0.0, odd))
    assert (used.cost_usd, used.estimated_usd, used.unpriced) == (0.25, 0.75, 1)


@pytest.mark.requirement("audit:damaged")
@pytest.mark.parametrize(
    ("ts", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("1970-01-01T00:00:07", 7.0),
        ("1969-12-31T23:59:59Z", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_a_time_without_a_zone_is_in_utc_and_an_odd_one_is_none(
    ts: str, seconds: float | None
) -> None:
    assert parse_time(ts) == seconds
