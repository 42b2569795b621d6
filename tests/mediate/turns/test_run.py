"""Runners leave a running turn: it goes on while one of them waits for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from claw_mediate.agents.directory import Agent
from claw_mediate.core.cost import Cost
from claw_mediate.core.http import RunnerResponse
from claw_mediate.mitm.flow_state import ChunkSource
from claw_mediate.providers.client import CutReply
from claw_mediate.turns.budgets import Admission
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


@pytest.mark.requirement("live:cut-is-billed")
async def test_a_cut_reply_is_paid_for_and_its_retry_pays_for_its_own(gpt: Desk) -> None:
    """No journal has a reply without an end: the retry replays what is before it."""
    gpt.service_answers("trade", {"order": 1})
    gpt.model_says(("desk.trade", {"symbol": "X"}), usage={"prompt_tokens": 10})
    told = b'{"prompt_tokens": 7, "completion_tokens": 1}'
    cut = CutReply("provider_idle", "it fell silent", is_cut=True, usage=told)
    gpt.model.script.append(lambda: cut)
    await gpt.asks("Buy")
    assert (gpt.status, gpt.logged_error()) == (502, "provider_idle")

    gpt.model_says("Bought.", usage={"prompt_tokens": 30, "completion_tokens": 3})
    await gpt.turn()
    assert gpt.services.calls == ["desk.trade"]
    tokens = ("total_rounds", "prompt_tokens", "completion_tokens")
    assert [tuple(line["usage"][name] for name in tokens) for line in gpt.history()] == [
        (2, 17, 1),
        (1, 30, 3),
    ]


@pytest.mark.requirement("live:cut-is-billed")
async def test_a_cut_reply_of_unknown_usage_is_of_unknown_cost_and_not_free(gpt: Desk) -> None:
    cut = CutReply("provider_broke_off", "it broke off", is_cut=True)
    settled: list[Cost] = []
    gpt.model.script.append(lambda: cut)
    budgets = gpt.mediator._budgets
    settle = budgets.settle

    def note(agent: Agent, model: str, cost: Cost, admission: Admission | None = None) -> None:
        settled.append(cost)
        settle(agent, model, cost, admission)

    budgets.settle = note  # type: ignore[method-assign]
    await gpt.asks("Buy")
    assert settled == [Cost(None)]
