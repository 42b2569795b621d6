"""Hidden rounds are part of the conversation, on every later request
(docs/spec/mediation.md section 7).
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from inline_snapshot import snapshot

from tests.turns.desk import Desk, with_tools
from tests.turns.remembering import sent
from tests.turns.scripted import Thought


@with_tools
@pytest.mark.requirement("loop:handoff-continuity")
async def test_a_handoff_goes_on_over_several_native_steps(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says(("shell", {"cmd": "ls"}))
    await desk.asks("Look", native=["shell"])
    desk.model_says(("desk.quote", {}))
    desk.model_says(("shell", {"cmd": "cat"}), ("shell", {"cmd": "pwd"}))
    assert await desk.runs_native("a file") == snapshot("""\

cllama → model    the runner's request + 2 hidden messages
model  → cllama   managed:desk.quote
cllama → service  desk.quote {}
cllama → model    desk.quote = {}
model  → cllama   native:shell{"cmd": "cat"} native:shell{"cmd": "pwd"}
cllama → runner   native:shell{"cmd": "cat"} native:shell{"cmd": "pwd"}   [1 hidden]
""")
    desk.model_says("Done.")
    assert await desk.runs_native("its text") == snapshot("""\

cllama → model    the runner's request + 4 hidden messages
model  → cllama   'Done.'
cllama → runner   'Done.'
""")
    desk.model_says("Still done.")
    assert await desk.asks("Sure?") == snapshot("""\

cllama → model    the runner's request + 4 hidden messages
model  → cllama   'Still done.'
cllama → runner   'Still done.'
""")
    hidden_and_native = ["assistant", "tool", "assistant", "tool"]
    told = ["user", *hidden_and_native, *hidden_and_native, "tool", "assistant", "user"]
    assert desk.wire.parts(desk.model.messages()) == told


@pytest.mark.requirement("continuity:same-bytes")
async def test_what_was_sent_once_begins_every_later_request_in_the_same_bytes(desk: Desk) -> None:
    desk.model_says("Let me see.", ("desk.balance", {"b": 1.0, "a": 2}), ("desk.typo", {}))
    desk.model_says(("shell", {}))
    await desk.asks("One", native=["shell"])
    desk.model_says(("desk.quote", {}))
    desk.model_says("Two.")
    await desk.runs_native("ok")
    desk.model_says("Three.")
    await desk.asks("Three?")
    requests = [sent(raw) for raw in desk.model.raw]
    assert len(requests) == 5
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(requests))


@pytest.mark.requirement("continuity:advice-left-out")
async def test_advice_for_one_turn_is_not_replayed(desk: Desk) -> None:
    desk.model_says(("shell", {}), ("desk.balance", {}))
    desk.model_says(("desk.balance", {}), ("desk.typo", {}))
    desk.model_says(("desk.balance", {}), ("desk.quote", {}))
    desk.model_says(("desk.quote", {}))
    desk.model_says("Done.")
    await desk.asks("Go", native=["shell"])
    desk.model_says("Yes.")
    assert await desk.asks("Sure?") == snapshot("""\

cllama → model    the runner's request + 5 hidden messages
model  → cllama   'Yes.'
cllama → runner   'Yes.'
""")
    assert desk.wire.called(desk.model.bodies[-1]) == ["desk__balance", "desk__typo", "desk__quote"]


@pytest.mark.requirement("continuity:advice-left-out")
async def test_a_turn_of_nothing_but_advice_leaves_nothing_to_remember(desk: Desk) -> None:
    desk.model_says(("shell", {}), ("desk.balance", {}))
    desk.model_says("I give up.")
    await desk.asks("Go", native=["shell"])
    desk.model_says("Yes.")
    assert await desk.asks("Sure?") == snapshot("""\

cllama → model    the runner's request
model  → cllama   'Yes.'
cllama → runner   'Yes.'
""")


@pytest.mark.requirement("continuity:advice-left-out")
async def test_the_last_words_of_a_spent_turn_are_remembered_without_what_forbade_tools(
    desk: Desk,
) -> None:
    desk.grant(*desk.tools, max_rounds=1)
    desk.model_says(("desk.balance", {}))
    desk.model_says(("desk.quote", {}))
    desk.model_says("This is what I have.")
    await desk.asks("Go")
    desk.model_says("Yes.")
    assert await desk.asks("Sure?") == snapshot("""\

cllama → model    the runner's request + 2 hidden messages
model  → cllama   'Yes.'
cllama → runner   'Yes.'
""")
    assert desk.wire.called(desk.model.bodies[-1]) == ["desk__balance"]


@pytest.mark.requirement("loop:answer-continuity")
@pytest.mark.parametrize("words", ["You are rich.", "  You are\n\nrich.  ", "💰" * 100])
async def test_an_answer_is_known_again_in_whatever_form_the_runner_sends_it_back(
    desk: Desk, words: str
) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says(Thought("hm"), words)
    await desk.asks("How am I doing?")
    forms = desk.wire.echoes(desk.messages[-1])
    assert len(forms) >= 3
    for message in forms.values():
        desk.messages = [desk.messages[0], message]
        desk.model_says("Yes.")
        assert "+ 2 hidden messages" in await desk.asks("Sure?")


@pytest.mark.requirement("loop:handoff-continuity")
async def test_a_handoff_is_known_again_in_whatever_form_the_runner_sends_it_back(
    desk: Desk,
) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says("Listing.", ("shell", {"cmd": "ls"}))
    await desk.asks("List", native=["shell"])
    forms = desk.wire.echoes(desk.messages[-1])
    handed = desk.answer
    for message in forms.values():
        desk.messages, desk.answer = [desk.messages[0], message], handed
        desk.model_says("Done.")
        assert "+ 2 hidden messages" in await desk.runs_native("a file")


@pytest.mark.requirement("continuity:told-apart")
async def test_equal_answers_of_two_conversations_keep_their_own_rounds(desk: Desk) -> None:
    for question, tool in (("Balance?", "desk.balance"), ("Quote?", "desk.quote")):
        desk.messages = []
        desk.model_says((tool, {}))
        desk.model_says("Fine.")
        await desk.asks(question)
    for question, alias in (("Balance?", "desk__balance"), ("Quote?", "desk__quote")):
        desk.messages = [desk.wire.user(question), desk.messages[1]]
        desk.model_says("Yes.")
        await desk.asks("Sure?")
        assert desk.wire.called(desk.model.bodies[-1]) == [alias]


@pytest.mark.requirement("continuity:dropped-by-the-runner")
async def test_what_the_runner_has_compacted_away_stays_away(desk: Desk) -> None:
    for number in range(2):
        desk.model_says(("desk.quote", {"n": number}))
        desk.model_says(f"Answer {number}.")
        await desk.asks(f"Question {number}?")
    summary = {"role": "assistant", "content": "We spoke of quotes."}
    desk.messages = [desk.messages[0], summary]
    desk.model_says("Yes.")
    assert await desk.asks("Sure?") == snapshot("""\

cllama → model    the runner's request
model  → cllama   'Yes.'
cllama → runner   'Yes.'
""")


@pytest.mark.requirement("store:own")
async def test_another_agents_conversation_knows_nothing_of_it(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says("Fine.")
    await desk.asks("Hi")
    desk.admits("clerk")
    desk.model_says("Yes.")
    assert await desk.asks("Sure?") == snapshot("""\

cllama → model    the runner's request
model  → cllama   'Yes.'
cllama → runner   'Yes.'
""")
