"""Calls before, while and after they run: order, repeats, checks, results
(docs/spec/mediation.md section 4).
"""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.turns.desk import Desk, tool

SYMBOL = {"type": "object", "properties": {"symbol": {"type": "string"}}, "required": ["symbol"]}


@pytest.mark.requirement("calls:invalid-arguments")
@pytest.mark.requirement("transcript:odd-arguments")
async def test_truncated_arguments_are_never_run_and_never_become_empty(desk: Desk) -> None:
    desk.model_says(("desk.trade", '{"symbol": "NV'))
    desk.model_says("Sorry.")
    assert await desk.asks("Trade") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.trade{"symbol": "NV
cllama → model    desk.trade = ! invalid_arguments
model  → cllama   'Sorry.'
cllama → runner   'Sorry.'   [1 hidden]
""")
    assert desk.services.calls == []


@pytest.mark.requirement("calls:schema-validation")
async def test_arguments_that_break_the_schema_never_reach_the_service(desk: Desk) -> None:
    desk.grant(tool("quote", schema=SYMBOL))
    desk.model_says(("desk.quote", {"symbol": 7}))
    desk.model_says(("desk.quote", {"symbol": "NVDA"}))
    desk.model_says("Done.")
    assert await desk.asks("Quote") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.quote{"symbol": 7}
cllama → model    desk.quote = ! schema_validation
model  → cllama   managed:desk.quote{"symbol": "NVDA"}
cllama → service  desk.quote {'symbol': 'NVDA'}
cllama → model    desk.quote = {}
model  → cllama   'Done.'
cllama → runner   'Done.'   [2 hidden]
""")
    assert desk.interventions() == ["managed_tool_schema_rejected:desk.quote"]


@pytest.mark.requirement("calls:duplicate")
async def test_a_repeated_write_is_not_run_again_however_its_arguments_are_spelt(
    desk: Desk,
) -> None:
    desk.model_says(("desk.trade", '{"symbol":"NVDA","quantity":10}'))
    desk.model_says(("desk.trade", '{"quantity": 1e1, "symbol": "\\u004eVDA"}'))
    desk.model_says("Done.")
    assert await desk.asks("Buy") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.trade{"symbol":"NVDA","quantity":10}
cllama → service  desk.trade {'symbol': 'NVDA', 'quantity': 10}
cllama → model    desk.trade = {}
model  → cllama   managed:desk.trade{"quantity": 1e1, "symbol": "\\u004eVDA"}
cllama → model    desk.trade = ! duplicate_tool_call
model  → cllama   'Done.'
cllama → runner   'Done.'   [2 hidden]
""")
    assert desk.services.calls == ["desk.trade"]
    record = desk.history()[-1]["tool_trace"][1]["tool_calls"][0]
    assert (record["duplicate"], record["duplicate_of_round"], record["duplicate_count"]) == (
        True,
        1,
        1,
    )


@pytest.mark.requirement("calls:duplicate-exceptions")
async def test_a_read_may_be_repeated_after_a_write_and_after_its_own_failure(desk: Desk) -> None:
    desk.services.script["desk.balance"] = [(500, "down"), (200, {"usd": 1}), (200, {"usd": 2})]
    desk.model_says(("desk.balance", {}))
    desk.model_says(("desk.balance", {}))
    desk.model_says(("desk.trade", {}), ("desk.balance", {}))
    desk.model_says("Done.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = ! http_500
model  → cllama   managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = {'usd': 1}
model  → cllama   managed:desk.trade managed:desk.balance
cllama → service  desk.trade {}
cllama → service  desk.balance {}
cllama → model    desk.trade = {}, desk.balance = {'usd': 2}
model  → cllama   'Done.'
cllama → runner   'Done.'   [3 hidden]
""")


