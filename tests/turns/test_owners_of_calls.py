"""Ownership: who may run a call, and how mixed responses are handled
(docs/spec/mediation.md section 4).
"""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.turns.desk import Desk, tool
from tests.turns.scripted import ExactName


@pytest.mark.requirement("loop:no-calls")
async def test_a_reply_without_calls_is_the_answer(desk: Desk) -> None:
    desk.model_says("Hello!")
    assert await desk.asks("Hi") == snapshot("""\

cllama → model    the runner's request
model  → cllama   'Hello!'
cllama → runner   'Hello!'
""")


@pytest.mark.requirement("loop:managed-only")
async def test_managed_calls_run_hidden_until_the_model_answers(desk: Desk) -> None:
    desk.service_answers("balance", {"usd": 50_000})
    desk.model_says(("desk.balance", {}))
    desk.model_says("You have 50,000 dollars.")
    assert await desk.asks("How am I doing?", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = {'usd': 50000}
model  → cllama   'You have 50,000 dollars.'
cllama → runner   'You have 50,000 dollars.'   [1 hidden]
""")


@pytest.mark.requirement("loop:native-only")
async def test_native_calls_go_to_the_runner_unchanged(desk: Desk) -> None:
    desk.model_says(("shell", {"cmd": "ls"}))
    assert await desk.asks("List files", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   native:shell{"cmd": "ls"}
cllama → runner   native:shell{"cmd": "ls"}
""")


@pytest.mark.requirement("loop:managed-first-native-behind")
async def test_a_native_call_behind_a_managed_one_waits_until_the_model_asks_again(
    desk: Desk,
) -> None:
    desk.service_answers("balance", {"usd": 50_000})
    desk.model_says(("desk.balance", {}), ("shell", {"cmd": "ls"}))
    desk.model_says(("shell", {"cmd": "ls"}))
    assert await desk.asks("How am I doing?", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance native:shell{"cmd": "ls"}
cllama → service  desk.balance {}
cllama → model    desk.balance = {'usd': 50000}
model  → cllama   native:shell{"cmd": "ls"}
cllama → runner   native:shell{"cmd": "ls"}   [1 hidden]
""")
    assert desk.interventions() == ["managed_prefix_native_suffix_serialized"]


@pytest.mark.requirement("loop:handoff-continuity")
async def test_hidden_rounds_are_there_again_when_the_runner_comes_back_with_a_native_result(
    desk: Desk,
) -> None:
    desk.service_answers("balance", {"usd": 50_000})
    desk.model_says(("desk.balance", {}))
    desk.model_says(("shell", {"cmd": "ls"}))
    await desk.asks("How am I doing?", native=["shell"])
    desk.model_says("All is well.")
    assert await desk.runs_native("a file") == snapshot("""\

cllama → model    the runner's request + 2 hidden messages
model  → cllama   'All is well.'
cllama → runner   'All is well.'
""")
    assert desk.wire.parts(desk.model.messages()) == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]


@pytest.mark.requirement("loop:handoff-continuity")
async def test_a_handoff_is_reinjected_on_every_later_request_in_the_same_bytes(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says(("shell", {"cmd": "ls"}))
    await desk.asks("How am I doing?", native=["shell"])
    desk.model_says("One.")
    await desk.runs_native("a file")
    desk.model_says("Two.")
    await desk.asks("And now?")
    first, second = desk.model.messages(-2), desk.model.messages()
    assert second[: len(first)] == first


@pytest.mark.requirement("loop:answer-continuity")
async def test_the_rounds_behind_an_answer_are_part_of_the_next_conversation_turn(
    desk: Desk,
) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says("You are rich.")
    await desk.asks("How am I doing?")
    desk.model_says("Still.")
    assert await desk.asks("Sure?") == snapshot("""\

cllama → model    the runner's request + 2 hidden messages
model  → cllama   'Still.'
cllama → runner   'Still.'
""")


@pytest.mark.requirement("loop:native-before-managed")
async def test_native_before_managed_is_sent_back_to_the_model_to_replan(desk: Desk) -> None:
    desk.model_says(("shell", {"cmd": "ls"}), ("desk.balance", {}))
    desk.model_says(("desk.balance", {}))
    desk.model_says("Done.")
    assert await desk.asks("Both!", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   native:shell{"cmd": "ls"} managed:desk.balance
cllama → model    shell = ! managed_tools_first, desk.balance = ! managed_tools_first
model  → cllama   managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = {}
model  → cllama   'Done.'
cllama → runner   'Done.'   [2 hidden]
""")
    assert desk.interventions() == ["mixed_tool_order_internal_retry"]


@pytest.mark.requirement("loop:native-before-managed")
async def test_interleaved_calls_are_all_rejected(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}), ("shell", {}), ("desk.quote", {}))
    desk.model_says("I give up.")
    assert await desk.asks("All!", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance native:shell managed:desk.quote
cllama → model    desk.balance = ! managed_tools_first, shell = ! managed_tools_first, desk.quote = ! managed_tools_first
model  → cllama   'I give up.'
cllama → runner   'I give up.'   [1 hidden]
""")


@pytest.mark.requirement("loop:unknown-tool")
async def test_an_invented_tool_is_answered_and_never_handed_to_the_runner(desk: Desk) -> None:
    desk.model_says(("desk.typo", {}), ("desk.balance", {}))
    desk.model_says("Sorry.")
    assert await desk.asks("Go", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   unknown:desk.typo managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.typo = ! unknown_tool, desk.balance = {}
model  → cllama   'Sorry.'
cllama → runner   'Sorry.'   [1 hidden]
""")
    assert desk.services.calls == ["desk.balance"]


@pytest.mark.requirement("loop:unknown-tool")
async def test_a_tool_that_was_not_granted_is_unknown_by_any_name(desk: Desk) -> None:
    desk.grant(tool("balance"))
    desk.model_says(("desk.trade", {"symbol": "X"}))
    desk.model_says("I can't trade.")
    assert await desk.asks("Trade!") == snapshot("""\

cllama → model    the runner's request
model  → cllama   unknown:desk.trade{"symbol": "X"}
cllama → model    desk.trade = ! unknown_tool
model  → cllama   "I can't trade."
cllama → runner   "I can't trade."   [1 hidden]
""")
    assert desk.services.calls == []


@pytest.mark.requirement("names:native-wins")
async def test_a_declared_name_is_the_runners_even_if_it_is_a_managed_canonical_name(
    desk: Desk,
) -> None:
    desk.model_says((ExactName("desk.balance"), {}))
    await desk.asks("Go", native=["desk.balance"])
    assert [call.name for call in desk.answer.calls] == ["desk.balance"]
    assert desk.services.calls == []


@pytest.mark.requirement("loop:usage-for-runner")
async def test_runner_is_shown_the_input_of_the_last_call_and_the_output_of_all(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says(("desk.quote", {}))
    desk.model_says("Done.")
    await desk.asks("Go")
    assert desk.usage == (10, 15)
