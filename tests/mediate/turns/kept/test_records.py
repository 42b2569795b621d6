"""Responses that the provider keeps: who may name them, and how a request goes on from one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from inline_snapshot import snapshot

from claw_mediate.core.http import Forward, RunnerResponse
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.dialects.responses import DIALECT
from tests.mediate.items import streamed
from tests.mediate.openai_sdk import final_response
from tests.mediate.turns.kept.chains import asked, chains, once, owned, says
from tests.turns.desk import TERMINAL_TOOL, Desk, tool
from tests.wires import Body
from tests.wires.responses import function_call, message, reasoning


@pytest.mark.requirement("responses:chain")
async def test_a_chain_goes_on_without_its_hidden_rounds_since_the_provider_has_them(
    codex: Desk,
) -> None:
    codex.model_says(("desk.balance", {}), id="resp_1", store=True)
    codex.model_says("You have fifty.", id="resp_2", store=True)
    await codex.asks("How much?", store=True)
    codex.model_says(("desk.trade", {}), id="resp_3", store=True)
    codex.model_says("Bought.", id="resp_4", store=True, previous_response_id="resp_2")
    assert await chains(codex, "Buy one", "resp_2") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.trade
cllama → service  desk.trade {}
cllama → model    desk.trade = {}
model  → cllama   'Bought.'
cllama → runner   'Bought.'   [1 hidden]
""")
    assert {body["previous_response_id"] for body in codex.model.bodies[2:]} == {"resp_2"}
    assert json.loads(codex.body)["previous_response_id"] == "resp_2"
    record = await owned(codex, "resp_4")
    assert (record.provider, record.previous, record.hidden_responses, record.pending_results) == (
        "openai",
        "resp_2",
        ("resp_3",),
        b"",
    )
    assert "call_2" in record.hidden_ids


@once
@pytest.mark.requirement("responses:chain-without-input")
async def test_a_request_without_input_gets_one_of_its_hidden_items_only(codex: Desk) -> None:
    says(codex, "resp_1", message("Hello."))
    await codex.asks("Hi", store=True)
    codex.messages = []
    codex.model_says(("desk.balance", {}), id="resp_2")
    codex.model_says("Fifty.", id="resp_3")
    codex.messages = []
    body = {"model": "gpt-test", "previous_response_id": "resp_1", "stream": codex.stream}
    exchange = await codex.mediator.exchange(
        codex.admitted(), replace(codex.request(), body=json.dumps(body).encode())
    )
    assert isinstance(exchange, RunnerResponse)
    assert codex.model.fault is None
    assert exchange.status == 200
    assert b"Fifty." in b"".join([chunk async for chunk in exchange.chunks])
    first, second = codex.model.bodies[1:]
    assert "input" not in first
    assert [item["type"] for item in second["input"]] == ["function_call", "function_call_output"]


@pytest.mark.requirement("responses:terminal-owes")
async def test_a_chain_goes_on_behind_a_turn_that_a_tool_ended(codex: Desk) -> None:
    codex.grant(tool("trade", write=True, **TERMINAL_TOOL))
    codex.service_answers("trade", {"order": 7})
    says(codex, "resp_1", reasoning("Buy."), function_call("call_1", "desk__trade", "{}"))
    await codex.asks("Buy", store=True)
    codex.model.replies["call_1"] = json.dumps({"id": "resp_1"}).encode()
    for words in ("And now?", "Once more: and now?"):
        codex.model_says("You own one.", id="resp_2", store=True)
        await chains(codex, words, "resp_1")
        first, second = codex.model.messages()
        assert (first["type"], first["call_id"], json.loads(first["output"])["data"]) == (
            "function_call_output",
            "call_1",
            {"order": 7},
        )
        assert second == {"role": "user", "content": words}
    record = await owned(codex, "resp_1")
    assert json.loads(record.delivered)["output"][0]["content"][0]["text"] == "Done."
    assert ("call_1" in record.hidden_ids, record.hidden_responses) == (True, ())


@once
@pytest.mark.requirement("responses:early-id")
async def test_an_id_that_went_out_before_the_response_was_there_is_mapped_to_the_providers(
    codex: Desk,
) -> None:
    codex.settings = replace(
        codex.settings, keepalive_responses="native", keepalive=0.01, keepalive_first=0.01
    )
    codex.open()
    codex.stream = True
    says(codex, "resp_1", function_call("call_1", "desk__balance", "{}"))
    says(codex, "resp_real", message("Fifty."))
    codex.messages, codex.more = [codex.wire.user("How much?")], {"store": True}
    exchange, chunks = await streamed(
        codex, "desk.balance", lambda came: b"response.created" in came
    )
    codex._answered(exchange, chunks)
    early = final_response(
        chunks
    ).id  # The strict helper refuses a stream whose response changes its id
    assert early.startswith("resp_")
    assert early != "resp_real"
    assert (await owned(codex, early)).provider_id == "resp_real"
    codex.settings = replace(codex.settings, keepalive_responses="off")
    says(codex, "resp_3", message("Yes."), previous_response_id="resp_real")
    await chains(codex, "Sure?", early)
    assert codex.model.bodies[-1]["previous_response_id"] == "resp_real"
    assert json.loads(codex.body)["previous_response_id"] == early
    assert (await owned(codex, "resp_3")).previous == early