@pytest.mark.requirement("calls:idle-rounds")
async def test_three_rounds_of_nothing_but_repeats_lead_to_the_last_word(desk: Desk) -> None:
    for _ in range(4):
        desk.model_says(("desk.balance", {}))
    desk.model_says("Enough.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = {}
model  → cllama   managed:desk.balance
cllama → model    desk.balance = ! duplicate_tool_call
model  → cllama   managed:desk.balance
cllama → model    desk.balance = ! duplicate_tool_call
model  → cllama   managed:desk.balance
cllama → model    desk.balance = ! duplicate_tool_call [tools forbidden]
model  → cllama   'Enough.'
cllama → runner   'Enough.'   [4 hidden]
""")


@pytest.mark.requirement("calls:parallel")
async def test_neighbouring_reads_run_together_and_a_write_waits_for_them(desk: Desk) -> None:
    desk.services.takes = {"desk.balance": 1.0, "desk.quote": 1.0}
    desk.model_says(
        ("desk.balance", {}),
        ("desk.quote", {"symbol": "A"}),
        ("desk.trade", {}),
        ("desk.quote", {}),
    )
    desk.model_says("Done.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance managed:desk.quote{"symbol": "A"} managed:desk.trade managed:desk.quote
cllama → service  desk.balance {}
cllama → service  desk.quote {'symbol': 'A'}
cllama → service  desk.trade {}
cllama → service  desk.quote {}
cllama → model    desk.balance = {}, desk.quote = {}, desk.trade = {}, desk.quote = {}
model  → cllama   'Done.'
cllama → runner   'Done.'   [1 hidden]
""")


@pytest.mark.requirement("calls:idempotency-key")
async def test_every_call_of_a_turn_has_a_key_of_its_own(desk: Desk) -> None:
    desk.model_says(("desk.trade", {"n": 1}), ("desk.trade", {"n": 2}))
    desk.model_says(("desk.trade", {"n": 3}))
    desk.model_says("Done.")
    await desk.asks("Go")
    assert len(set(desk.services.keys)) == 3


@pytest.mark.requirement("calls:error-results")
async def test_a_services_error_is_told_to_the_model_and_the_turn_goes_on(desk: Desk) -> None:
    desk.service_answers("balance", {"reason": "closed"}, status=503)
    desk.model_says(("desk.balance", {}))
    desk.model_says("The desk is closed.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = ! http_503
model  → cllama   'The desk is closed.'
cllama → runner   'The desk is closed.'   [1 hidden]
""")


@pytest.mark.requirement("calls:timeout")
async def test_a_write_that_is_cut_off_by_time_is_told_as_of_unknown_outcome(desk: Desk) -> None:
    desk.grant(tool("trade", write=True), timeout_per_tool_ms=5000)
    desk.services.takes = {"desk.trade": 99.0}
    desk.model_says(("desk.trade", {}))
    desk.model_says("Unsure.")
    assert await desk.asks("Buy") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.trade
cllama → service  desk.trade {}
cllama → model    desk.trade = ! timeout
model  → cllama   'Unsure.'
cllama → runner   'Unsure.'   [1 hidden]
""")
    assert (
        "outcome is unknown"
        in desk.history()[-1]["tool_trace"][0]["tool_calls"][0]["result"]["error"]["message"]
    )


@pytest.mark.requirement("calls:terminal-on-success")
async def test_a_terminal_tool_ends_the_turn_without_another_model_call(desk: Desk) -> None:
    desk.grant(tool("trade", write=True, **{"x-claw.terminalOnSuccess": True}))
    desk.model_says("Buying.", ("desk.trade", {}))
    assert await desk.asks("Buy") == snapshot("""\

cllama → model    the runner's request
model  → cllama   'Buying.' managed:desk.trade
cllama → service  desk.trade {}
cllama → runner   'Buying.'   [1 hidden]
""")


@pytest.mark.requirement("calls:terminal-on-success")
async def test_a_terminal_tool_must_be_the_last_call_before_anything_runs(desk: Desk) -> None:
    desk.grant(tool("trade", write=True, **{"x-claw.terminalOnSuccess": True}), tool("balance"))
    desk.model_says(("desk.trade", {}), ("desk.balance", {}))
    desk.model_says("Sorry.")
    assert await desk.asks("Buy") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.trade managed:desk.balance
cllama → model    desk.trade = ! terminal_on_success_order, desk.balance = ! terminal_on_success_order
model  → cllama   'Sorry.'
cllama → runner   'Sorry.'   [1 hidden]
""")
    assert desk.services.calls == []


@pytest.mark.requirement("injection:tool-choice-released")
async def test_a_forced_choice_is_released_once_a_managed_call_was_answered(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says("Done.")
    await desk.asks("Go", **desk.wire.choice("desk.balance"))
    assert [desk.wire.chosen(body)[0] for body in desk.model.bodies] == ["desk__balance", "auto"]
