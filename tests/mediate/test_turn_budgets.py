"""Rounds, time, and what a failing provider does to a turn (spec/mediation.md section 4: budgets, the model's side)."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.mediate.desk import Desk, tool


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
    assert [list(desk.wire.tools(body)) for body in desk.model.bodies] == [["shell", "desk__quote"]] * 4
    assert desk.interventions() == ["managed_tool_budget_finalization"]


@pytest.mark.requirement("budget:finalization-fails")
@pytest.mark.requirement("log:error-code")
async def test_a_model_that_asks_for_tools_in_its_last_word_ends_the_turn_with_502(desk: Desk) -> None:
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
async def test_a_provider_that_fails_in_the_last_word_is_a_502_whatever_its_status(desk: Desk) -> None:
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
async def test_when_time_is_short_pending_calls_are_answered_and_the_model_has_its_last_word(desk: Desk) -> None:
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


@pytest.mark.requirement("failure:upstream-error-passed-on")
async def test_a_providers_error_keeps_its_status_and_body(desk: Desk) -> None:
    desk.model_refuses(400, "context_length_exceeded", "the context is too long")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   status 400
cllama → runner   400 context_length_exceeded
""")
    assert desk.history()[-1]["status"] == "error"
    assert desk.logged_error() == "provider_http_400"


@pytest.mark.requirement("failure:history-of-failed-turns")
async def test_a_turn_that_fails_after_tools_ran_is_in_history_with_what_ran(desk: Desk) -> None:
    desk.model_says(("desk.trade", {"symbol": "NVDA"}))
    desk.model_fails("provider_broke_off")
    await desk.asks("Buy")
    entry = desk.history()[-1]
    assert (entry["status"], entry["status_code"]) == ("error", 502)
    assert [call["name"] for past in entry["tool_trace"] for call in past["tool_calls"]] == ["desk.trade"]


@pytest.mark.requirement("failure:unreachable")
async def test_a_provider_that_cannot_be_reached_is_a_502(desk: Desk) -> None:
    desk.model_fails("provider_unreachable")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   unreachable: provider_unreachable
cllama → runner   502 provider_unreachable
""")


@pytest.mark.requirement("failure:bad-reply")
@pytest.mark.parametrize(
    "body",
    [
        *(b"<html>", b"[]", b"{}", b"\xff", b"{" * 5000),
        *(b'{"choices": []}', b'{"choices": [{"message": 3}]}', b'{"choices": {}}'),
        *(b'{"content": "text"}', b'{"content": [3]}', b'{"content": [[]]}'),
    ],
)
async def test_a_reply_that_is_no_completion_is_a_502(desk: Desk, body: bytes) -> None:
    desk.model_answers(body)
    await desk.asks("Go")
    assert desk.status == 502
    assert desk.history()[-1]["status"] == "error"
