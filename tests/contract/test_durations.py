"""Durations as Go writes them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.durations import parse_duration


@pytest.mark.requirement("budget:window")
@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("24h", 86_400),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("90s", 90),
        ("500ms", 0.5),
        ("1m0.5s", 60.5),
        ("+2m", 120),
        (".5s", 0.5),
        ("1µs", 1e-6),
        ("1us", 1e-6),
    ],
)
def test_a_duration_is_its_seconds(text: str, length: float) -> None:
    assert parse_duration(text) == pytest.approx(length)


WRONG = [
    "",
    "0",
    "0s",
    "-1h",
    "24",
    "h",
    "1d",
    "1 h",
    "1h ",
    "1h,1m",
    "1e3s",
    "１h",
    "1H",
    ".s",
    "1h-1m",
]


@pytest.mark.requirement("budget:window")
@pytest.mark.parametrize("text", WRONG)
def test_other_text_and_zero_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a window is a duration above zero"):
        parse_duration(text)


@given(st.text(alphabet="0123456789.hmsuµn+- ", max_size=12))
def test_any_text_is_a_positive_number_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert parse_duration(text) > 0
