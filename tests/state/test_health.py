"""The health of a state: each change is reported once, and a permanent fault stays."""

from __future__ import annotations

import pytest

from claw_state import health as health_module
from claw_state.health import Health, StateUnavailableError


@pytest.mark.requirement("state:outage")
def test_a_failure_is_reported_once_and_the_next_write_reports_that_it_is_over() -> None:
    reports: list[str | None] = []
    health = Health(reports.append)
    health.record_write()
    errors = [health.fail("the disk is full"), health.fail("the disk is still full")]
    assert [str(error) for error in errors] == ["the disk is full", "the disk is still full"]
    health.record_write()
    health.record_write()
    assert reports == ["the disk is full", None]


@pytest.mark.requirement("state:outage")
def test_a_permanent_fault_is_not_over_with_a_write() -> None:
    reports: list[str | None] = []
    health = Health(reports.append)
    health.check()
    health.fail_permanently("the file is damaged")
    health.record_write()
    assert reports == ["the file is damaged"]
    with pytest.raises(StateUnavailableError, match="the file is damaged"):
        health.check()


@pytest.mark.requirement("state:outage")
def test_callers_back_off_for_a_second_or_until_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(health_module.time, "monotonic", lambda: now)
    health = Health()
    health.back_off()
    assert health.is_backing_off
    now += 1.0
    assert not health.is_backing_off

    health.back_off()
    health.record_write()
    assert not health.is_backing_off
