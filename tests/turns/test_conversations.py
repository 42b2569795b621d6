"""Conversations that runners keep, cut, fork and respell: hidden rounds are reinjected
(docs/spec/mediation.md section 7).
"""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import pairwise
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from tests.turns.desk import Desk, opened, with_tools
from tests.turns.remembering import said, sent, told
from tests.turns.scripted import Thought
from tests.wires import Body, anthropic, openai

LONG = (
    "You hold one dollar in cash, two shares of X and no debt; nothing has changed since yesterday."
)


@pytest.mark.requirement("continuity:told-apart")
async def test_conversations_of_one_agent_that_go_on_in_turns_never_disturb_each_other(
    desk: Desk,
) -> None:
    talks: dict[str, list[Body]] = {"balance": [], "quote": []}
    for number in range(3):
        for tool, messages in talks.items():
            desk.messages = messages
            await said(desk, f"{tool} {number}?", f"desk.{tool}", "Fine.")
    for tool, messages in talks.items():
        desk.messages = messages
        assert await told(desk) == [f"desk__{tool}"] * 3


@pytest.mark.requirement("continuity:told-apart")
async def test_two_sessions_with_the_same_words_are_two_conversations(desk: Desk) -> None:
    talks: dict[str, list[Body]] = {"balance": [], "quote": []}
    for tool, messages in talks.items():
        desk.messages, desk.headers = messages, {"x-claude-code-session-id": tool}
        await said(desk, "How am I doing?", f"desk.{tool}", "Fine.")
    for tool, messages in talks.items():
        desk.messages, desk.headers = messages, {"x-claude-code-session-id": tool}
        assert await told(desk) == [f"desk__{tool}"]


@pytest.mark.requirement("continuity:regenerated")
async def test_an_answer_that_is_made_again_has_the_rounds_of_its_own_making(desk: Desk) -> None:
    await said(desk, "How am I doing?", "desk.balance", "Fine.")
    desk.messages.pop()
    desk.model_says(("desk.quote", {}))
    desk.model_says("Fine.")
    assert await desk.turn() == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.quote
