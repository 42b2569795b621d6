"""Responses: reasoning goes back only to its maker (docs/spec/responses.md section 4)."""

from __future__ import annotations

import json

import pytest
from inline_snapshot import snapshot

from claw_mediate.dialects.responses.item_events import tell_item
from claw_mediate.dialects.responses.reasoning import ReasoningRules
from claw_mediate.dialects.responses.request import read_request
from tests.mediate.dialects.responses.test_anchors import resends, thought, user, without
from tests.mediate.items import BALANCE, answers, types
from tests.turns.desk import Desk
from tests.wires.responses import message, response

ENCRYPTED = "reasoning.encrypted_content"
UNSUPPORTED = "Encrypted content is not supported with this model."


def unsealed(item_id: str) -> dict[str, object]:
    return without(thought("Look.", item_id), "encrypted_content")


def includes(desk: Desk) -> list[list[str] | None]:
    return [body.get("include") for body in desk.model.bodies]


@pytest.mark.requirement("responses:reasoning-include")
async def test_encrypted_reasoning_is_requested_after_it_was_missing(codex: Desk) -> None:
    answers(codex, unsealed("rs_a"), BALANCE)
    answers(codex, message("Fifty.", "msg_a"))
    await codex.asks("How much?", include=["web_search_call.action.sources"])
    assert codex.interventions() == ["reasoning_not_replayable"]
    own = ["web_search_call.action.sources"]
    assert includes(codex) == [own, [*own, ENCRYPTED]]
    codex.model_says("Yes.")
    await codex.asks("Sure?")
    assert includes(codex)[-1] == [ENCRYPTED]
    assert types(codex.model.messages()[1:3]) == ["function_call", "function_call_output"]
    assert "id" not in codex.model.messages()[1]


@pytest.mark.requirement("responses:reasoning-include")
async def test_a_provider_that_refuses_to_encrypt_reasoning_is_not_asked_again(
    codex: Desk,
) -> None:
    answers(codex, unsealed("rs_a"), BALANCE)
    codex.model_refuses(400, "invalid_request_error", UNSUPPORTED)
    answers(codex, unsealed("rs_b"), {**BALANCE, "name": "desk__quote", "call_id": "call_q"})
    answers(codex, message("Fifty.", "msg_a"))
    assert await codex.asks("How much?") == snapshot("""\

cllama → model    the runner's request
model  → cllama   thought:'Look.' managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = {}
model  → cllama   status 400
cllama → model    \n\
model  → cllama   thought:'Look.' managed:desk.quote
cllama → service  desk.quote {}
cllama → model    desk.quote = {}
model  → cllama   'Fifty.'
cllama → runner   'Fifty.'   [2 hidden]
""")
    assert includes(codex) == [None, [ENCRYPTED], None, None]
    assert codex.interventions() == ["reasoning_not_replayable"]


@pytest.mark.requirement("responses:reasoning-include")
async def test_a_provider_that_keeps_its_responses_is_not_asked_for_encrypted_reasoning(
    codex: Desk,
) -> None:
    body = response(unsealed("rs_kept"), BALANCE, store=True)
    codex.model_answers(json.dumps(body).encode())
    answers(codex, message("Fifty.", "msg_a"))
    await codex.asks("How much?")
    assert types(codex.model.messages()[1:3]) == ["reasoning", "function_call"]
    assert includes(codex) == [None, None]


@pytest.mark.requirement("responses:reasoning-maker")
async def test_reasoning_of_earlier_rounds_leaves_if_another_provider_continues(
    codex: Desk,
) -> None:
    answers(codex, thought("Look.", "rs_a"), BALANCE)
    answers(
        codex,
        thought("More.", "rs_b"),
        {**BALANCE, "id": "fc_q", "name": "desk__quote", "call_id": "call_q"},
    )
    answers(codex, message("Fifty.", "msg_a"))
    codex.model.makers = ["openai/gpt-test", "other/gpt-test", "other/gpt-test"]
    await codex.asks("How much?")
    call = ["function_call", "function_call_output"]
    assert types(codex.model.messages(1)[1:]) == call
    assert "id" not in codex.model.messages(1)[1]
    assert types(codex.model.messages()[1:]) == [*call, "reasoning", *call]
    assert codex.interventions() == ["reasoning_replay_dropped_failover"]
    assert "claw_maker" not in codex.model.raw[-1].decode()


@pytest.mark.requirement("responses:reasoning-maker")
async def test_reasoning_is_sent_back_to_its_maker_only(codex: Desk) -> None:
    answers(codex, thought("Look.", "rs_a"), BALANCE)
    answers(codex, message("Fifty.", "msg_a"))
    await codex.asks("How much?")
    talk = [user("How much?"), message("Fifty.", "msg_a"), user("Sure?")]
    call = ["function_call", "function_call_output"]
    assert types((await resends(codex, *talk))[1:-2]) == ["reasoning", *call]
    assert types((await resends(codex, *talk, model="another-model"))[1:-2]) == call
    codex.model.makers = ["other/gpt-test"]
    assert types((await resends(codex, *talk))[1:-2]) == call
    assert types((await resends(codex, *talk))[1:-2]) == ["reasoning", *call]
    assert b"claw_maker" not in b"".join(codex.model.raw)


@pytest.mark.requirement("responses:reasoning-runners")
async def test_an_error_about_the_runners_own_reasoning_is_passed_on(codex: Desk) -> None:
    codex.model_refuses(
        400, "invalid_encrypted_content", "The encrypted content could not be verified."
    )
    await codex.sends({"items": [thought("Mine.", "rs_a"), message("Hi.", "msg_a"), user("Sure?")]})
    assert (codex.status, len(codex.model.bodies)) == (400, 1)


@pytest.mark.requirement("live:responses-reasoning")
def test_only_the_end_of_a_reasoning_item_is_unsealed() -> None:
    item = without(thought("Look.", "rs_a"))
    for event in tell_item(0, json.dumps(item).encode()):
        bare = ReasoningRules().unseal(event)
        if event.channel != "done":
            assert bare is event
        else:
            assert json.loads(bytes(bare.data["item"])) == unsealed("rs_a")
            assert bare.data["type"] == event.data["type"]


@pytest.mark.requirement("live:responses-reasoning")
@pytest.mark.parametrize(
    ("more", "flows"), [({"store": False}, True), ({"store": True}, False), ({}, False)], ids=str
)
def test_reasoning_flows_where_the_provider_keeps_nothing(
    more: dict[str, bool], flows: bool
) -> None:
    request = read_request(json.dumps({"model": "m", "input": "Hi", **more}).encode())
    assert request.reasoning_flows == flows
