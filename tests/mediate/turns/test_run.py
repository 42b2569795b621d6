"""Runners leave a running turn: it goes on while one of them waits for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from claw_mediate.core.http import RunnerResponse
from claw_mediate.mitm.flow_state import ChunkSource
from tests.turns.desk import Desk
from tests.turns.retrying import answer, until_called
from tests.waiting import eventually_async

pytestmark = pytest.mark.both_forms


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
    await eventually_async(lambda: bool(desk.told("join")), "the second has joined")
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
    exchanges = [await desk.mediator.exchange(desk.admitted(), desk.request()) for _ in range(2)]
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
    await eventually_async(history.exists, "the turn is over")
    assert [line["status_code"] for line in desk.history()] == [499]
    assert len(desk.model.bodies) == 1