cllama → service  desk.quote {}
cllama → model    desk.quote = {}
model  → cllama   'Fine.'
cllama → runner   'Fine.'   [1 hidden]
""")
    assert await told(desk) == ["desk__quote"]


@pytest.mark.requirement("continuity:regenerated")
async def test_an_answer_that_is_made_again_without_tools_has_no_rounds(desk: Desk) -> None:
    await said(desk, "How am I doing?", "desk.balance", "Fine.")
    desk.messages.pop()
    desk.model_says("Fine.")
    await desk.turn()
    assert await told(desk) == []


@pytest.mark.requirement("continuity:edited")
async def test_an_edit_of_an_earlier_message_costs_no_later_message_its_rounds(desk: Desk) -> None:
    await said(desk, "One?", "desk.balance", "First.")
    await said(desk, "Two?", "desk.quote", "Second.")
    desk.messages[0] = desk.wire.user("Another one?")
    assert (await told(desk))[-1] == "desk__quote"
    desk.messages = [desk.wire.user("Something else?")]
    desk.model_says("Yes.")
    assert "hidden" not in await desk.turn()


@pytest.mark.requirement("continuity:compacted")
async def test_a_summary_in_the_place_of_earlier_messages_leaves_a_kept_answer_its_rounds(
    desk: Desk,
) -> None:
    await said(desk, "One?", "desk.balance", "First.")
    await said(desk, "Two?", "desk.quote", LONG)
    desk.messages = [desk.wire.user("Summary: they spoke of money."), desk.messages[-1]]
    assert await told(desk) == ["desk__quote"]


@with_tools
@pytest.mark.requirement("continuity:compacted")
async def test_a_summary_leaves_a_kept_handoff_its_rounds(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says(("shell", {"cmd": "ls"}))
    await desk.asks("Look", native=["shell"])
    desk.messages[0] = desk.wire.user("Summary: they want to see a file.")
    desk.model_says("Done.")
    assert "+ 2 hidden messages" in await desk.runs_native("a file")


@pytest.mark.requirement("continuity:evidence")
async def test_a_short_answer_below_a_summary_is_not_guessed(desk: Desk) -> None:
    await said(desk, "One?", "desk.balance", "Done.")
    desk.messages = [desk.wire.user("Summary of another conversation"), desk.messages[-1]]
    assert await told(desk) == []


@pytest.mark.requirement("continuity:runners")
async def test_arguments_of_a_native_call_may_be_written_anew_and_empty_messages_dropped(
    desk: Desk,
) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says(("shell", '{"cmd":"ls",  "all":true}'))
    await desk.asks("List", native=["shell"])
    made = json.dumps(desk.messages[-1])
    anew = made.replace(
        '{\\"cmd\\":\\"ls\\",  \\"all\\":true}', '{\\"all\\": true, \\"cmd\\": \\"ls\\"}'
    )
    desk.messages[-1] = json.loads(anew)
    desk.messages[-1].setdefault("content", "")
    desk.messages[-1]["content"] = desk.messages[-1]["content"] or ""
    desk.model_says("Done.")
    assert "+ 2 hidden messages" in await desk.runs_native("a file")


@pytest.mark.requirement("loop:handoff-continuity")
async def test_a_follow_up_that_failed_and_is_sent_again_has_the_hidden_rounds_both_times(
    desk: Desk,
) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says(("shell", {"cmd": "ls"}))
    await desk.asks("Look", native=["shell"])
    desk.model_refuses(400, "invalid_request")
    assert "+ 2 hidden messages" in await desk.runs_native("a file")
    desk.model_says("Done.")
    assert "+ 2 hidden messages" in await desk.turn()
    assert desk.model.raw[-1] == desk.model.raw[-2]


@pytest.mark.requirement("continuity:restart")
async def test_a_restart_between_any_two_requests_is_not_noticed(desk: Desk) -> None:
    desk.remembers()
    for number in range(3):
        desk.model_says(Thought("hm"), ("desk.balance", {"n": number}))
        desk.model_says(("shell", {"n": number}))
        await desk.asks(f"Step {number}", native=["shell"])
        desk.open()
        desk.model_says(("desk.quote", {"n": number}))
        desk.model_says(f"Step {number} is done.")
        await desk.runs_native("ok")
        desk.open()
    requests = [sent(raw) for raw in desk.model.raw]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(requests))
    hidden = [name for name in desk.wire.called(desk.model.bodies[-1]) if name.startswith("desk__")]
    assert hidden == ["desk__balance", "desk__quote"] * 3


@pytest.mark.requirement("continuity:two-dialects")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_goes_on_in_another_dialect_and_the_first_forgets_nothing(
    tmp_path: Path, *, stream: bool
) -> None:
    async with opened(Desk(tmp_path, openai, stream=stream)) as desk:
        await said(desk, "How am I doing?", "desk.balance", LONG)
        ours = deepcopy(desk.messages)
        desk.wire = anthropic
        desk.messages = [desk.wire.user("How am I doing?"), {"role": "assistant", "content": LONG}]
        assert await told(desk) == [], "its rounds are messages of the other dialect"
        desk.wire, desk.messages = openai, ours
        assert await told(desk) == ["desk__balance"]


@pytest.mark.requirement("continuity:runners")
async def test_openclaws_note_at_the_end_of_every_request_and_its_stripped_ids(gpt: Desk) -> None:
    def note(number: int) -> Body:
        return gpt.wire.user(f"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>> {number}")

    gpt.messages = [gpt.wire.user("Look")]
    gpt.model_says(("desk.balance", {}))
    gpt.model_says(("shell", {"cmd": "ls"}))
    await gpt.sends(note(1), native=["shell"])
    handed = gpt.messages.pop()
    handed["tool_calls"][0]["id"] = handed["tool_calls"][0]["id"].replace("_", "")
    result = {"role": "tool", "tool_call_id": handed["tool_calls"][0]["id"], "content": "a file"}
    gpt.messages = [gpt.messages[0], handed, result]
    gpt.model.replies[result["tool_call_id"]] = gpt.model.replies["call_2"]
    gpt.model_says(("desk.quote", {}))
    gpt.model_says("Done.")
    assert "+ 2 hidden messages" in await gpt.sends(note(2))
    gpt.messages.pop(-2)
    gpt.messages += [gpt.wire.user("Sure?")]
    gpt.model_says("Yes.")
    assert "+ 4 hidden messages" in await gpt.sends(note(3))


@pytest.mark.requirement("continuity:runners")
async def test_claude_codes_moved_marks_and_its_rewritten_system_entry(claude: Desk) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    claude.messages = [
        {"role": "user", "content": [{"type": "text", "text": "Look", **mark}]},
        {"role": "system", "content": [{"type": "text", "text": "Reminder", **mark}]},
    ]
    claude.native = ["Bash"]
    claude.model_says(Thought("hm"), ("desk.balance", {}))
    claude.model_says(Thought("so"), ("Bash", {"cmd": "ls"}))
    await claude.turn()
    claude.messages[0] = claude.wire.user("Look")
    claude.messages[1] = {"role": "system", "content": "Reminder"}
    claude.messages[2]["content"][-1] |= mark
    claude.model_says(Thought("oh"), ("desk.quote", {}))
    claude.model_says("Done.")
    assert "+ 2 hidden messages" in await claude.runs_native("a file")
    claude.messages[2]["content"] = [
        {name: value for name, value in block.items() if name != "cache_control"}
        for block in claude.messages[2]["content"]
    ]
    claude.messages[-1]["content"] = "Done."
    claude.model_says("Yes.")
    assert "+ 4 hidden messages" in await claude.asks("Sure?")


@pytest.mark.requirement("continuity:runners")
async def test_qwens_fork_of_a_conversation_has_its_rounds_and_leaves_the_conversation_its_own(
    desk: Desk,
) -> None:
    await said(desk, "How am I doing?", "desk.balance", "Fine.")
    main = deepcopy(desk.messages)
    desk.messages[0] = desk.wire.user(
        "<system-reminder>other skills</system-reminder> How am I doing?"
    )
    desk.model_says("Nothing to remember.")
    await desk.asks("Extract memories from this conversation.", native=["save"])
    desk.messages = main
    assert await told(desk, "And now?") == ["desk__balance"]
