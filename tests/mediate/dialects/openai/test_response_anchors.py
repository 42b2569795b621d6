"""The changes that real runners make to a message before they resend it: it is still found."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from tests.mediate.made import catalog
from tests.wires.openai import completion

USER = {"role": "user", "content": "List the files."}
NAMES = catalog(native=["shell", "read"])

type Message = dict[str, Any]
type Mutation = Callable[[Message], Any]


def calls(message: Message) -> list[Message]:
    made: list[Message] = message["tool_calls"]
    return made


def as_parts(message: Message) -> None:
    """Split the text, as openclaw does in every other turn, and mark the parts, as
    Anthropic-minded runners do.
    """
    text = message["content"] or ""
    half = len(text) // 2
    message["content"] = [
        {"type": "text", "text": text[:half], "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": text[half:], "annotations": None},
    ]


def respelt(message: Message) -> None:
    """Serialize the arguments again, as nanobot, langchain and llm do."""
    for call in calls(message):
        call["function"]["arguments"] = json.dumps(
            json.loads(call["function"]["arguments"]), indent=1
        )


def stripped(message: Message) -> None:
    """Keep only the alphanumerics of ids, as openclaw does, and drop a member, as
    other runners do.
    """
    for call in calls(message):
        call["id"] = "".join(filter(str.isalnum, call["id"]))
        del call["type"]


ANY: dict[str, Mutation] = {
    "verbatim": copy.copy,
    "no content (litellm)": lambda message: message["content"] is None and message.pop("content"),
    "null becomes empty (opencode)": lambda message: message.update(
        content=message["content"] or ""
    ),
    "empty becomes null": lambda message: message.update(content=message["content"] or None),
    "parts": as_parts,
    "no parts": lambda message: message.update(content=message["content"] or []),
    "nulls (openai SDK)": lambda message: message.update(
        parsed=None, refusal=None, function_call=None, audio=None
    ),
    "fields (litellm)": lambda message: message.update(provider_specific_fields={"refusal": None}),
    "cache_control": lambda message: message.update(cache_control={"type": "ephemeral"}),
    "a name": lambda message: message.update(name="assistant"),
    "white space": lambda message: message.update(content=f"{message['content'] or ''}\n"),
    "reasoning dropped": lambda message: message.pop("reasoning_content"),
    "another order": lambda message: [
        message.update({name: message.pop(name)}) for name in sorted(message)
    ],
}
HANDOFF: dict[str, Mutation] = ANY | {
    "an index (vibe)": lambda message: [
        call.update(index=i) for i, call in enumerate(calls(message))
    ],
    "arguments anew": respelt,
    "ids stripped (openclaw)": stripped,
    "parsed arguments": lambda message: [
        call["function"].update(parsed_arguments=None) for call in calls(message)
    ],
    "calls in another order": lambda message: calls(message).reverse(),
    "arguments as an object": lambda message: calls(message)[0]["function"].update(
        arguments={"a": 1}
    ),
    "arguments dropped": lambda message: calls(message)[0]["function"].pop("arguments"),
    "words dropped": lambda message: message.update(content=None),
}
ANSWER: dict[str, Mutation] = ANY | {
    "no calls": lambda message: message.update(tool_calls=None),
    "an empty list of calls": lambda message: message.update(tool_calls=[]),
    "calls of no known form": lambda message: message.update(tool_calls="none"),
}
MADE = [("call_f1-a", "shell", '{"cmd":"ls","n":1.0}'), ("call_f1-b", "read", "{}")]


def found(message: Message, mutate: Mutation) -> bool:
    """Return True if the message that we handed over is found in the following request."""
    body = completion()
    body["choices"][0]["message"] = message
    reply = OPENAI_CHAT.read_response(json.dumps(body).encode(), NAMES)
    asked = OPENAI_CHAT.read_request(json.dumps({"messages": [USER]}).encode())
    anchor = OPENAI_CHAT.response_anchor(reply, asked, terminal=False)
    kept = copy.deepcopy(message)
    mutate(kept)
    user = {
        **USER,
        "content": [
            {"type": "text", "text": USER["content"], "cache_control": {"type": "ephemeral"}}
        ],
    }
    again = OPENAI_CHAT.read_request(json.dumps({"messages": [user, kept, USER]}).encode())
    return again.evidence.anchors == {1: anchor}


def message(content: str | None, **more: Any) -> Message:
    return {"role": "assistant", "content": content, "reasoning_content": "Hm.", **more}


@pytest.mark.requirement("continuity:runners")
@pytest.mark.parametrize("content", [None, "", "I look."])
@pytest.mark.parametrize("name", HANDOFF)
def test_a_handoff_is_found_whatever_the_runner_makes_of_its_message(
    name: str, content: str | None
) -> None:
    made = completion(content, calls=MADE)["choices"][0]["message"]["tool_calls"]
    assert found(message(content, tool_calls=made), HANDOFF[name])


@pytest.mark.requirement("continuity:runners")
@pytest.mark.parametrize("content", ["Two files: a and b.", "x"])
@pytest.mark.parametrize("name", ANSWER)
def test_an_answer_is_found_whatever_the_runner_makes_of_its_message(
    name: str, content: str
) -> None:
    assert found(message(content), ANSWER[name])


@pytest.mark.parametrize(
    "mutate",
    [
        lambda message: message.update(content="Three files."),
        lambda message: message.update(role="user"),
        lambda message: message.update(
            tool_calls=[{"id": "call_x", "function": {"name": "shell"}}]
        ),
    ],
)
def test_a_message_with_other_words_is_not_found(mutate: Mutation) -> None:
    assert not found(message("Two files."), mutate)
