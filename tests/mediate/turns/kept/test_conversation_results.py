"""Pending results of a conversation that the provider keeps: the next
turn sends each, once.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from msgspec import structs

from claw_mediate.core.cost import ReceivedAnswer
from claw_mediate.core.http import Forward
from tests.turns.desk import DEFAULT_TOOLS, TERMINAL_TOOL, tool
from tests.turns.kept_desk import KeptDesk, begun, failed_behind_a_trade, kinds
from tests.turns.retrying import dies
from tests.waiting import happens


@pytest.mark.requirement("responses:owed")
async def test_the_results_of_a_failed_turn_are_pending_for_the_next_one(kept: KeptDesk) -> None:
    await failed_behind_a_trade(kept)
    kept.model_says("Bought.")
    await kept.says("And?")
    assert kept.sent() == ["output 7", "user: And?"]
    assert kept.kept == [
        "user: Buy",
        "call desk__trade",
        "output 7",
        "user: And?",
        "assistant: Bought.",
    ]
    kept.model_says("Yes.")
    await kept.says("Sure?")
    assert kept.sent() == ["user: Sure?"]


@pytest.mark.requirement("responses:owed")
async def test_pending_results_stay_until_the_provider_has_them(kept: KeptDesk) -> None:
    await failed_behind_a_trade(kept)
    for words in ("And?", "Well?"):
        kept.model_refuses(400, "invalid_request")
        await kept.says(words)
        assert kept.sent() == ["output 7", f"user: {words}"]
    kept.model_says("Bought.")
    await kept.says("Well?", input="Well?")
    assert kept.model.sent[-1]["input"][1:] == [{"role": "user", "content": "Well?"}]


@pytest.mark.requirement("responses:owed")
async def test_results_that_the_provider_has_already_do_not_stay_pending(kept: KeptDesk) -> None:
    await failed_behind_a_trade(kept)
    late = [
        *kept.wire.results([("call_1", '{"ok":true,"data":7}')]),
        {"role": "assistant", "content": "Bought."},
    ]
    kept.model.kept["conv_1"] += (
        late  # nobody heard that the provider took the last request all the same
    )
    await kept.says("And?")
    assert (kept.status, kept.sent()) == (400, ["output 7", "user: And?"])
    kept.model_says("Well.")
    await kept.says("And?")
    assert kept.sent() == ["user: And?"]
    assert kept.answer.text == "Well."


@pytest.mark.requirement("responses:owed")
async def test_a_refusal_of_the_missing_answer_brings_it_back(kept: KeptDesk) -> None:
    await failed_behind_a_trade(kept)
    record = await kept.mediator.state.ownership.find(kept.agent, "conv_1")
    assert record is not None
    await kept.mediator.state.ownership.save(kept.agent, structs.replace(record, is_disputed=True))
    kept.model.checks = False
    kept.model_refuses(400, "invalid_request", "No tool output found for function call call_1.")
    await kept.says("And?")
    assert kept.sent() == ["user: And?"]
    kept.model.checks = True
    kept.model_says("Bought.")
    await kept.says("And?")
    assert kept.sent() == ["output 7", "user: And?"]


@pytest.mark.requirement("responses:owed")
async def test_calls_behind_the_budget_have_pending_results_that_say_so(kept: KeptDesk) -> None:
    kept.grant(*DEFAULT_TOOLS, max_rounds=1)
    kept.service_answers("balance", 50)
    for name in ("balance", "quote", "quote"):
        kept.model_says((f"desk.{name}", {}))
    await kept.says("Look", native=["shell"])
    assert kept.status == 502
    kept.model_says("I could not.")
    await kept.says("And?")
    assert kept.sent() == ["output tool_budget_exhausted", "user: And?"]


@pytest.mark.requirement("responses:owed")
async def test_a_tool_that_ended_the_turn_is_answered_in_the_next_one(kept: KeptDesk) -> None:
    kept.grant(tool("trade", write=True, **TERMINAL_TOOL))
    kept.service_answers("trade", 7)
    kept.model_says("On it.", ("desk.trade", {}))
    await kept.says("Buy")
    assert kept.answer.text == "On it."
    kept.model_says("Yes.")
    await kept.says("Sure?")
    assert kept.sent() == ["output 7", "user: Sure?"]
    kept.model_says("Yes.")
    await kept.says("Really?")
    assert kept.sent() == ["user: Really?"]


@pytest.mark.requirement("responses:owed")
async def test_a_request_that_is_not_mediated_sends_the_pending_results(kept: KeptDesk) -> None:
    await failed_behind_a_trade(kept)
    kept.messages, kept.more = (
        [kept.wire.user("And?")],
        {"conversation": "conv_1", "tool_choice": "none"},
    )
    for status in (500, 200):
        exchange = await kept.mediator.exchange(kept.identity(), kept.request())
        assert isinstance(exchange, Forward)
        assert exchange.body is not None
        assert kinds(json.loads(exchange.body)["input"]) == ["output 7", "user: And?"]
        kept.mediator.passthrough.record_end(
            exchange.handle, status, ReceivedAnswer(status, {}), b"", whole=True
        )
    kept.model.kept["conv_1"] += json.loads(exchange.body)["input"]
    kept.model_says("Bought.")
    await kept.says("Buy")
    assert kept.sent() == ["user: Buy"]


@pytest.mark.requirement("responses:owed", "responses:compact")
@pytest.mark.parametrize("path", ["/v1/responses/compact", "/v1/responses/input_tokens"])
async def test_a_compaction_and_a_count_stay_such_when_they_take_results_along(
    kept: KeptDesk, path: str
) -> None:
    await failed_behind_a_trade(kept)
    kept.messages, kept.more = [kept.wire.user("And?")], {"conversation": "conv_1"}
    exchange = await kept.mediator.exchange(kept.identity(), replace(kept.request(), path=path))
    assert isinstance(exchange, Forward)
    assert exchange.body is not None
    sent = json.loads(exchange.body)
    assert kinds(sent["input"]) == ["output 7", "user: And?"]
    assert bool(sent.get("tools")) is path.endswith("input_tokens")
    assert exchange.handle.kept_as is None


@pytest.mark.requirement("responses:owed")
async def test_a_turn_whose_runner_left_has_its_writes_result_pending(kept: KeptDesk) -> None:
    kept.service_answers("trade", 7)
    kept.model_says(("desk.trade", {}), ("desk.quote", {}))
    task = await begun(kept, "Buy", "desk.trade")
    task.cancel()
    kept.services.gates["desk.trade"].set()
    await asyncio.wait([task])
    await happens(lambda: kept.mediator.turns_under_way == 0, "the turn's end")
    kept.model_says("Bought.")
    await kept.says("And?")
    assert kept.sent() == ["output 7", "output canceled", "user: And?"]


@pytest.mark.requirement("responses:owed")
async def test_behind_a_kill_the_outcome_of_a_call_is_unknown(kept: KeptDesk) -> None:
    kept.remembers()
    await kept.owns()
    kept.model_says(("desk.quote", {}), ("desk.trade", {}))
    task = await begun(kept, "Buy", "desk.trade")
    dies(kept)
    kept.model_says("Who knows.")
    await kept.says("And?")
    assert kept.sent() == ["output {}", "output outcome_unknown", "user: And?"]
    assert kept.answer.text == "Who knows."
    task.cancel()


@pytest.mark.requirement("responses:owed")
async def test_a_resumed_turn_that_is_cut_again_has_its_results_pending(kept: KeptDesk) -> None:
    kept.service_answers("trade", 7)
    kept.model_says(("desk.trade", {}), ("desk.quote", {}))
    for called in ("desk.trade", "desk.quote"):
        task = await begun(kept, "Buy", called)
        task.cancel()
        kept.services.gates[called].set()
        await asyncio.wait([task])
        await happens(lambda: kept.mediator.turns_under_way == 0, "the turn's end")
    kept.model_says("Bought.")
    await kept.says("And?")
    assert kept.sent() == ["output 7", "output {}", "user: And?"]
    assert kept.services.calls == ["desk.trade", "desk.quote"]
