"""Responses: reasoning goes back to who made it, headers pass, and a cut answer
goes on (sections 4, 6 and 11).
"""

from __future__ import annotations

import json

import pytest
from inline_snapshot import snapshot

from tests.mediate.items import BALANCE, answers, types
from tests.mediate.test_responses_memory import hidden, resends, thought, user, without
from tests.turns.desk import Desk
from tests.wires.responses import function_call, message, response

ENCRYPTED = "reasoning.encrypted_content"
UNSUPPORTED = "Encrypted content is not supported with this model."


def unsealed(item_id: str) -> dict[str, object]:
    return without(thought("Look.", item_id), "encrypted_content")


def includes(desk: Desk) -> list[list[str] | None]:
    return [body.get("include") for body in desk.model.bodies]


@pytest.mark.requirement("responses:reasoning-include")
async def test_encrypted_reasoning_is_asked_for_once_it_was_missing(codex: Desk) -> None:
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
async def test_what_a_provider_refuses_to_be_asked_for_is_never_asked_for_again(
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
async def test_nothing_is_asked_of_a_provider_that_keeps_its_responses(codex: Desk) -> None:
    body = response(unsealed("rs_kept"), BALANCE, store=True)
    codex.model_answers(json.dumps(body).encode())
    answers(codex, message("Fifty.", "msg_a"))
    await codex.asks("How much?")
    assert types(codex.model.messages()[1:3]) == ["reasoning", "function_call"]
    assert includes(codex) == [None, None]


@pytest.mark.requirement("responses:reasoning-maker")
async def test_reasoning_of_earlier_rounds_leaves_where_another_provider_goes_on(
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
async def test_stored_reasoning_goes_back_to_its_maker_only(codex: Desk) -> None:
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


@pytest.mark.requirement("responses:headers")
async def test_the_runner_gets_the_headers_of_the_last_reply_that_it_can_use(codex: Desk) -> None:
    passing = {
        "x-request-id": "req_2",
        "openai-processing-ms": "7",
        "x-codex-primary-used-percent": "3",
    }
    codex.model_answers(json.dumps(response(BALANCE)).encode(), (("x-request-id", "req_1"),))
    codex.model_answers(json.dumps(response(message("Hi."))).encode(), tuple(passing.items()))
    await codex.asks("Hi")
    got = {name: codex.answered_with.get(name) for name in passing}
    assert got["x-request-id"] in ({"req_1", "req_2"} if codex.stream else {"req_2"}), (
        "a stream may begin earlier"
    )
    assert codex.stream or got == passing


@pytest.mark.requirement("responses:headers")
async def test_the_runner_gets_the_headers_of_an_error_too(codex: Desk) -> None:
    error = json.dumps(codex.wire.error("rate_limit_exceeded", "slow down")).encode()
    codex.model.answers(429, error, (("x-codex-primary-used-percent", "100"),))
    await codex.asks("Hi")
    assert (codex.status, codex.answered_with.get("x-codex-primary-used-percent")) == (429, "100")


CALL = function_call("call_sh", "shell", "{}")


@pytest.mark.requirement("responses:resent-items")
@pytest.mark.parametrize("whole", [1, 2, 3])
async def test_a_runner_with_the_first_items_of_a_cut_answer_gets_the_rest_and_nothing_runs_again(
    codex: Desk, whole: int
) -> None:
    items = [thought("Bought.", "rs_a"), message("Bought.", "msg_a"), CALL]
    answers(codex, {**BALANCE, "name": "desk__trade"})
    answers(codex, *items)
    codex.listens = False
    await codex.asks("Buy", native=["shell"])
    codex.messages, codex.listens = [user("Buy"), *items[:whole]], True
    assert (await codex.turn()).count("model") == 0
    assert json.loads(codex.body)["output"] == items[whole:]
    assert codex.services.calls == ["desk.trade"]
    sent = await resends(
        codex,
        user("Buy"),
        *items,
        {"type": "function_call_output", "call_id": "call_sh", "output": "ok"},
    )
    assert hidden(sent) == ["desk__trade"]


@pytest.mark.requirement("responses:resent-items")
async def test_an_answer_that_a_runner_got_whole_and_sends_back_begins_a_new_turn(
    codex: Desk,
) -> None:
    first = message("Bought.", "msg_a")
    answers(codex, {**BALANCE, "name": "desk__trade"})
    answers(codex, first)
    await codex.asks("Buy")
    codex.messages = [user("Buy"), first]
    answers(codex, message("And done.", "msg_b"))
    await codex.turn()
    assert codex.answer.text == "And done."
    assert hidden(codex.model.messages()) == ["desk__trade"]


@pytest.mark.requirement("responses:resent-items")
@pytest.mark.parametrize(
    "other", [message("Sold.", "msg_x"), {"role": "assistant", "content": "Bought."}]
)
async def test_other_items_behind_a_cut_request_are_a_new_turn(
    codex: Desk, other: dict[str, object]
) -> None:
    answers(codex, message("Bought.", "msg_a"))
    codex.listens = False
    await codex.asks("Buy")
    codex.messages, codex.listens = [user("Buy"), other], True
    answers(codex, message("Well.", "msg_b"))
    await codex.turn()
    assert codex.answer.text == "Well."
