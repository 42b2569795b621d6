"""Several runners wait for one running turn, and some of them leave."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from claw_mediate.core.http import RunnerResponse
from claw_mediate.mitm.flow_state import ChunkSource
from tests.turns.desk import Desk
from tests.turns.retrying import answer, until_called
from tests.waiting import happens

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
    await happens(lambda: len(desk.told("join")) == 2, "both have joined")
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


@pytest.mark.requirement("journal:join")
async def test_the_first_runner_may_leave_and_the_second_is_answered_all_the_same(
    desk: Desk,
) -> None:
    gate = desk.services.gates["desk.quote"] = asyncio.Event()
    desk.messages = [desk.wire.user("Look")]
    desk.model_says(("desk.quote", {}))
    desk.model_says("There.")
    first = asyncio.ensure_future(answer(desk))
    await until_called(desk, "desk.quote")
    second = asyncio.ensure_future(answer(desk))
    await happens(lambda: bool(desk.told("join")), "the second has joined")
    first.cancel()
    await asyncio.wait([first])
    gate.set()
    body = await second
    assert desk.wire.said(desk.wire.assembled(body) if desk.stream else body).text == "There."
    assert [line["status"] for line in desk.history()] == ["ok"]


@pytest.mark.requirement("runner:leaves-before-the-first-chunk")
@pytest.mark.parametrize("pulled", [False, True])
async def test_the_last_runner_to_leave_a_stream_before_its_first_chunk_ends_the_turn(
    desk: Desk, pulled: bool
) -> None:
    """``pulled``: the runner has just asked for the first chunk."""
    desk.settings = replace(desk.settings, keepalive_openai="off", keepalive_anthropic="off")
    desk.open()
    desk.stream = True
    history = desk.home / "history" / "analyst" / "history.jsonl"
    desk.services.gates["desk.quote"] = asyncio.Event()
    desk.messages = [desk.wire.user("Look")]
    desk.model_says(("desk.quote", {}))
    exchanges = [await desk.mediator.exchange(desk.identity(), desk.request()) for _ in range(2)]
    runners = [
        ChunkSource(exchange.chunks)
        for exchange in exchanges
        if isinstance(exchange, RunnerResponse)
    ]
    for left, runner in enumerate(runners, 1):
        pulling = asyncio.ensure_future(runner.pull())
        if pulled:
            await asyncio.sleep(0)
        else:
            pulling.cancel()
        runner.cancel()
        await asyncio.wait([pulling])
        if left == 1:
            await asyncio.to_thread(int)  # let the event loop run
            assert not history.exists(), "the other one listens"
    await happens(history.exists, "the turn is over")
    assert [line["status_code"] for line in desk.history()] == [499]
    assert len(desk.model.bodies) == 1
