"""A runner that tries again: nothing runs twice, and nothing is forgotten
(docs/spec/mediation.md section 5).
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from inline_snapshot import snapshot

from claw_contract.log import JoinEvent, ResumeEvent
from tests.turns.desk import Desk, tool, with_tools
from tests.turns.retrying import answer, dies, failed_after_a_trade, until_called

pytestmark = pytest.mark.both_forms


@pytest.mark.requirement("log:resume")
@pytest.mark.requirement("journal:resume")
async def test_a_turn_that_failed_after_tools_ran_is_resumed_and_nothing_runs_again(
    desk: Desk,
) -> None:
    await failed_after_a_trade(desk)
    desk.model_says("Bought.")
    assert await desk.turn() == snapshot("""\

cllama → model    the runner's request + 2 hidden messages
model  → cllama   'Bought.'
cllama → runner   'Bought.'   [1 hidden]
""")
    assert desk.services.calls == ["desk.trade"]
    first, second = desk.history()
    assert first["turn_id"] == second["turn_id"]
    assert (first["resumed"], second["resumed"]) == (False, True)
    (event,) = desk.told("resume")
    assert ResumeEvent.model_validate(event)
    assert (event["turn_id"], event["replies"], event["calls"], event["unknown"]) == (
        first["turn_id"],
        1,
        1,
        0,
    )
    assert "order" not in json.dumps(event)


@pytest.mark.requirement("journal:resume")
async def test_the_rounds_of_a_resumed_turn_are_part_of_the_conversation(desk: Desk) -> None:
    await failed_after_a_trade(desk)
    desk.model_says("Bought.")
    await desk.turn()
    desk.model_says("Yes.")
    assert await desk.asks("Sure?") == snapshot("""\

cllama → model    the runner's request + 2 hidden messages
model  → cllama   'Yes.'
cllama → runner   'Yes.'
""")


@pytest.mark.requirement("journal:paid-once")
async def test_what_an_earlier_attempt_used_is_told_to_the_runner_and_not_paid_for_again(
    desk: Desk,
) -> None:
    await failed_after_a_trade(desk)
    desk.model_says("Bought.")
    await desk.turn()
    assert desk.usage == (10, 10)
    assert [line["usage"]["prompt_tokens"] for line in desk.history()] == [10, 10]
    assert [line["usage"]["total_rounds"] for line in desk.history()] == [1, 1]
    ran = [event["name"] for event in desk.events if event["type"] == "tool_call"]
    assert ran == ["desk.trade"]


@pytest.mark.requirement("journal:resume")
async def test_a_turn_that_fails_again_and_again_is_resumed_each_time_and_paid_for_once(
    desk: Desk,
) -> None:
    await failed_after_a_trade(desk)
    desk.model_says(("desk.quote", {}))
    desk.model_refuses(400, "invalid_request")
    await desk.turn()
    desk.model_refuses(400, "invalid_request")
    await desk.turn()
    desk.model_says("Bought.")
    await desk.turn()
    assert desk.services.calls == ["desk.trade", "desk.quote"]
    assert [line["usage"]["total_rounds"] for line in desk.history()] == [1, 1, 0, 1]
    assert len({line["turn_id"] for line in desk.history()}) == 1


def _without_nulls(value: Any) -> Any:
    """Return a body without members that are null: a live stream does not tell them."""
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(each) for name, each in value.items() if each is not None}


@pytest.mark.requirement("log:join")
@pytest.mark.requirement("journal:retry-of-a-done-turn")
@pytest.mark.parametrize(
    "headers",
    [
        {"x-stainless-retry-count": "1"},
        {"x-stainless-retry-count": "9" * 5000},
        {"Idempotency-Key": "k1"},
    ],
)
async def test_a_done_turn_is_answered_again_where_the_runner_says_that_it_retries(
    desk: Desk, headers: dict[str, str]
) -> None:
    desk.headers = {"Idempotency-Key": "k1", "x-stainless-retry-count": "0"}
    desk.model_says(("desk.trade", {}))
    desk.model_says("Bought.")
    await desk.asks("Buy")
    body = desk.body
    desk.messages, desk.headers = desk.messages[:1], headers
    assert await desk.turn() == snapshot("""\

