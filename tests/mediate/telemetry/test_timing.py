"""A turn's own time is its duration without the time that it waited."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pytest

from claw_mediate.core.model_policy import Candidate, Provider
from claw_mediate.telemetry.timing import Stopwatch

pytestmark = pytest.mark.requirement("metrics:counts")

CANDIDATE = Candidate(Provider("openai", "http://provider/v1", "bearer", "openai", ()), "gpt-test")


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_that_several_calls_wait_for_at_once_counts_once() -> None:
    clock = Clock()
    stopwatch = Stopwatch(clock)
    clock.now += 0.5
    with stopwatch.waiting():
        clock.now += 1
        with stopwatch.waiting():
            clock.now += 2
        clock.now += 4
    clock.now += 0.25
    with stopwatch.waiting():
        clock.now += 8
    assert stopwatch.timings.own_ms == 750


def test_a_model_call_is_recorded_with_its_status_and_its_time() -> None:
    clock = Clock()
    stopwatch = Stopwatch(clock)
    with stopwatch.model_call(CANDIDATE) as set_status:
        clock.now += 1.5
        set_status(200)
    (call,) = stopwatch.timings.model_calls
    assert (call.provider, call.model, call.status_code) == ("openai", "gpt-test", 200)
    assert call.latency_ms == 1500
    assert stopwatch.timings.own_ms == 0


def test_a_model_call_that_was_cut_short_is_recorded_without_a_status() -> None:
    clock = Clock()
    stopwatch = Stopwatch(clock)
    with suppress(TimeoutError), stopwatch.model_call(CANDIDATE):
        clock.now += 3
        raise TimeoutError
    (call,) = stopwatch.timings.model_calls
    assert (call.status_code, call.latency_ms) == (None, 3000)
    assert stopwatch.timings.own_ms == 0, "the wait has ended"
