"""Live turns of Responses whose items are not all in the answer (docs/spec/live.md section 4)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.turns.desk import DEFAULT_TOOLS, Desk, opened
from tests.turns.kept_desk import KeptDesk
from tests.wires import Body, responses


@pytest.fixture
async def codex(tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened(Desk(tmp_path, responses, stream=True, live=True)) as desk:
        yield desk


def filtered(*output: Body) -> bytes:
    """Return a reply that a filter ended."""
    body = responses.response(*output, id="resp_a", store=False)
    body |= {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    return json.dumps(body).encode()


CALL = responses.function_call("c1", "desk__balance", "{}")
THOUGHT = responses.reasoning("Where?")
LATER = responses.reasoning("Oh.") | {"id": "rs_2"}
HOSTED: Body = {"type": "web_search_call", "id": "ws_1", "status": "completed"}


@pytest.mark.requirement("live:responses-filtered")
@pytest.mark.parametrize(
    "output",
    [
        [THOUGHT, CALL],
        [THOUGHT, CALL, responses.message("Sorry.", "msg_2")],
        [responses.message("Look.", "msg_1"), THOUGHT, CALL, responses.message("No.", "msg_2")],
        [responses.message("Look.", "msg_1"), CALL, responses.message("No.", "msg_2")],
        [THOUGHT, CALL, LATER, responses.message("Sorry.", "msg_2")],
        [THOUGHT, HOSTED, CALL, LATER, responses.message("Sorry.", "msg_2")],
        [THOUGHT, responses.message("Look.", "msg_1"), LATER, CALL],
    ],
)
async def test_a_filtered_reply_keeps_what_was_shown_and_loses_its_managed_calls(
    codex: Desk, output: list[Body]
) -> None:
    codex.model_answers(filtered(*output))
    codex.shows_preambles = False
    await codex.asks("How much?", store=False)
    assert codex.status == 200
    assert codex.services.calls == []
    items = json.loads(codex.body)["output"]
    assert [item["type"] for item in items] == [item["type"] for item in output if item is not CALL]
    assert codex.wire.said(json.dumps(codex.history()[-1]["response"]["json"]).encode()) == (
        codex.shown
    )

    codex.model_says("Yes.")
    await codex.asks("Sure?", store=False)
    assert codex.status == 200


@pytest.mark.requirement("live:responses-item-ids")
async def test_an_id_that_was_minted_is_the_providers_own_again_in_the_next_request(
    codex: Desk,
) -> None:
    first = [responses.message("Look.", "msg_1"), CALL]
    answer = [LATER | {"id": "rs_1"}, responses.message("Fifty.", "msg_1")]
    codex.model_answers(json.dumps(responses.response(THOUGHT, *first, store=False)).encode())
    codex.model_answers(json.dumps(responses.response(*answer, store=False)).encode())
    await codex.asks("How much?", store=False)
    shown = [item["id"] for item in json.loads(codex.body)["output"]]
    assert len(set(shown)) == len(shown) == 4
    before = codex.model.messages()

    codex.model_says("Yes.")
    await codex.asks("Sure?", store=False)
    assert codex.model.messages()[: len(before)] == before
    assert codex.model.messages()[len(before) : -1] == answer


@pytest.mark.requirement("live:kept-conversation-shown")
@pytest.mark.parametrize("fails", [False, True])
async def test_a_preamble_that_was_shown_is_not_hidden_in_a_kept_conversation(
    kept: KeptDesk, fails: bool
) -> None:
    kept.stream = kept.live = True
    kept.shows_preambles = False
    kept.grant(*DEFAULT_TOOLS)
    first = [responses.message("Let me look.", "msg_look"), CALL]
    kept.model_answers(json.dumps(responses.response(*first, id="resp_a", store=True)).encode())
    if fails:
        kept.model_breaks_off("You have fifty.", behind="have")
    else:
        kept.model_says("You have fifty.")
    await kept.says("How much?")
    assert b"Let me look." in kept.raw
    record = await kept.mediator.state.ownership.find(kept.agent, "conv_1")
    assert record is not None
    assert "c1" in record.hidden_ids
    assert "msg_look" not in record.hidden_ids


@pytest.mark.requirement("responses:openclaw-ids")
@pytest.mark.parametrize("live", [False, True])
async def test_a_call_that_openclaw_gives_another_id_has_the_hidden_rounds_before_it(
    tmp_path: Path, *, live: bool
) -> None:
    """As OpenClaw 2026.9.6 sent it, with two calls in the place of one."""
    async with opened(Desk(tmp_path, responses, stream=True, live=live)) as desk:
        named = responses.function_call("call2", "exec", "{}") | {"id": f"fc_{2:048x}"}
        other = responses.function_call("call3", "exec", "{}") | {"id": f"fc_{3:048x}"}
        words = responses.message("First the balance.", "msg_1")
        desk.model_answers(json.dumps(responses.response(words, CALL, store=False)).encode())
        desk.model_answers(json.dumps(responses.response(named, other, store=False)).encode())
        await desk.asks("How much?", native=["exec"], store=False)

        shown = json.loads(desk.body)["output"]
        assert [item["type"] for item in shown[-2:]] == ["function_call"] * 2
        kept = [{name: item[name] for name in item.keys() - {"id", "status"}} for item in shown]
        rewritten = [f"call_call2_fc_{0:039x}_11545078d8", f"call_call3_fc_{0:039x}_dea0e01a3e"]
        for item, call_id in zip(kept[-2:], rewritten, strict=True):
            item["call_id"] = call_id
        results = [
            {"type": "function_call_output", "call_id": call_id, "output": "three files"}
            for call_id in rewritten
        ]
        desk.messages = [*desk.messages[:1], *kept, *results]
        desk.model_says("Yes.")
        await desk.turn()
        sent = desk.model.messages()
        assert [item.get("name") for item in sent if "call_id" in item and "name" in item] == [
            "desk__balance",
            "exec",
            "exec",
        ]
        assert desk.services.calls == ["desk.balance"]


@pytest.mark.requirement("live:failed-then-answered")
async def test_a_round_is_put_back_once_where_a_runner_keeps_its_items_and_asks_for_the_rest(
    codex: Desk,
) -> None:
    """As qwen-code 0.24.4 did after a cut; two items of one id make every later request fail."""
    codex.model_says("I buy one. ", ("desk.trade", {}))
    codex.model_breaks_off("Now you own a share.", behind="Now ")
    await codex.asks("Buy", store=False)

    kept: list[Body] = [
        {"type": "message", "role": "assistant", "content": text}
        for text in ("I buy one. ", "Now ")
    ]
    codex.messages = [codex.messages[0], *kept]
    codex.model_says("Now you own a share.")
    await codex.asks("The connection dropped mid-response. Resume directly.", store=False)

    last = {"type": "message", "role": "assistant", "content": "Now you own a share."}
    codex.messages = [codex.messages[0], *kept, last]
    codex.model_says("One.")
    await codex.asks("How many?", store=False)
    assert codex.status == 200
    sent = codex.model.messages()
    assert [item["name"] for item in sent if "name" in item] == ["desk__trade"]
    assert codex.services.calls == ["desk.trade"]