cllama → runner   'Bought.'   [1 hidden]
""")
    assert _without_nulls(json.loads(desk.body)) == _without_nulls(json.loads(body))
    assert len(desk.history()) == 1
    (event,) = desk.told("join")
    assert JoinEvent.model_validate(event)
    assert (event["turn_id"], event["how"], event["waiting"]) == (
        desk.history()[0]["turn_id"],
        "answered",
        0,
    )
    assert event["bytes"] == len(body) if not desk.stream else event["bytes"] > 0


@pytest.mark.requirement("journal:retry-of-a-done-turn")
@pytest.mark.parametrize(
    "headers", [{}, {"x-stainless-retry-count": "0"}, {"Idempotency-Key": "k2"}]
)
async def test_the_same_words_after_a_done_turn_are_a_new_turn(
    desk: Desk, headers: dict[str, str]
) -> None:
    desk.headers = {"Idempotency-Key": "k1"}
    desk.model_says("One.")
    await desk.asks("Count")
    desk.messages, desk.headers = desk.messages[:1], headers
    desk.model_says("Two.")
    await desk.turn()
    assert desk.answer.text == "Two."


@pytest.mark.requirement("journal:not-yet-handed")
async def test_an_answer_that_was_not_taken_is_given_when_the_runner_comes_again(
    desk: Desk,
) -> None:
    desk.listens = False
    desk.model_says(("desk.trade", {}))
    desk.model_says("Bought.")
    await desk.asks("Buy")
    desk.messages, desk.listens = desk.messages[:1], True
    assert "'Bought.'" in await desk.turn()
    desk.messages = desk.messages[:1]
    desk.model_says("Again?")
    assert "'Again?'" in await desk.turn()
    assert desk.services.calls == ["desk.trade"]


@pytest.mark.requirement("journal:cut-off")
async def test_a_runner_that_left_during_a_write_waits_for_it_when_it_comes_again(
    desk: Desk,
) -> None:
    gate = desk.services.gates["desk.trade"] = asyncio.Event()
    desk.service_answers("trade", {"order": 1})
    desk.messages = [desk.wire.user("Buy")]
    desk.model_says(("desk.trade", {}))
    runner = asyncio.ensure_future(answer(desk))
    await until_called(desk, "desk.trade")
    runner.cancel()
    await asyncio.wait([runner])
    desk.model_says("Bought.")
    again = asyncio.ensure_future(answer(desk))
    await asyncio.sleep(0)
    gate.set()
    body = await again
    assert desk.wire.said(desk.wire.assembled(body) if desk.stream else body).text == "Bought."
    assert desk.services.calls == ["desk.trade"]
    told = [json.loads(content) for _, content in desk.wire.answers(desk.model.messages())]
    assert told[-1]["data"] == {"order": 1}
    assert [line["status_code"] for line in desk.history()] == [499, 200]


@with_tools
@pytest.mark.requirement("journal:unknown")
@pytest.mark.requirement("journal:idempotency-key")
async def test_after_a_crash_answers_are_known_and_an_unanswered_write_has_an_unknown_outcome(
    desk: Desk,
) -> None:
    desk.remembers()
    desk.service_answers("balance", {"usd": 1})
    desk.services.gates |= {"desk.balance": asyncio.Event(), "desk.trade": asyncio.Event()}
    desk.messages = [desk.wire.user("Buy")]
    desk.model_says(("desk.balance", {}), ("desk.trade", {}))
    killed = asyncio.ensure_future(answer(desk))
    await until_called(desk, "desk.balance")
    desk.services.gates.pop("desk.balance").set()
    await until_called(desk, "desk.trade")
    dies(desk)
    desk.model_says("I do not know.")
    await desk.turn()
    assert desk.services.calls == ["desk.balance", "desk.trade"]
    told = [json.loads(content) for _, content in desk.wire.answers(desk.model.messages())]
    assert told[0]["data"] == {"usd": 1}
    assert told[1]["error"]["code"] == "outcome_unknown"
    (event,) = desk.told("resume")
    assert (event["replies"], event["calls"], event["unknown"]) == (1, 1, 1)
    killed.cancel()


@pytest.mark.requirement("journal:idempotency-key")
@pytest.mark.requirement("journal:reads-again")
async def test_a_read_that_runs_again_after_a_crash_has_the_key_that_it_had(desk: Desk) -> None:
    desk.remembers()
    desk.services.gates["desk.quote"] = asyncio.Event()
    desk.messages = [desk.wire.user("Look")]
    desk.model_says(("desk.quote", {}))
    killed = asyncio.ensure_future(answer(desk))
    await until_called(desk, "desk.quote")
    dies(desk)
    desk.model_says("There.")
    await desk.turn()
    assert desk.services.calls == ["desk.quote"] * 2
    assert len(set(desk.services.keys)) == 1
    killed.cancel()


@pytest.mark.requirement("journal:rounds-count")
async def test_the_rounds_of_an_earlier_attempt_count(desk: Desk) -> None:
    desk.grant(tool("quote"), max_rounds=2)
    desk.model_says(("desk.quote", {"n": 1}))
    desk.model_says(("desk.quote", {"n": 2}))
    desk.model_refuses(400, "invalid_request")
    await desk.asks("Go")
    desk.model_says(("desk.quote", {"n": 3}))
    desk.model_says("That is all.")
    assert await desk.turn() == snapshot("""\

