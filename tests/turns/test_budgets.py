"""Rounds and time, and the final call of a spent turn (docs/spec/mediation.md
section 4, budgets).
"""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.turns.desk import Desk, tool


@pytest.mark.requirement("budget:rounds")
async def test_when_rounds_are_spent_the_model_has_one_last_word_without_tools(desk: Desk) -> None:
    desk.grant(tool("quote"), max_rounds=2)
    for number in range(3):
        desk.model_says(("desk.quote", {"n": number}))
    desk.model_says("What I have is this.")
    assert await desk.asks("Go", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.quote{"n": 0}
cllama → service  desk.quote {'n': 0}
cllama → model    desk.quote = {}
model  → cllama   managed:desk.quote{"n": 1}
cllama → service  desk.quote {'n': 1}
cllama → model    desk.quote = {}
model  → cllama   managed:desk.quote{"n": 2}
cllama → model    desk.quote = ! tool_budget_exhausted [tools forbidden]
model  → cllama   'What I have is this.'
cllama → runner   'What I have is this.'   [3 hidden]
""")
    assert [list(desk.wire.tools(body)) for body in desk.model.bodies] == [
        ["shell", "desk__quote"]
    ] * 4
    assert desk.interventions() == ["managed_tool_budget_finalization"]


@pytest.mark.requirement("budget:finalization-fails")
@pytest.mark.requirement("log:error-code")
async def test_a_model_that_asks_for_tools_in_its_last_word_ends_the_turn_with_502(
    desk: Desk,
) -> None:
    desk.grant(tool("quote"), max_rounds=1)
    for number in range(3):
        desk.model_says(("desk.quote", {"n": number}))
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.quote{"n": 0}
cllama → service  desk.quote {'n': 0}
cllama → model    desk.quote = {}
model  → cllama   managed:desk.quote{"n": 1}
cllama → model    desk.quote = ! tool_budget_exhausted [tools forbidden]
model  → cllama   managed:desk.quote{"n": 2}
cllama → runner   502 tool_budget_exhausted
""")
    assert desk.status == 502
    assert [past["round"] for past in desk.history()[-1]["tool_trace"]] == [1, 2]
    assert desk.logged_error() == "tool_budget_exhausted"


@pytest.mark.requirement("budget:finalization-fails")
async def test_a_provider_that_fails_in_the_last_word_is_a_502_whatever_its_status(
    desk: Desk,
) -> None:
    desk.grant(tool("quote"), max_rounds=1)
    desk.model_says(("desk.quote", {"n": 1}))
    desk.model_says(("desk.quote", {"n": 2}))
    desk.model_refuses(400, "bad")
    await desk.asks("Go")
    assert desk.status == 502


@pytest.mark.requirement("budget:on-budget-error")
async def test_on_budget_error_ends_the_turn_at_once(desk: Desk) -> None:
    desk.grant(tool("quote"), max_rounds=1, on_budget="error")
    desk.model_says(("desk.quote", {"n": 1}))
    desk.model_says(("desk.quote", {"n": 2}))
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.quote{"n": 1}
cllama → service  desk.quote {'n': 1}
cllama → model    desk.quote = {}
model  → cllama   managed:desk.quote{"n": 2}
cllama → runner   502 tool_budget_exhausted
""")


@pytest.mark.requirement("budget:soft-deadline")
async def test_when_time_is_short_pending_calls_are_answered_and_the_model_has_its_last_word(
    desk: Desk,
) -> None:
    desk.grant(tool("trade", write=True), total_timeout_ms=10_000)
    desk.services.takes = {"desk.trade": 60.0}
    desk.model_says(("desk.trade", {"n": 1}), ("desk.trade", {"n": 2}))
    desk.model_says("It took too long.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.trade{"n": 1} managed:desk.trade{"n": 2}
cllama → service  desk.trade {'n': 1}
cllama → model    desk.trade = ! timeout, desk.trade = ! tool_budget_exhausted [tools forbidden]
model  → cllama   'It took too long.'
cllama → runner   'It took too long.'   [1 hidden]
""")


@pytest.mark.requirement("budget:rejected-rounds-count")
async def test_a_rejected_reply_is_a_round(desk: Desk) -> None:
    desk.grant(tool("quote"), max_rounds=1)
    desk.model_says(("shell", {}), ("desk.quote", {}))
    desk.model_says(("desk.quote", {}))
    desk.model_says("Nothing came of it.")
    assert await desk.asks("Go", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   native:shell managed:desk.quote
cllama → model    shell = ! managed_tools_first, desk.quote = ! managed_tools_first
model  → cllama   managed:desk.quote
cllama → model    desk.quote = ! tool_budget_exhausted [tools forbidden]
model  → cllama   'Nothing came of it.'
cllama → runner   'Nothing came of it.'   [2 hidden]
""")


@pytest.mark.requirement("budget:finalization-fails")
async def test_a_native_call_in_the_last_word_is_no_last_word(desk: Desk) -> None:
    desk.grant(tool("quote"), max_rounds=1)
    desk.model_says(("desk.quote", {"n": 1}))
    desk.model_says(("desk.quote", {"n": 2}))
    desk.model_says(("shell", {}))
    assert await desk.asks("Go", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.quote{"n": 1}
cllama → service  desk.quote {'n': 1}
cllama → model    desk.quote = {}
model  → cllama   managed:desk.quote{"n": 2}
cllama → model    desk.quote = ! tool_budget_exhausted [tools forbidden]
model  → cllama   native:shell
cllama → runner   502 tool_budget_exhausted
""")


@pytest.mark.requirement("budget:rounds")
async def test_native_calls_are_handed_over_though_rounds_are_spent(desk: Desk) -> None:
    desk.grant(tool("quote"), max_rounds=1)
    desk.model_says(("desk.quote", {"n": 1}))
    desk.model_says(("shell", {}))
    assert await desk.asks("Go", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.quote{"n": 1}
cllama → service  desk.quote {'n': 1}
cllama → model    desk.quote = {}
model  → cllama   native:shell
cllama → runner   native:shell   [1 hidden]
""")


@pytest.mark.requirement("budget:soft-deadline")
async def test_a_slow_models_calls_are_answered_and_it_has_its_last_word(
    desk: Desk,
) -> None:
    desk.grant(tool("quote"), total_timeout_ms=10_000)
    desk.model_says(("desk.quote", {}), takes=9.5)
    desk.model_says("I was slow.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.quote
cllama → model    desk.quote = ! tool_budget_exhausted [tools forbidden]
model  → cllama   'I was slow.'
cllama → runner   'I was slow.'   [1 hidden]
""")


@pytest.mark.requirement("budget:total")
async def test_a_turn_whose_time_is_over_asks_no_more(desk: Desk) -> None:
    desk.grant(tool("quote"), total_timeout_ms=10_000)
    desk.model_says(("desk.quote", {}), takes=11.0)
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.quote
cllama → runner   502 total_timeout
""")


@pytest.mark.requirement("budget:total")
async def test_an_answer_that_is_there_is_delivered_however_late(desk: Desk) -> None:
    desk.grant(tool("quote"), total_timeout_ms=10_000)
    desk.model_says("Here it is.", takes=11.0)
    await desk.asks("Go")
    assert desk.answer.text == "Here it is."


@pytest.mark.requirement("budget:on-budget-error")
async def test_on_budget_error_counts_for_time_too(desk: Desk) -> None:
    desk.grant(tool("quote"), total_timeout_ms=10_000, on_budget="error")
    desk.model_says(("desk.quote", {}), takes=9.5)
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.quote
cllama → runner   502 tool_budget_exhausted
""")
