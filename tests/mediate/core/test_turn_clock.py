"""The clock of a turn, which stands still while a reply flows."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.core.turn_clock import TurnClock

pytestmark = pytest.mark.requirement("live:clock-stops")


@given(
    st.lists(
        st.tuples(st.sampled_from(["stop", "start", "look"]), st.integers(0, 1000)), max_size=20
    )
)
def test_it_shows_the_time_without_its_stops_and_never_goes_back(
    steps: list[tuple[str, int]],
) -> None:
    now = Fraction(100)
    clock = TurnClock(lambda: now)  # type: ignore[arg-type, return-value] - exact seconds
    is_stopped = False
    ran = Fraction(0)
    for step, seconds in steps:
        if step == "stop":
            clock.stop()
            is_stopped = True
        elif step == "start":
            clock.start()
            is_stopped = False

        now += seconds
        if not is_stopped:
            ran += seconds
        assert clock.now() == 100 + ran

    clock.start()
    assert clock.now() == 100 + ran