cllama → model    the runner's request + 4 hidden messages
model  → cllama   managed:desk.quote{"n": 3}
cllama → model    desk.quote = ! tool_budget_exhausted [tools forbidden]
model  → cllama   'That is all.'
cllama → runner   'That is all.'   [3 hidden]
""")


@pytest.mark.requirement("journal:revoked")
async def test_the_call_of_a_revoked_tool_stays_and_no_new_one_runs(
    desk: Desk,
) -> None:
    desk.native = ["shell"]
    await failed_after_a_trade(desk)
    desk.grant(tool("balance"))
    desk.model_says(("desk.trade", {"symbol": "Y"}))
    desk.model_says("Bought once.")
    await desk.turn()
    assert desk.services.calls == ["desk.trade"]
    told = [json.loads(content) for _, content in desk.wire.answers(desk.model.messages())]
    assert told[0]["data"] == {"order": 1}
    assert told[1]["error"]["code"] == "unknown_tool"


@with_tools
@pytest.mark.requirement("journal:unwritable")
@pytest.mark.usefixtures("brief_lock")
async def test_a_journal_that_can_not_be_written_stops_writes_and_nothing_else(desk: Desk) -> None:
    desk.remembers()
    desk.service_answers("balance", {"usd": 1})
    desk.model_says(("desk.balance", {}), ("desk.trade", {}))
    desk.model_says("Not bought.")
    with closing(sqlite3.connect(desk.settings.state.shown, autocommit=True)) as other:
        other.execute("BEGIN IMMEDIATE")
        await desk.asks("Buy")
        other.execute("ROLLBACK")
    assert desk.answer.text == "Not bought."
    assert desk.services.calls == ["desk.balance"]
    told = [json.loads(content) for _, content in desk.wire.answers(desk.model.messages())]
    assert told[1]["error"]["code"] == "request_failed"
    assert [event["error"] for event in desk.events if event["type"] == "error"] == [
        "state_unusable"
    ]


@pytest.mark.requirement("journal:unwritable")
@pytest.mark.usefixtures("brief_lock")
async def test_a_turn_whose_journal_fails_behind_its_beginning_makes_no_write_and_says_so_once(
    desk: Desk,
) -> None:
    desk.remembers()
    gate = desk.services.gates["desk.quote"] = asyncio.Event()
    desk.messages = [desk.wire.user("Buy")]
    for name in ("desk.quote", "desk.trade"):
        desk.model_says((name, {}))
    desk.model_says("Not bought.")
    runner = asyncio.ensure_future(answer(desk))
    await until_called(desk, "desk.quote")
    with closing(sqlite3.connect(desk.settings.state.shown, autocommit=True)) as other:
        other.execute("BEGIN IMMEDIATE")
        gate.set()
        body = await runner
        other.execute("ROLLBACK")
    assert desk.wire.said(desk.wire.assembled(body) if desk.stream else body).text == "Not bought."
    assert desk.services.calls == ["desk.quote"]
    errors = [event["error"] for event in desk.events if event["type"] == "error"]
    assert errors == ["state_unusable"]


@with_tools
@pytest.mark.requirement("journal:not-behind-the-models-back")
async def test_a_write_for_which_there_was_no_time_is_not_made_later(
    desk: Desk,
) -> None:
    """The model got the result that it was not made, and may have told its user."""
    desk.grant(tool("quote"), tool("trade", write=True), total_timeout_ms=10_000)
    desk.service_answers("quote", {"usd": 1})
    desk.model_says(("desk.quote", {}), ("desk.trade", {}), takes=9.5)
    desk.model_says(("desk.quote", {}))  # although tools are forbidden
    await desk.asks("Buy")
    assert (desk.status, desk.services.calls) == (502, [])
    desk.model_says("Not bought.")
    await desk.turn()
    assert "desk.trade" not in desk.services.calls
    told = [json.loads(content) for _, content in desk.wire.answers(desk.model.messages())]
    assert told[1]["error"]["code"] == "tool_budget_exhausted"


@pytest.mark.requirement("journal:altered-while-a-write-is-on-its-way")
async def test_an_altered_retry_waits_for_the_write_that_its_runner_left(
    desk: Desk,
) -> None:
    gate = desk.services.gates["desk.trade"] = asyncio.Event()
    desk.service_answers("trade", {"order": 1}, {"order": 2})
    desk.messages = [desk.wire.user("Buy")]
    desk.model_says(("desk.trade", {}))
    runner = asyncio.ensure_future(answer(desk))
    await until_called(desk, "desk.trade")
    runner.cancel()
    await asyncio.wait([runner])
    desk.messages = [desk.wire.user("Buy\n\n[Queued user message] Continue the current task")]
    desk.model_says("Bought.")
    again = asyncio.ensure_future(answer(desk))
    await asyncio.wait([again], timeout=0.3)
    assert len(desk.model.bodies) == 1, "no turn has begun"
    gate.set()
    body = await again
    assert desk.wire.said(desk.wire.assembled(body) if desk.stream else body).text == "Bought."
    assert desk.services.calls == ["desk.trade"]
    told = [json.loads(content) for _, content in desk.wire.answers(desk.model.messages())]
    assert told[-1]["data"] == {"order": 1}


@pytest.mark.requirement("journal:altered-while-a-write-is-on-its-way")
async def test_an_altered_retry_right_behind_the_leaving_of_its_runner_resumes_its_turn(
    desk: Desk,
) -> None:
    """The journal learns that the runner has left only when its turn has ended."""
    desk.service_answers("trade", {"order": 1}, {"order": 2})
    desk.services.gates["desk.balance"] = asyncio.Event()
    desk.messages = [desk.wire.user("Buy")]
    desk.model_says(("desk.trade", {}))
    desk.model_says(("desk.balance", {}))
    runner = asyncio.ensure_future(answer(desk))
    await until_called(desk, "desk.balance")
    desk.services.gates.clear()
    runner.cancel()
    desk.messages = [desk.wire.user("Buy\n\n[Queued user message] Continue the current task")]
    desk.model_says("Bought.")
    await asyncio.gather(answer(desk), runner, return_exceptions=True)
    assert len({line["turn_id"] for line in desk.history()}) == 1
    assert desk.services.calls.count("desk.trade") == 1
