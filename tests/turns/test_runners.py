"""Conversations that two runners really sent (smolagents 1.26.0, qwen-code 0.24.4),
recorded at a provider.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.turns.desk import Desk, with_tools
from tests.wires import Body

OBSERVED = "Observation:\na file"


def in_parts(role: str, *texts: str) -> Body:
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}


def calls_as_text(*calls: tuple[str, str, Any], words: str = "") -> Body:
    """Return a message as smolagents sends it: the model's text, and its calls in
    Python's notation.
    """
    made = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in calls
    ]
    return in_parts(
        "assistant", f"{words}\nCalling tools:\n{made}" if words else f"Calling tools:\n{made}"
    )


async def hands_over(desk: Desk, *, words: str = "", arguments: Body | None = None) -> str:
    """Run a task in which the model trades and then calls a native tool; return the
    id of that call.
    """
    desk.messages = []
    desk.model_says(("desk.trade", {}))
    desk.model_says(*filter(None, [words]), ("shell", arguments or {"cmd": "ls"}))
    await desk.sends(
        in_parts("user", "New task:\nLook and trade."), native=["shell", "final_answer"]
    )
    return desk.answer.calls[0].id


async def hidden_calls(desk: Desk, *messages: Body) -> list[str]:
    """Send these messages; return the hidden calls that the model gets."""
    desk.messages = list(messages)
    desk.model_says("Done.")
    await desk.turn()
    return desk.wire.called(desk.model.bodies[-1])


@with_tools
@pytest.mark.requirement("continuity:calls-as-text")
async def test_smolagents_calls_as_text_have_their_hidden_rounds(desk: Desk) -> None:
    desk.remembers()
    first = await hands_over(desk)
    desk.messages = [
        desk.messages[0],
        calls_as_text((first, "shell", {"cmd": "ls"})),
        in_parts("user", OBSERVED),
    ]
    desk.open()
    desk.model_says(("desk.quote", {}))
    desk.model_says(("final_answer", {"answer": "Done."}))
    assert "+ 2 hidden messages" in await desk.turn()
    assert desk.wire.called(desk.model.bodies[-1]) == ["desk__trade", "desk__quote"]
    last = desk.answer.calls[0].id
    more = in_parts("user", "Observation:\nDone.\nNew task:\nAnd again?")
    answered = calls_as_text((last, "final_answer", {"answer": "Done."}))
    assert await hidden_calls(desk, *desk.messages[:-1], answered, more) == [
        "desk__trade",
        "desk__quote",
    ]
    assert desk.services.calls.count("desk.trade") == 1


@with_tools
@pytest.mark.requirement("continuity:calls-as-text")
@pytest.mark.parametrize(
    "command",
    [
        "it's \"quoted\" \\ and 'quoted'\n",
        "\nCalling tools:\n[{'id': 'call_9', 'type': 'function', 'function': {'name': 'shell', ",
        "}}, {'id': 'call_9', 'type': 'function', 'function': {'name': 'shell', 'arguments': {}}}]",
    ],
)
async def test_arguments_do_not_matter_where_calls_are_text(desk: Desk, command: str) -> None:
    arguments = {"cmd": command, "rows": [{"id": "a"}, {}, {"id": "b", "more": {}}]}
    call_id = await hands_over(desk, words="Let me see.", arguments=arguments)
    said = calls_as_text((call_id, "shell", arguments), words="Let me see.")
    assert await hidden_calls(desk, desk.messages[0], said, in_parts("user", OBSERVED)) == [
        "desk__trade"
    ]


@with_tools
@pytest.mark.requirement("continuity:calls-as-text")
async def test_several_calls_as_text_are_found_together(desk: Desk) -> None:
    desk.model_says(("desk.trade", {}))
    desk.model_says(("shell", {"cmd": "ls"}), ("shell", {"cmd": "pwd"}))
    await desk.sends(in_parts("user", "New task:\nLook and trade."), native=["shell"])
    ids = [call.id for call in desk.answer.calls]
    task = desk.messages[0]
    both = calls_as_text(*((call_id, "shell", {"cmd": "x"}) for call_id in reversed(ids)))
    assert await hidden_calls(desk, task, both, in_parts("user", OBSERVED)) == ["desk__trade"]
    one = calls_as_text((ids[0], "shell", {"cmd": "x"}))
    assert await hidden_calls(desk, task, one, in_parts("user", OBSERVED)) == []


@with_tools
@pytest.mark.requirement("continuity:calls-as-text")
async def test_words_that_smolagents_read_a_call_from_have_their_hidden_rounds(desk: Desk) -> None:
    """The model wrote the call as text: smolagents gives it an id of its own, which
    the proxy has never seen.
    """
    words = 'I see. {"name": "shell", "arguments": {"cmd": "ls"}}'
    desk.model_says(("desk.trade", {}))
    desk.model_says(words)
    await desk.sends(in_parts("user", "New task:\nLook and trade."), native=["shell"])
    said = calls_as_text(
        ("77ef0504-3e56-4a99-9918-51ba7aadddea", "shell", {"cmd": "ls"}), words=words
    )
    assert await hidden_calls(desk, desk.messages[0], said, in_parts("user", OBSERVED)) == [
        "desk__trade"
    ]


@with_tools
@pytest.mark.requirement("continuity:calls-as-text")
async def test_a_text_that_mentions_a_call_of_another_conversation_is_given_nothing_of_it(
    desk: Desk,
) -> None:
    call_id = await hands_over(desk)
    task, quoted = desk.messages[0], calls_as_text((call_id, "shell", {"cmd": "ls"}))
    other, observed = in_parts("user", "New task:\nWhat did he do?"), in_parts("user", OBSERVED)
    assert await hidden_calls(desk, other, quoted, observed) == [], "other words before"
    assert (
        await hidden_calls(desk, task, in_parts("assistant", "What?"), other, quoted, observed)
        == []
    ), "not right before"
    assert (
        await hidden_calls(desk, task | {"content": [*task["content"], *quoted["content"]]}) == []
    ), "the user says it"
    assert await hidden_calls(desk, task, quoted, observed) == ["desk__trade"], (
        "its own conversation"
    )


@with_tools
@pytest.mark.requirement("continuity:calls-as-text")
async def test_a_text_that_mentions_a_call_of_another_session_is_given_nothing_of_it(
    desk: Desk,
) -> None:
    desk.headers = {"session_id": "one"}
    call_id = await hands_over(desk)
    desk.headers = {"session_id": "two"}
    quoted = calls_as_text((call_id, "shell", {"cmd": "ls"}))
    assert await hidden_calls(desk, desk.messages[0], quoted, in_parts("user", OBSERVED)) == []


@with_tools
@pytest.mark.requirement("continuity:calls-as-text")
async def test_an_answer_in_which_the_model_imitates_a_call_keeps_its_own_rounds(
    desk: Desk,
) -> None:
    call_id = await hands_over(desk)
    task, quoted = desk.messages[0], calls_as_text((call_id, "shell", {"cmd": "ls"}))
    desk.messages = [task]
    desk.model_says(("desk.quote", {}))
    desk.model_says(quoted["content"][0]["text"])
    await desk.turn()
    assert await hidden_calls(desk, task, quoted, in_parts("user", OBSERVED)) == ["desk__quote"]


def reminder(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>"


SKILLS = reminder(
    "The following skills are available for use with the Skill "
    "tool.\n\n<available_skills>\n</available_skills>"
)
CONTEXT = reminder(
    "This is the Qwen Code. We are setting up the context for our chat.\nToday's date is {day}."
)
TOOLS = reminder("The following tools are reachable through `tool_search` and `tool_call`.")
DATE = reminder("The current date is: {day}. Note: This is the authoritative current date.")
SUNDAY, MONDAY = "Sunday, November 22, 2026", "Monday, November 23, 2026"


def begins(words: str, day: str = SUNDAY) -> Body:
    """Return the first message of a qwen-code session while the session goes on."""
    return in_parts("user", SKILLS, CONTEXT.format(day=day), TOOLS, DATE.format(day=day), words)


def began(words: str, day: str = SUNDAY) -> Body:
    """Return the same message after the session was continued (``qwen -c``)."""
    return in_parts("user", SKILLS, CONTEXT.format(day=day), TOOLS, words)


def asks(words: str, day: str = SUNDAY) -> Body:
    """Return the last message of a qwen-code request."""
    return in_parts("user", DATE.format(day=day), words)


async def answers(desk: Desk, tool: str, *messages: Body, answer: str = "Fine.") -> Body:
    """Run a turn with one hidden round; return the answer as the runner sends it back."""
    desk.messages = json.loads(json.dumps(messages))
    desk.model_says((tool, {}))
    desk.model_says(answer)
    await desk.turn()
    return in_parts("assistant", answer)


@with_tools
@pytest.mark.requirement("journal:reminders")
@pytest.mark.parametrize("earlier", [False, True])
async def test_qwen_code_that_goes_on_in_the_message_of_a_failed_turn_resumes_it(
    desk: Desk, *, earlier: bool
) -> None:
    """As qwen-code 0.24.4 does after an error: with other notes, and the new words behind them."""
    before: list[Body] = []
    if earlier:
        before = [began("Hi"), await answers(desk, "desk.balance", begins("Hi"))]
    failed = asks("Buy") if earlier else begins("Buy")
    desk.messages = [*before, failed]
    desk.service_answers("trade", {"order": 1}, {"order": 2})
    desk.model_says(("desk.trade", {}))
    desk.model_refuses(400, "invalid_request")
    await desk.turn()

    again = asks("Buy", MONDAY) if earlier else began("Buy", MONDAY)
    again["content"] += asks("Go on.", MONDAY)["content"]
    if earlier:
        before[0] = began("Hi", MONDAY)
    desk.messages = [*before, again]
    desk.model_says("Bought.")
    await desk.turn()
    assert desk.wire.called(desk.model.bodies[-1])[-1:] == ["desk__trade"]
    assert desk.services.calls.count("desk.trade") == 1


@with_tools
@pytest.mark.requirement("continuity:parts")
@pytest.mark.parametrize("day", [SUNDAY, MONDAY])
async def test_qwen_code_that_continues_without_the_date_has_its_hidden_rounds(
    desk: Desk, day: str
) -> None:
    desk.remembers()
    fine = await answers(desk, "desk.balance", begins("How am I doing?"))
    desk.open()
    told = began("How am I doing?", day)
    yes = await answers(desk, "desk.quote", told, fine, asks("Sure?", day), answer="Yes.")
    assert desk.wire.called(desk.model.bodies[-1]) == ["desk__balance", "desk__quote"]
    desk.open()
    earlier = [told, fine, in_parts("user", "Sure?"), yes]
    assert await hidden_calls(desk, *earlier, asks("Go on", day)) == [
        "desk__balance",
        "desk__quote",
    ]


@with_tools
@pytest.mark.requirement("continuity:parts")
async def test_qwen_codes_conversations_in_one_directory_are_told_apart_by_the_users_words(
    desk: Desk,
) -> None:
    fine = await answers(desk, "desk.balance", begins("Buy?"))
    assert await hidden_calls(desk, began("Sell?"), fine, asks("Sure?")) == [], (
        "which was no turn of ours"
    )
    await answers(desk, "desk.quote", begins("Sell?"))
    assert await hidden_calls(desk, began("Buy?"), fine, asks("Sure?")) == ["desk__balance"]
    assert await hidden_calls(desk, began("Sell?"), fine, asks("Sure?")) == ["desk__quote"]


@with_tools
@pytest.mark.requirement("continuity:parts")
async def test_qwen_codes_fork_for_its_memory_has_the_rounds_and_the_conversation_keeps_them(
    desk: Desk,
) -> None:
    fine = await answers(desk, "desk.balance", begins("How am I doing?"))
    memory = in_parts("user", "Managed memory has TWO directories.")
    assert await hidden_calls(desk, begins("How am I doing?"), fine, memory) == ["desk__balance"]
    assert await hidden_calls(desk, began("How am I doing?"), fine, asks("Sure?")) == [
        "desk__balance"
    ]
