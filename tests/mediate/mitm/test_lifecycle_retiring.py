"""The life of a mediator after new settings replaced it."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import replace

import pytest

from claw_mediate.mediator import Mediator
from tests.turns.desk import Desk, tool

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # pyparsing warns when mitmproxy's filters are made
    from claw_mediate.mitm import lifecycle
    from claw_mediate.mitm.flow_state import PendingRequest


@pytest.mark.requirement("live:old-settings")
@pytest.mark.parametrize(
    ("live_max", "total_ms", "seconds"),
    [(1800.0, 300_000, 2175.0), (10.0, 300_000, 900.0), (10.0, 2_000_000, 2510.0)],
)
async def test_an_old_mediator_waits_as_long_as_its_longest_turn_may_take(
    gpt: Desk,
    monkeypatch: pytest.MonkeyPatch,
    live_max: float,
    total_ms: int,
    seconds: float,
) -> None:
    waited: list[float] = []

    async def wait(_: Collection[PendingRequest], given: float) -> None:
        waited.append(given)

    async def close(_: Mediator, given: float) -> None:
        waited.append(given)

    gpt.grant(tool("quote"), total_timeout_ms=total_ms, soft_deadline_ratio=0.75)
    gpt.settings = replace(gpt.settings, live_max=live_max)
    gpt.open()
    monkeypatch.setattr(lifecycle, "wait_until_done", wait)
    with monkeypatch.context() as patched:
        patched.setattr(Mediator, "close", close)
        await lifecycle._close_later(gpt.mediator, [])
    assert waited == [seconds, seconds]
