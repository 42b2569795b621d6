"""Requests that end with items of an answer that was cut off (docs/spec/responses.md section 11)."""

from __future__ import annotations

import json

import pytest

from tests.mediate.dialects.responses.test_anchors import hidden, resends, thought, user
from tests.mediate.items import BALANCE, answers
from tests.turns.desk import Desk
from tests.wires.responses import function_call, message

CALL = function_call("call_sh", "shell", "{}")


@pytest.mark.requirement("responses:resent-items")
@pytest.mark.parametrize("whole", [1, 2, 3])
async def test_a_runner_that_got_half_an_answer_gets_the_rest_and_nothing_runs_again(
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
async def test_an_answer_that_the_runner_got_whole_is_followed_by_a_new_turn(
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
async def test_other_items_after_a_cut_request_begin_a_new_turn(
    codex: Desk, other: dict[str, object]
) -> None:
    answers(codex, message("Bought.", "msg_a"))
    codex.listens = False
    await codex.asks("Buy")
    codex.messages, codex.listens = [user("Buy"), other], True
    answers(codex, message("Well.", "msg_b"))
    await codex.turn()
    assert codex.answer.text == "Well."
