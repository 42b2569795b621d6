"""A runner that comes again finds the turn of its request."""

from __future__ import annotations

import asyncio

import pytest

from tests.turns.desk import Desk
from tests.turns.retrying import answer, until_called
from tests.waiting import eventually_async

pytestmark = pytest.mark.both_forms


@pytest.mark.requirement("log:join")
@pytest.mark.requirement("journal:join")
async def test_a_runner_that_comes_again_while_its_turn_runs_gets_the_same_answer(
    desk: Desk,
) -> None:
    gate = desk.services.gates["desk.trade"] = asyncio.Event()
    desk.messages = [desk.wire.user("Buy")]
    desk.model_says(("desk.trade", {}))
    desk.model_says("Bought.")
    runners = [asyncio.ensure_future(answer(desk))]
    await until_called(desk, "desk.trade")
    runners += [asyncio.ensure_future(answer(desk)) for _ in range(2)]
    await eventually_async(lambda: len(desk.told("join")) == 2, "both have joined")
    gate.set()
    bodies = await asyncio.gather(*runners)
    whole = [desk.wire.assembled(body) if desk.stream else body for body in bodies]
    assert [desk.wire.said(body).text for body in whole] == ["Bought."] * 3
    assert desk.services.calls == ["desk.trade"]
    assert len(desk.model.bodies) == 2
    assert [(event["how"], event["waiting"], event["bytes"]) for event in desk.told("join")] == [
        ("running", 2, 0),
        ("running", 3, 0),
    ]
    # A request that joins is not counted as one: it spends nothing, and is no line of history.
    assert len([event for event in desk.events if event["type"] == "request"]) == 1
    assert len(desk.history()) == 1