@pytest.mark.requirement("responses:chain-and-history")
async def test_turns_that_the_named_response_holds_are_not_woven_into_a_history_beside_it(
    codex: Desk,
) -> None:
    for number in (1, 2):
        codex.model_says(("desk.balance", {}), id=f"resp_{number}a", store=True)
        codex.model_says(f"Answer number {number}.", id=f"resp_{number}b", store=True)
        more = {} if number == 1 else {"previous_response_id": "resp_1b"}
        await codex.asks(f"Question {number}", store=True, **more)
    codex.model_says("Right.", id="resp_3", store=True)
    assert "+" not in await codex.asks("All of it?", store=True, previous_response_id="resp_2b")
    codex.model_says("Right.", id="resp_4", store=True)
    assert "+ 4 hidden" in await codex.asks("And without a chain?", store=True)


@pytest.mark.requirement("responses:chain-retries")
async def test_equal_words_behind_two_responses_are_two_turns(codex: Desk) -> None:
    says(codex, "resp_1", message("One."))
    await codex.asks("First", store=True)
    says(codex, "resp_2", message("Two."))
    await codex.asks("Second", store=True)
    says(codex, "resp_3", function_call("call_1", "desk__trade", "{}"))
    codex.model_refuses(500, "server_error")
    await chains(codex, "Yes", "resp_1")
    says(codex, "resp_4", message("From the second."))
    assert "From the second." in await chains(codex, "Yes", "resp_2")
    says(codex, "resp_5", message("Bought."))
    assert "Bought." in await chains(codex, "Yes", "resp_1")
    assert codex.services.calls == ["desk.trade"]
    codex.headers["x-stainless-retry-count"] = "1"
    assert "Bought." in await chains(codex, "Yes", "resp_1")
    assert (await owned(codex, "resp_5")).previous == "resp_1"


@once
@pytest.mark.requirement("responses:chain-reasoning")
async def test_reasoning_that_the_provider_keeps_stays_with_its_call(codex: Desk) -> None:
    bare = {"type": "reasoning", "id": "rs_1", "summary": []}
    says(codex, "resp_1", bare, function_call("call_1", "desk__balance", "{}"))
    says(codex, "resp_2", message("Fifty."))
    await codex.asks("How much?", store=True)
    assert [item["type"] for item in codex.model.messages()[1:]] == [
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert codex.model.messages()[1] == bare


@once
@pytest.mark.requirement("responses:chain-names")
async def test_a_call_of_a_tool_that_only_the_chain_declares_is_the_runners(codex: Desk) -> None:
    says(codex, "resp_1", message("Hi."))
    await codex.asks("Hi", store=True)
    says(codex, "resp_2", function_call("call_1", "from_earlier", "{}"))
    assert "unknown:from_earlier" in (await chains(codex, "Go", "resp_1")).splitlines()[-1]
    assert codex.status == 200


def test_a_request_that_leans_on_the_provider_is_bound_to_it() -> None:
    def is_bound(**more: Any) -> bool:
        body = json.dumps({"model": "m", "input": "Hi", **more}).encode()
        kept = DIALECT.read_request(body).kept
        assert kept is not None
        return kept.is_bound

    image = {"type": "input_image", "file_id": "file-1"}
    assert [
        is_bound(),
        is_bound(input=[{"role": "user", "content": 'the member "file_id" of a file'}]),
        is_bound(previous_response_id="resp_1"),
        is_bound(conversation="conv_1"),
        is_bound(prompt={"id": "pmpt_1"}),
        is_bound(input=[{"type": "item_reference", "id": "msg_1"}]),
        is_bound(input=[{"role": "user", "content": [image]}]),
    ] == [False, False, True, True, True, True, True]
    with pytest.raises(UnreadableRequestError):
        DIALECT.read_request(b'{"model":"m","input":"Hi","conversation":5}')


@pytest.mark.requirement("responses:no-input")
@once
@pytest.mark.parametrize("empty", [[], None])
async def test_an_empty_input_without_a_chain_is_the_providers_to_refuse(
    codex: Desk, empty: list[Body] | None
) -> None:
    codex.model_refuses(400, "missing_required_parameter")
    exchange = await asked(codex, {"model": "gpt-test", "input": empty})
    if isinstance(exchange, Forward):
        assert exchange.body is None
    else:
        assert exchange.status == 400
        assert codex.model.bodies[-1]["input"] == []


@pytest.mark.requirement("responses:terminal-owes")
@once
async def test_a_chain_goes_on_behind_a_response_whose_calls_were_filtered(codex: Desk) -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    says(codex, "resp_1", message("I was"), function_call("call_1", "desk__balance", "{"), **cut)
    await codex.asks("Go", store=True)
    assert "call_1" not in (await owned(codex, "resp_1")).delivered.decode()
    codex.model.replies["call_1"] = json.dumps({"id": "resp_1"}).encode()
    says(codex, "resp_2", message("Well."))
    await chains(codex, "And?", "resp_1")
    assert codex.services.calls == []
    assert "invalid_arguments" in codex.model.messages()[0]["output"]


@pytest.mark.requirement("responses:chain-names")
@once
async def test_a_tool_that_was_withdrawn_behind_the_named_response_is_not_taken_for_the_runners(
    codex: Desk,
) -> None:
    says(codex, "resp_1", message("Hi."))
    await codex.asks("Hi", store=True)
    codex.grant(tool("balance"))
    for number in (2, 3):
        says(codex, "resp_x", function_call(f"call_{number}", "desk__trade", "{}"))
        says(codex, f"resp_{number}", message("It is gone."))
        assert "'It is gone.'" in await chains(codex, "Buy", f"resp_{number - 1}")
        assert "unknown_tool" in codex.model.messages()[-1]["output"]
    assert codex.services.calls == []
    says(codex, "resp_4", function_call("call_4", "desk__trade", "{}"))
    assert (
        "native:desk__trade"
        in (await chains(codex, "Buy", "resp_3", native=["desk__trade"])).splitlines()[-1]
    )
