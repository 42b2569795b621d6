"""The order of calls, and tools that end a turn (docs/spec/mediation.md section 4, "Order" and
``terminalOnSuccess``).
"""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.turns.desk import TERMINAL_TOOL, Desk, tool


@pytest.mark.requirement("calls:max-parallel")
@pytest.mark.parametrize(("most", "at_once"), [(1, 1), (2, 2), (8, 4)])
async def test_no_more_calls_run_at_once_than_the_policy_allows(
    desk: Desk, most: int, at_once: int
) -> None:
    desk.grant(tool("quote"), max_parallel=most)
    desk.model_says(*(("desk.quote", {"n": number}) for number in range(4)))
    desk.model_says("Done.")
    await desk.asks("Go")
    assert desk.services.most_at_once == at_once


@pytest.mark.requirement("calls:parallel")
async def test_results_keep_the_order_of_the_calls_whichever_answers_first(desk: Desk) -> None:
    desk.service_answers("balance", "slow")
    desk.service_answers("quote", "fast")
    desk.services.lags = {"desk.balance": 5}
    desk.model_says(("desk.balance", {}), ("desk.quote", {}))
    desk.model_says("Done.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance managed:desk.quote
cllama → service  desk.balance {}
cllama → service  desk.quote {}
cllama → model    desk.balance = slow, desk.quote = fast
model  → cllama   'Done.'
cllama → runner   'Done.'   [1 hidden]
""")
    assert desk.services.answered == ["desk.quote", "desk.balance"]


@pytest.mark.requirement("calls:parallel")
async def test_writes_run_one_after_the_other_unless_they_are_said_to_be_safe(desk: Desk) -> None:
    desk.model_says(("desk.trade", {"n": 1}), ("desk.trade", {"n": 2}))
    desk.model_says("Done.")
    await desk.asks("Go")
    assert desk.services.most_at_once == 1
    desk.grant(tool("trade", write=True, parallel_safe=True))
    desk.model_says(("desk.trade", {"n": 1}), ("desk.trade", {"n": 2}))
    desk.model_says("Done.")
    await desk.asks("Again")
    assert desk.services.most_at_once == 2


@pytest.mark.requirement("calls:parallel")
async def test_a_call_that_cannot_run_costs_its_neighbours_nothing(desk: Desk) -> None:
    desk.model_says(
        ("desk.balance", {}), ("desk.quote", "[1]"), ("desk.typo", {}), ("desk.quote", {})
    )
    desk.model_says("Done.")
    assert await desk.asks("Go") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance managed:desk.quote[1] unknown:desk.typo managed:desk.quote
cllama → service  desk.balance {}
cllama → service  desk.quote {}
cllama → model    desk.balance = {}, desk.quote = ! invalid_arguments, desk.typo = ! unknown_tool, desk.quote = {}
model  → cllama   'Done.'
cllama → runner   'Done.'   [1 hidden]
""")


@pytest.mark.requirement("results:truncation")
async def test_a_long_result_is_cut_for_the_model_with_its_true_size(desk: Desk) -> None:
    desk.grant(tool("quote"), max_tool_result_bytes=1024)
    desk.service_answers("quote", "ä" * 1000)
    desk.model_says(("desk.quote", {}))
    desk.model_says("Done.")
    await desk.asks("Go")
    result = desk.history()[-1]["tool_trace"][0]["tool_calls"][0]["result"]
    assert (result["truncated"], len(result["data"].encode()) <= 1024) == (True, True)
    assert result["original_bytes"] == len('"' + "\\u00e4" * 1000 + '"')


@pytest.mark.requirement("calls:terminal-on-success")
async def test_a_turn_that_a_tool_ended_has_words_and_is_remembered(desk: Desk) -> None:
    desk.grant(tool("trade", write=True, **TERMINAL_TOOL))
    desk.model_says(("desk.trade", {"n": 1}))
    assert await desk.asks("Buy") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.trade{"n": 1}
cllama → service  desk.trade {'n': 1}
cllama → runner   'Done.'   [1 hidden]
""")
    assert desk.wire.ended(desk.body) in {"stop", "end_turn", "completed"}
    desk.model_says("You own one.")
    assert await desk.asks("And now?") == snapshot("""\

cllama → model    the runner's request + 2 hidden messages
model  → cllama   'You own one.'
cllama → runner   'You own one.'
""")


@pytest.mark.requirement("calls:terminal-on-success")
@pytest.mark.buffered
async def test_a_turn_that_a_tool_ended_is_remembered_behind_the_models_own_words(
    desk: Desk,
) -> None:
    desk.grant(tool("trade", write=True, **TERMINAL_TOOL), tool("balance"))
    desk.model_says(("desk.balance", {}))
    desk.model_says("Buying.", ("desk.trade", {}))
    await desk.asks("Buy")
    desk.model_says("You own one.")
    assert await desk.asks("And now?") == snapshot("""\

cllama → model    the runner's request + 4 hidden messages
model  → cllama   'You own one.'
cllama → runner   'You own one.'
""")


@pytest.mark.requirement("calls:terminal-on-success")
async def test_a_terminal_call_behind_others_ends_the_turn(desk: Desk) -> None:
    desk.grant(tool("trade", write=True, **TERMINAL_TOOL), tool("balance"))
    desk.model_says(("desk.balance", {}), ("desk.trade", {}))
    assert await desk.asks("Buy") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance managed:desk.trade
cllama → service  desk.balance {}
cllama → service  desk.trade {}
cllama → runner   'Done.'   [1 hidden]
""")


@pytest.mark.requirement("calls:terminal-on-success")
async def test_a_terminal_call_that_fails_ends_nothing(desk: Desk) -> None:
    desk.grant(tool("trade", write=True, **TERMINAL_TOOL))
    desk.service_answers("trade", "closed", status=409)
    desk.model_says(("desk.trade", {}))
    desk.model_says("The desk is closed.")
    assert await desk.asks("Buy") == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.trade
cllama → service  desk.trade {}
cllama → model    desk.trade = ! http_409
model  → cllama   'The desk is closed.'
cllama → runner   'The desk is closed.'   [1 hidden]
""")


@pytest.mark.requirement("calls:terminal-on-success")
async def test_a_terminal_call_with_native_ones_behind_it_is_not_the_last(desk: Desk) -> None:
    desk.grant(tool("trade", write=True, **TERMINAL_TOOL))
    desk.model_says(("desk.trade", {}), ("shell", {}))
    desk.model_says(("desk.trade", {}))
    assert await desk.asks("Buy", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.trade native:shell
cllama → model    desk.trade = ! terminal_on_success_order, shell = ! terminal_on_success_order
model  → cllama   managed:desk.trade
cllama → service  desk.trade {}
cllama → runner   'Done.'   [2 hidden]
""")
    assert desk.services.calls == ["desk.trade"]
