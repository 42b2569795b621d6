"""Hidden rounds whose answer is odd: empty, dropped, never given, or the proxy's own
(docs/spec/mediation.md section 7).
"""

from __future__ import annotations

import asyncio

import pytest
from inline_snapshot import snapshot

from tests.turns.desk import Desk, tool, with_tools
from tests.turns.remembering import said, told
from tests.turns.retrying import answer, failed_after_a_trade, until_called
from tests.waiting import eventually_async


@pytest.mark.requirement("continuity:empty-answers")
async def test_an_answer_without_words_for_which_the_runner_writes_so_has_its_rounds(
    desk: Desk,
) -> None:
    """Claude Code writes "(no content)"."""
    desk.model_says(("desk.balance", {}))
    desk.model_says("")
    await desk.asks("Look")
    desk.messages[-1]["content"] = "(no content)"
    assert await told(desk) == ["desk__balance"]


@pytest.mark.requirement("continuity:empty-answers")
@pytest.mark.parametrize("note", [False, True])
async def test_an_answer_without_words_that_the_runner_drops_leaves_its_rounds_in_its_place(
    desk: Desk, *, note: bool
) -> None:
    await said(desk, "One?", "desk.quote", "First.")
    desk.model_says(("desk.balance", {}))
    desk.model_says("")
    await desk.asks("Look")
    desk.messages.pop()
    if note:
        desk.messages.append({"role": "system", "content": "The answer was empty."})
    assert await told(desk) == ["desk__quote", "desk__balance"]
    assert desk.wire.parts(
        [one for one in desk.model.messages() if one.get("role") != "system"]
    ) == [
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant", "tool", "user"),
    ]
    assert await told(desk, "Quite sure?") == ["desk__quote", "desk__balance"], (
        "on every later request too"
    )


@pytest.mark.requirement("continuity:empty-answers")
@pytest.mark.parametrize("words", ["Look at this", "And?"])
async def test_between_other_words_of_the_users_nothing_is_put(desk: Desk, words: str) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says("")
    await desk.asks("Look")
    desk.messages = [
        desk.wire.user("Look"),
        {"role": "assistant", "content": "There."},
        desk.wire.user(words),
    ]
    assert await told(desk) == []


@pytest.mark.requirement("continuity:unanswered")
async def test_what_a_failed_turn_did_is_known_when_the_runner_goes_on_behind_it(
    desk: Desk,
) -> None:
    await failed_after_a_trade(desk)
    assert await told(desk, "What happened?") == ["desk__trade"]
    assert await told(desk, "And now?") == ["desk__trade"]
    assert desk.services.calls == ["desk.trade"]


@pytest.mark.requirement("continuity:unanswered")
@pytest.mark.parametrize("session", ["another", ""])
async def test_what_a_failed_turn_did_is_not_known_where_the_same_words_failed_without_it(
    desk: Desk, session: str
) -> None:
    desk.headers = {"x-claude-code-session-id": "one"} if session else {}
    await failed_after_a_trade(desk)
    desk.headers = {"x-claude-code-session-id": session} if session else {}
    desk.messages = [desk.wire.user("Hello"), {"role": "assistant", "content": "Hi."}]
    desk.model_refuses(400, "invalid_request")
    await desk.asks("Buy")
    assert await told(desk, "What happened?") == []


@pytest.mark.requirement("continuity:unanswered")
async def test_what_a_turn_did_whose_runner_left_is_known_when_it_goes_on_behind_it(
    desk: Desk,
) -> None:
    gate = desk.services.gates["desk.quote"] = asyncio.Event()
    desk.messages = [desk.wire.user("Buy")]
    desk.model_says(("desk.trade", {}))
    desk.model_says(("desk.quote", {}))
    runner = asyncio.ensure_future(answer(desk))
    await until_called(desk, "desk.quote")
    runner.cancel()
    await asyncio.wait([runner])
    gate.set()
    await eventually_async(lambda: bool(desk.told("error")), "the turn has ended")
    assert desk.logged_error() == "runner_left"
    assert (await told(desk, "What have you done?"))[:1] == ["desk__trade"]


@with_tools
@pytest.mark.requirement("loop:handoff-continuity")
async def test_each_of_three_native_steps_has_its_rounds_though_the_last_was_retried(
    desk: Desk,
) -> None:
    desk.model_says(("desk.balance", {"n": 1}))
    desk.model_says(("shell", {"n": 1}))
    await desk.asks("Look", native=["shell"])
    for number in (2, 3):
        desk.model_says(("desk.quote", {"n": number}))
        desk.model_says(("shell", {"n": number}))
        await desk.runs_native(f"step {number}")
    desk.model_says(("desk.trade", {}))
    desk.model_refuses(400, "invalid_request")
    await desk.runs_native("step 4")
    desk.model_says("Done.")
    assert await desk.turn() == snapshot("""\

cllama → model    the runner's request + 8 hidden messages
model  → cllama   'Done.'
cllama → runner   'Done.'   [1 hidden]
""")
    assert await told(desk) == [
        "desk__balance",
        "shell",
        "desk__quote",
        "shell",
        "desk__quote",
        "shell",
        "desk__trade",
    ]
    assert desk.services.calls == ["desk.balance", "desk.quote", "desk.quote", "desk.trade"]


@pytest.mark.buffered
@pytest.mark.requirement("loop:answer-continuity")
@pytest.mark.parametrize("words", ["", "Bought, I think."])
async def test_a_turn_that_a_terminal_tool_ended_has_its_rounds_later_too(
    desk: Desk, words: str
) -> None:
    desk.grant(tool("trade", write=True, **{"x-claw.terminalOnSuccess": True}), tool("balance"))
    desk.model_says(("desk.balance", {}))
    desk.model_says(words, ("desk.trade", {}))
    await desk.asks("Buy")
    assert desk.answer.text
    desk.model_says("Yes.")
    assert await desk.asks("Sure?") == snapshot("""\

cllama → model    the runner's request + 4 hidden messages
model  → cllama   'Yes.'
cllama → runner   'Yes.'
""")
    assert desk.wire.called(desk.model.bodies[-1]) == ["desk__balance", "desk__trade"]


@pytest.mark.requirement("continuity:bounds")
async def test_others_have_their_turn_while_a_long_conversation_is_looked_for(gpt: Desk) -> None:
    ticks = 0

    async def others() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    waited = []
    for answers in (10, 3_000):
        gpt.messages = [
            {"role": "assistant", "content": f"Answer {number}"} for number in range(answers)
        ]
        gpt.model_says("So it was.")
        ticking, before = asyncio.ensure_future(others()), ticks
        await gpt.asks("Was it so?")
        ticking.cancel()
        waited.append(ticks - before)
    assert waited[1] > waited[0]
