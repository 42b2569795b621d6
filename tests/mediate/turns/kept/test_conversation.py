"""Turns in a conversation that the provider keeps: nothing is sent twice, and
nothing that it keeps can be left out.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from claw_mediate.core.http import RunnerResponse
from claw_state.sqlite.journal import SqliteJournal
from tests.turns.desk import tool
from tests.turns.kept_desk import KeptDesk, begun, failed_behind_a_trade, kinds
from tests.turns.retrying import dies
from tests.waiting import eventually_async
from tests.wires.responses import COMPUTER_CALL, LOCAL_SHELL_CALL, function_call, response


@pytest.mark.requirement("responses:conversation")
@pytest.mark.parametrize(("named", "stream"), [("conv_1", False), ({"id": "conv_1"}, True)])
async def test_the_conversation_holds_everything_once(
    kept: KeptDesk, named: object, *, stream: bool
) -> None:
    kept.named, kept.stream = named, stream
    kept.service_answers("balance", 50)
    kept.service_answers("quote", 7)
    kept.model_says(("desk.balance", {}))
    kept.model_says(("desk.quote", {}))
    kept.model_says("Seven of fifty.")
    await kept.says("How much?")
    assert kept.answer.text == "Seven of fifty."
    turn = [
        "user: How much?",
        "call desk__balance",
        "output 50",
        "call desk__quote",
        "output 7",
        "assistant: Seven of fifty.",
    ]
    assert kept.kept == turn
    assert [kept.sent(index) for index in range(3)] == [
        ["user: How much?"],
        ["output 50"],
        ["output 7"],
    ]
    assert [sent["conversation"] for sent in kept.model.sent] == [named] * 3
    kept.model_says("As I said.")
    await kept.says("Again?")
    assert kept.kept == [*turn, "user: Again?", "assistant: As I said."]
    assert kept.sent() == ["user: Again?"]
    assert "conversation_keeps_rounds" not in kept.interventions()


@pytest.mark.requirement("responses:conversation")
async def test_nothing_is_woven_in_that_the_conversation_has(kept: KeptDesk) -> None:
    answer = "You have fifty in this account and nothing in any other, as far as the desk can tell."
    kept.model_says(("desk.balance", {}))
    kept.model_says(answer)
    await kept.says("How much?")
    kept.model_says("As I said.")
    await kept.says(
        "unused",
        input=[kept.wire.user("How much?"), *kept.messages[-1]["items"], kept.wire.user("Again?")],
    )
    assert kept.sent() == ["user: How much?", f"assistant: {answer}", "user: Again?"]
    kept.model_says("As I said.")
    kept.more = {}
    kept.messages = [
        kept.wire.user("How much?"),
        {"role": "assistant", "content": answer},
        kept.wire.user("Again?"),
    ]
    await kept.turn()
    assert kept.sent()[:3] == ["user: How much?", "call desk__balance", "output {}"]


@pytest.mark.requirement("responses:conversation-resumes")
async def test_a_turn_that_failed_goes_on_with_what_is_missing(kept: KeptDesk) -> None:
    await failed_behind_a_trade(kept)
    assert kept.kept == ["user: Buy", "call desk__trade"]
    kept.model_says("Bought.")
    await kept.says("Buy")
    assert kept.kept == ["user: Buy", "call desk__trade", "output 7", "assistant: Bought."]
    assert kept.services.calls == ["desk.trade"]
    kept.model_says("Yes.")
    await kept.says("Sure?")
    assert kept.sent() == ["user: Sure?"]


@pytest.mark.requirement("responses:conversation-resumes")
async def test_equal_words_behind_another_turn_are_a_new_turn(kept: KeptDesk) -> None:
    await failed_behind_a_trade(kept, "Yes")
    kept.model_says("Bought.")
    await kept.says("And?")
    kept.model_says("Fine.")
    await kept.says("Yes")
    assert kept.sent() == ["user: Yes"]
    assert kept.kept[-4:] == ["user: And?", "assistant: Bought.", "user: Yes", "assistant: Fine."]


@pytest.mark.requirement("responses:conversation-resumes")
async def test_equal_words_in_another_conversation_are_another_turn(kept: KeptDesk) -> None:
    await failed_behind_a_trade(kept)
    kept.named = "conv_2"
    await kept.owns("conv_2")
    kept.model_says("What?")
    await kept.says("Buy\n[again]")
    assert kinds(kept.model.kept["conv_2"]) == ["user: Buy\n[again]", "assistant: What?"]


@pytest.mark.requirement("responses:conversation-resumes")
async def test_a_done_turn_that_is_asked_for_again_is_not_appended_again(kept: KeptDesk) -> None:
    kept.model_says("Hi.")
    await kept.says("Hello")
    kept.headers["x-stainless-retry-count"] = "1"
    await kept.says("Hello")
    assert kept.answer.text == "Hi."
    assert kept.kept == ["user: Hello", "assistant: Hi."]


@pytest.mark.requirement("responses:conversation-moved-on")
@pytest.mark.parametrize("header", ["x-stainless-retry-count", "idempotency-key"])
async def test_a_retry_behind_another_turn_gets_its_answer_and_writes_nothing(
    kept: KeptDesk, header: str
) -> None:
    kept.headers["idempotency-key"] = "1"
    kept.service_answers("trade", 7)
    kept.model_says(("desk.trade", {}))
    kept.model_says("Bought.")
    await kept.says("Buy")
    del kept.headers["idempotency-key"]
    kept.model_says("Fine.")
    await kept.says("And?")
    kept.headers[header] = "1"
    await kept.says("Buy")
    assert kept.answer.text == "Bought."
    assert kept.services.calls == ["desk.trade"]
    assert kept.kept[-1] == "assistant: Fine."


@pytest.mark.requirement("responses:conversation-moved-on")
@pytest.mark.parametrize("state", ["failed", "running"])
async def test_a_retry_of_a_failed_or_dead_turn_behind_another_one_is_refused(
    kept: KeptDesk, state: str
) -> None:
    kept.remembers()
    await kept.owns()
    await failed_behind_a_trade(kept)
    kept.model_says("Bought.")
    await kept.says("And?")
    before = list(kept.kept)
    with closing(sqlite3.connect(kept.settings.state.shown, autocommit=True)) as database:
        database.execute("UPDATE turns SET state = ? WHERE state = 'failed'", (state,))
    dies(kept)
    kept.headers["x-stainless-retry-count"] = "1"
    assert await refused(kept, "conv_1", "Buy") == (400, "conversation_moved_on", "conversation")
    assert kept.interventions()[-1] == "retry_overtaken"
    assert kept.services.calls == ["desk.trade"]
    assert kept.kept == before


@pytest.mark.requirement("responses:conversation-moved-on")
async def test_a_retry_of_a_turn_without_a_response_is_a_new_turn_behind_another(
    kept: KeptDesk,
) -> None:
    kept.model_refuses(400, "invalid_request")
    await kept.says("Buy")
    kept.model_says("Fine.")
    await kept.says("And?")
    kept.model_says("What?")
    kept.headers["x-stainless-retry-count"] = "1"
    await kept.says("Buy")
    assert kept.kept[-2:] == ["user: Buy", "assistant: What?"]


@pytest.mark.requirement("responses:conversation-rejects")
async def test_a_native_suffix_is_answered_and_stays(kept: KeptDesk) -> None:
    kept.service_answers("balance", 50)
    kept.model_says(("desk.balance", {}), ("shell", {}))
    kept.model_says(("shell", {}))
    await kept.says("Look", native=["shell"])
    assert [call.name for call in kept.answer.calls] == ["shell"]
    outputs = ["output 50", "output managed_tools_first"]
    assert kept.kept == ["user: Look", "call desk__balance", "call shell", *outputs, "call shell"]
    assert "the service tools before it were" in kept.model.sent[1]["input"][1]["output"]
    assert kept.interventions().count("conversation_keeps_rounds") == 1
    kept.messages = kept.wire.results(
        [(call.id, json.dumps({"ok": True, "data": "x"})) for call in kept.answer.calls]
    )
    kept.model_says("Done.")
    kept.more = {"conversation": "conv_1"}
    await kept.turn()
    assert kept.kept[-2:] == ["output x", "assistant: Done."]


@pytest.mark.requirement("responses:conversation-rejects")
async def test_rejections_are_answered_in_their_own_forms_and_stay(kept: KeptDesk) -> None:
    balance = function_call("call_1", "desk__balance", "{}")
    kept.model_answers(json.dumps(response(LOCAL_SHELL_CALL, balance)).encode())
    kept.model_says("Well.")
    await kept.says("Look", tools=[{"type": "local_shell"}])
    assert [item["type"] for item in kept.model.sent[1]["input"]] == [
        "local_shell_call_output",
        "function_call_output",
    ]
    assert kept.services.calls == []
    assert sorted(kept.interventions()) == [
        "conversation_keeps_rounds",
        "mixed_tool_order_internal_retry",
    ]


@pytest.mark.requirement("responses:conversation-unanswerable")
@pytest.mark.parametrize("order", [1, -1])
async def test_a_call_without_an_answer_in_text_ends_the_turn(kept: KeptDesk, order: int) -> None:
    balance = function_call("call_1", "desk__balance", "{}")
    kept.model_answers(json.dumps(response(*[COMPUTER_CALL, balance][::order])).encode())
    picture = await kept.says("Look")
    assert picture.endswith("cllama → runner   502 native_call_unanswerable\n")
    assert kept.services.calls == []


@pytest.mark.requirement("responses:conversation-unanswerable")
async def test_such_a_call_alone_is_the_runners(kept: KeptDesk) -> None:
    kept.model_answers(json.dumps(response(COMPUTER_CALL)).encode())
    await kept.says("Look")
    assert json.loads(kept.body)["output"] == [COMPUTER_CALL]


@pytest.mark.requirement("responses:conversation")
async def test_a_turn_waits_for_the_one_before_it(kept: KeptDesk) -> None:
    kept.service_answers("trade", 7)
    kept.model_says(("desk.trade", {}))
    first = await begun(kept, "Buy", "desk.trade")
    kept.model_says("Bought.")
    kept.model_says("Yes.")
    second = asyncio.ensure_future(kept.says("Sure?"))
    await asyncio.sleep(0)
    kept.services.gates["desk.trade"].set()
    await asyncio.gather(first, second)
    turn = ["user: Buy", "call desk__trade", "output 7", "assistant: Bought."]
    assert kept.kept == [*turn, "user: Sure?", "assistant: Yes."]


@pytest.mark.requirement("responses:conversation")
async def test_a_turn_waits_for_the_one_before_it_in_another_process(
    kept: KeptDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.remembers()
    await kept.owns()
    kept.service_answers("trade", 7)
    kept.model_says(("desk.trade", {}))
    first = await begun(kept, "Buy", "desk.trade")
    kept.open()  # another proxy on the same state
    kept.model_says("Bought.")
    kept.model_says("Yes.")
    looked: list[str] = []
    is_alive = SqliteJournal.is_alive

    async def look(journal: SqliteJournal, turn_id: str) -> bool:
        looked.append(turn_id)
        return await is_alive(journal, turn_id)

    monkeypatch.setattr(SqliteJournal, "is_alive", look)
    second = asyncio.ensure_future(kept.says("Sure?"))
    await eventually_async(
        lambda: looked or len(kept.model.sent) > 1, "the second turn waits, or does not"
    )
    kept.services.gates["desk.trade"].set()
    await asyncio.gather(first, second)
    turn = ["user: Buy", "call desk__trade", "output 7", "assistant: Bought."]
    assert kept.kept == [*turn, "user: Sure?", "assistant: Yes."]


@pytest.mark.requirement("journal:join")
@pytest.mark.parametrize("more", [{"conversation": "conv_1"}, {}])
async def test_equal_requests_that_wait_for_a_turn_elsewhere_all_get_its_answer(
    kept: KeptDesk, more: dict[str, Any]
) -> None:
    kept.remembers()
    await kept.owns()
    kept.service_answers("trade", 7)
    kept.model_says(("desk.trade", {}))
    kept.model_says("Bought.")
    kept.messages, kept.more = [kept.wire.user("Buy")], more
    kept.services.gates["desk.trade"] = asyncio.Event()

    async def asked() -> bytes:
        exchange = await kept.mediator.exchange(kept.admitted(), kept.request())
        assert isinstance(exchange, RunnerResponse)
        body = b"".join([chunk async for chunk in exchange.chunks])
        if exchange.on_delivered is not None:
            await exchange.on_delivered()
        return body

    first = asyncio.ensure_future(asked())
    await eventually_async(lambda: "desk.trade" in kept.services.calls, "a call of the trade")
    kept.open()  # another proxy on the same state
    others = [asyncio.ensure_future(asked()) for _ in range(3)]
    await asyncio.sleep(0)
    kept.services.gates["desk.trade"].set()
    assert len(set(await asyncio.gather(first, *others))) == 1
    assert kept.services.calls == ["desk.trade"]


async def refused(desk: KeptDesk, conversation: object, words: str = "Hi") -> tuple[int, str, str]:
    """Send a request that names a conversation; return the status, code and
    ``param`` of its refusal.
    """
    desk.messages, desk.more = [desk.wire.user(words)], {"conversation": conversation}
    exchange = await desk.mediator.exchange(desk.admitted(), desk.request())
    assert isinstance(exchange, RunnerResponse)
    error = json.loads(b"".join([chunk async for chunk in exchange.chunks]))["error"]
    return exchange.status, error["code"], error["param"]


@pytest.mark.requirement("responses:conversation-owner")
@pytest.mark.parametrize("named", ["conv_1", {"id": "conv_1"}, "conv_9"])
async def test_the_conversation_of_another_agent_or_of_nobody_is_not_found(
    kept: KeptDesk, named: object
) -> None:
    kept.admits("stranger")
    assert await refused(kept, named) == (404, "conversation_not_found", "conversation")
    assert kept.model.sent == []


@pytest.mark.requirement("responses:conversation-owner")
async def test_with_any_id_allowed_a_conversation_belongs_to_who_names_it(kept: KeptDesk) -> None:
    kept.settings = replace(kept.settings, stored_ids="any")
    kept.open()
    kept.named = "conv_9"
    await failed_behind_a_trade(kept)
    record = await kept.mediator.state.ownership.find(kept.agent, "conv_9")
    assert record is not None
    assert (record.provider, b'"call_1"' in record.pending_results, record.hidden_ids) == (
        "openai",
        True,
        ("call_1", "fc_call_1"),
    )


@pytest.mark.requirement("responses:conversation")
async def test_a_tool_that_is_not_granted_any_more_is_not_taken_for_the_runners(
    kept: KeptDesk,
) -> None:
    kept.model_says(("desk.balance", {}))
    kept.model_says("Fifty.")
    await kept.says("How much?")
    kept.grant(tool("quote"))
    for call_id in ("call_8", "call_9"):
        kept.model_answers(
            json.dumps(response(function_call(call_id, "desk__balance", "{}"))).encode()
        )
        kept.model_says("I can't tell.")
        await kept.says("And now?")
        assert kept.sent() == ["output unknown_tool"]


@pytest.mark.requirement("responses:conversation")
async def test_context_goes_into_the_instructions_which_a_conversation_does_not_keep(
    kept: KeptDesk,
) -> None:
    kept.settings = replace(kept.settings, time_line=True)
    kept.open()
    await kept.owns()
    kept.model_says(("desk.balance", {}))
    kept.model_says("Hi.")
    system = {"role": "system", "content": "Be brief."}
    await kept.says("unused", input=[system, kept.wire.user("Hi")])
    assert kept.kept[:2] == ["system: Be brief.", "user: Hi"]
    assert all("Current time" in sent["instructions"] for sent in kept.model.sent)
