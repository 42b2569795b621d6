"""Responses: an answer's hidden rounds are found again, whatever runners make of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.mediate.items import BALANCE, answers, types
from tests.turns.desk import Desk
from tests.wires import Body
from tests.wires.responses import function_call, message, reasoning

QUOTE = {**BALANCE, "id": "fc_q", "call_id": "call_q", "name": "desk__quote"}
LONG = (
    "You hold one dollar in cash, two shares of X and no debt; nothing has changed since yesterday."
)


def user(words: str) -> Body:
    return {"role": "user", "content": words}


def without(item: Body, *names: str) -> Body:
    return {name: value for name, value in item.items() if name not in names}


def thought(words: str, item_id: str) -> Body:
    return {**reasoning(words), "id": item_id}


async def hides(
    desk: Desk, question: str, *answer: Body, call: Body = BALANCE, **more: Any
) -> None:
    """Run a turn with one hidden round, and this answer."""
    answers(desk, call)
    answers(desk, *answer)
    await desk.asks(question, **more)


async def resends(desk: Desk, *items: Body, **more: Any) -> list[Body]:
    """Send these items; return those that the model gets."""
    desk.messages, desk.more = list(items), more
    answers(desk, message("Yes.", "msg_yes"))
    await desk.turn()
    return desk.model.messages()


def hidden(items: list[Body]) -> list[str]:
    return [item["name"] for item in items if item.get("name", "").startswith("desk__")]


@pytest.mark.requirement("responses:item-ids")
async def test_a_reference_to_an_answer_has_its_rounds_before_it(codex: Desk) -> None:
    await hides(codex, "How much?", thought("Fifty.", "rs_a"), message("Fifty.", "msg_a"))
    for reference in ({"type": "item_reference"}, {}):
        first, second = ({**reference, "id": item_id} for item_id in ("rs_a", "msg_a"))
        sent = await resends(codex, user("How much?"), first, second, user("Sure?"))
        assert hidden(sent) == ["desk__balance"]
        assert sent[3:] == [first, second, user("Sure?")]


@pytest.mark.requirement("responses:item-ids")
async def test_an_answer_whose_words_a_runner_rewrote_is_known_by_its_id(codex: Desk) -> None:
    await hides(codex, "How much?", message("**Fifty** dollars.", "msg_a"))
    sent = await resends(
        codex, user("How much?"), message("Fifty dollars.", "msg_a"), user("Sure?")
    )
    assert hidden(sent) == ["desk__balance"]


@pytest.mark.requirement("responses:item-ids")
async def test_an_id_alone_gives_no_conversation_the_rounds_of_another(codex: Desk) -> None:
    """Servers count their items in each conversation anew, and runners number
    messages of their own.
    """
    await hides(codex, "How much?", message("Fifty.", "msg_1"))
    greeting = message("Hello, I am your analyst.", "msg_1")
    assert hidden(await resends(codex, greeting, user("Sure?"))) == []
    assert hidden(await resends(codex, user("Hi"), greeting, user("How much?"))) == []
    reference = {"type": "item_reference", "id": "msg_1"}
    assert hidden(await resends(codex, user("Hi"), reference, user("Sure?"))) == []
    codex.headers = {"session-id": "another"}
    await hides(codex, "Which?", message("Fine.", "msg_2"), call=QUOTE)
    assert hidden(
        await resends(codex, user("Which?"), message("Well.", "msg_2"), user("Sure?"))
    ) == ["desk__quote"]
    codex.headers = {"session-id": "a third one"}
    assert (
        hidden(await resends(codex, user("Which?"), message("Well.", "msg_2"), user("Sure?"))) == []
    )


@pytest.mark.requirement("responses:item-ids")
async def test_an_id_that_two_turns_have_finds_neither(codex: Desk) -> None:
    await hides(codex, "Start", message("Fifty.", "msg_0"))
    await hides(codex, "Go on", message("It rose.", "msg_0"), call=QUOTE)
    sent = await resends(
        codex,
        user("Start"),
        message("Fifty.", "msg_0"),
        user("Go on"),
        message("It rose.", "msg_0"),
        user("?"),
    )
    assert types_of_place(sent) == [
        "user",
        "desk__balance",
        "Fifty.",
        "user",
        "desk__quote",
        "It rose.",
        "user",
    ]
    assert hidden(await resends(codex, user("Start"), message("Other.", "msg_0"), user("?"))) == []


@pytest.mark.requirement("responses:item-ids")
async def test_an_id_gives_no_agent_the_rounds_of_another(codex: Desk) -> None:
    await hides(codex, "How much?", message("Fifty.", "msg_a"))
    codex.admits("another")
    assert (
        hidden(await resends(codex, user("How much?"), message("Fifty.", "msg_a"), user("Sure?")))
        == []
    )


def types_of_place(items: list[Body]) -> list[str]:
    """Return a word for each item: the speaker, the text, the hidden call; outputs
    and reasoning are left out.
    """
    words = []
    for item in items:
        if item.get("type") == "function_call":
            words.append(item["name"])
        elif item.get("type", "message") == "message":
            words.append("user" if item["role"] == "user" else item["content"][0]["text"])
    return words


@pytest.mark.requirement("responses:two-answers")
async def test_two_answers_in_a_row_have_their_own_rounds_each_before_its_own(codex: Desk) -> None:
    first = [thought("Fifty.", "rs_a"), message("Fifty.", "msg_a")]
    await hides(codex, "How much?", *first)
    answers(codex, QUOTE)
    second = [
        thought("It rose.", "rs_b"),
        message("It rose.", "msg_b"),
        thought("So.", "rs_c"),
        message("Buy.", "msg_c"),
    ]
    answers(codex, *second)
    codex.messages = [user("How much?"), *first]
    await codex.turn()
    sent = await resends(codex, user("How much?"), *first, *second, user("Sure?"))
    kinds = ["reasoning", "message"]
    call = ["function_call", "function_call_output"]
    assert types(sent[1:-1]) == [*call, *kinds, *call, *kinds, *kinds]
    assert hidden(sent) == ["desk__balance", "desk__quote"]
    nameless = [without(item, "id") for item in [*first, *second]]
    again = await resends(codex, user("How much?"), *nameless, user("Sure?"))
    assert types(again[1:-1]) == types(sent[1:-1])


@pytest.mark.requirement("responses:reordered")
async def test_a_handoff_whose_calls_were_reordered_has_its_rounds_before_the_first(
    codex: Desk,
) -> None:
    calls = [function_call(f"call_{name}", "shell", "{}") for name in ("x", "y")]
    await hides(codex, "Look", *calls, native=["shell"])
    outputs = [
        {"type": "function_call_output", "call_id": call["call_id"], "output": "ok"}
        for call in calls
    ]
    pairs = [item for pair in zip(calls, outputs, strict=True) for item in pair]
    for form in (pairs, [without(item, "id", "status") for item in pairs], pairs[2:]):
        sent = await resends(codex, user("Look"), *form)
        assert types(sent[1:3]) == ["function_call", "function_call_output"]
        assert hidden(sent) == ["desk__balance"]


@pytest.mark.requirement("responses:joined")
async def test_an_answer_of_two_messages_is_found_joined_apart_or_by_the_last(
    codex: Desk,
) -> None:
    one, other = (
        {**message("Let me see. ", "msg_a"), "phase": "commentary"},
        message("Fifty.", "msg_b"),
    )
    await hides(codex, "How much?", one, other)
    joined = {"role": "assistant", "content": "Let me see. Fifty."}
    plain = [{"role": "assistant", "content": text} for text in ("Let me see.", "Fifty.")]
    for form in ([one, other], [joined], plain, plain[1:], [without(other, "id")]):
        sent = await resends(codex, user("How much?"), *form, user("Sure?"))
        assert hidden(sent) == ["desk__balance"]
        assert sent[3:-1] == form


@pytest.mark.requirement("responses:joined")
async def test_an_answer_that_a_runner_cut_in_two_is_known_by_its_parts_together(
    codex: Desk,
) -> None:
    await hides(codex, "How much?", message("Let me see. Fifty.", "msg_a"))
    parts = [{"role": "assistant", "content": text} for text in ("Let me see. ", "Fifty.")]
    sent = await resends(codex, user("How much?"), *parts, user("Sure?"))
    assert hidden(sent) == ["desk__balance"]
    assert sent[3:-1] == parts


@pytest.mark.requirement("responses:hidden-images")
async def test_an_image_of_a_hidden_round_is_not_kept(codex: Desk) -> None:
    image = {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "completed",
        "result": "iVBORw0KGgo=",
    }
    answers(codex, thought("Draw.", "rs_a"), image, thought("Count.", "rs_b"), BALANCE)
    answers(codex, message("Fifty.", "msg_a"))
    await codex.asks("How much?")
    assert image in codex.model.messages(), "this turn's model has seen it"
    sent = await resends(codex, user("How much?"), message("Fifty.", "msg_a"), user("Sure?"))
    assert types(sent[1:4]) == ["reasoning", "function_call", "function_call_output"]
    assert sent[1]["id"] == "rs_b"
    assert codex.interventions() == ["hidden_output_dropped"]


@pytest.mark.requirement("responses:context")
async def test_a_compaction_inside_a_hidden_reply_stays_at_its_place(codex: Desk) -> None:
    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}
    answers(codex, compaction, BALANCE)
    answers(codex, message("Fifty.", "msg_a"))
    await codex.asks("How much?")
    assert types(codex.model.messages()[1:]) == [
        "compaction",
        "function_call",
        "function_call_output",
    ]
    sent = await resends(codex, user("How much?"), message("Fifty.", "msg_a"), user("Sure?"))
    assert types(sent[1:4]) == ["compaction", "function_call", "function_call_output"]


@pytest.mark.requirement("responses:shrunk")
async def test_a_shortened_round_keeps_its_call_but_not_its_id_and_reasoning(
    codex: Desk,
) -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    codex.service_answers("balance", {"rows": "x" * 60_000})
    codex.grant(*codex.tools, max_tool_result_bytes=100_000)
    talk: list[Body] = []
    for number in range(6):
        call = {
            **BALANCE,
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "arguments": json.dumps({"n": number}),
        }
        answers(codex, thought("Hm.", f"rs_{number}"), search, call)
        answers(codex, message(f"It is {number}.", f"msg_{number}"))
        codex.messages = [*talk, user(f"What is {number}?")]
        await codex.turn()
        talk = [*codex.messages[:-1], message(f"It is {number}.", f"msg_{number}")]
    sent = await resends(codex, *talk, user("Sure?"))
    assert types(sent[1:3]) == ["function_call", "function_call_output"]
    assert "id" not in sent[1]
    assert "left_out" in sent[2]["output"]
    assert hidden(sent) == ["desk__balance"] * 6


type Resent = Callable[[Body], list[Body]]


def _codex(item: Body) -> list[Body]:
    if item["type"] == "function_call_output":
        return [{**item, "id": f"fco_{item['call_id']}"}]
    return [{**item, "content": None} if item["type"] == "reasoning" else item]


def _verbatim(item: Body) -> list[Body]:
    return [item]


def _opencode(item: Body) -> list[Body]:
    return [without(item, "id", "status")]


def _qwen(item: Body) -> list[Body]:
    if item["type"] == "message":
        return [{"role": "assistant", "content": item["content"][0]["text"]}]
    return [
        {
            **without(item, "id", "status"),
            **({"summary": []} if item["type"] == "reasoning" else {}),
        }
    ]


def _langchain(item: Body) -> list[Body]:
    return [without(item, "status") if item["type"] == "message" else item]


def _pydantic(item: Body) -> list[Body]:
    return [{**item, "summary": []} if item["type"] == "reasoning" else item]


DEVELOPER = {"role": "developer", "content": "You are a coding agent."}
CODEX_NOTES = [
    {
        "type": "message",
        "id": "msg_0d",
        "role": "developer",
        "content": [{"type": "input_text", "text": "You are an agent."}],
    },
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "<environment_context>/tmp"}],
    },
]
RUNNERS: dict[str, tuple[Resent, list[Body], Body]] = {
    "codex": (
        _codex,
        CODEX_NOTES,
        {"client_metadata": {"session_id": "s", "thread_id": "t"}, "prompt_cache_key": "t"},
    ),
    "pi": (
        _verbatim,
        [DEVELOPER],
        {"include": ["reasoning.encrypted_content"], "prompt_cache_key": "s"},
    ),
    "opencode": (
        _opencode,
        [DEVELOPER],
        {"include": ["reasoning.encrypted_content"], "prompt_cache_key": "s"},
    ),
    "qwen-code": (_qwen, [], {"instructions": "You are Qwen.", "prompt_cache_key": "s"}),
    "agents-sdk": (_verbatim, [], {"instructions": "Help."}),
    "langchain": (_langchain, [], {}),
    "pydantic-ai": (_pydantic, [], {"include": ["reasoning.encrypted_content"]}),
}
"""The form in which each sends an item back, what stands before the user's words, and its members
(measured in November 2026).
"""


@pytest.mark.requirement("responses:anchors")
@pytest.mark.parametrize("runner", RUNNERS)
async def test_the_rounds_of_every_measured_runner_are_found_again(
    codex: Desk, runner: str
) -> None:
    resent, notes, more = RUNNERS[runner]
    talk = [
        *notes,
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "How much, and what is there?"}],
        },
    ]
    codex.more, codex.native = more, ["shell"]
    call = function_call("call_sh", "shell", '{"cmd":"ls"}')
    output = {"type": "function_call_output", "call_id": "call_sh", "output": "a file"}
    handed, answered = (
        [thought("Look.", "rs_a"), call],
        [thought("Enough.", "rs_b"), message(LONG, "msg_b")],
    )

    async def step(first: Body, *reply: Body) -> None:
        answers(codex, thought("Hidden.", f"rs_{first['call_id']}"), first)
        answers(codex, *reply)
        codex.messages = list(talk)
        await codex.turn()

    await step(BALANCE, *handed)
    talk += [item for each in [*handed, output] for item in resent(each)]
    await step(QUOTE, *answered)
    talk += [item for each in answered for item in resent(each)]
    later = await resends(codex, *talk, user("Sure?"), **more)
    begin = len(notes) + 1
    rounds = ["reasoning", "function_call", "function_call_output"]
    kinds = [item.get("type", "message") for item in later[begin:]]
    assert kinds == [*rounds, *rounds, *rounds, "reasoning", "message", "message"]
    assert hidden(later) == ["desk__balance", "desk__quote"]
    before = codex.model.messages(-2)
    assert later[: len(before)] == before, (
        "the same bytes as before, so that the provider's cache holds"
    )
