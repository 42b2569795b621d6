"""The beginning of an answer at the end of a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_mediate.dialects.partial_answers import PartialAnswer, find_partial_answers

USER = {"role": "user", "content": "Buy"}
SAID = {"role": "assistant", "content": "Let me"}


def found(*messages: Any, transcript: str = "messages") -> list[tuple[Any, str, bool]]:
    body = json.dumps({"model": "m", transcript: messages, "stream": True}).encode()
    return [
        (json.loads(part.body)[transcript], part.text, part.has_followers)
        for part in find_partial_answers(body, transcript)
    ]


@pytest.mark.requirement("live:partial-answers")
def test_the_request_is_left_as_it_was_sent() -> None:
    body = b'{"messages": [ {"role":"user","content":"a"} , {"role":"assistant","content":"b"} ]}'
    (part,) = find_partial_answers(body, "messages")
    assert part == PartialAnswer(
        b'{"messages": [ {"role":"user","content":"a"} ]}', "b", has_followers=False
    )


@pytest.mark.requirement("live:partial-answers")
@pytest.mark.parametrize("followers", [[], [USER], [USER, USER]])
def test_the_models_last_messages_are_one_answer_or_several(followers: list[Any]) -> None:
    more = {"role": "assistant", "content": [{"type": "text", "text": " buy"}]}
    assert found(USER, SAID, more, *followers)[:2] == [
        ([USER, SAID], " buy", bool(followers)),
        ([USER], "Let me buy", bool(followers)),
    ]


@pytest.mark.requirement("live:partial-answers")
def test_an_answer_of_which_nothing_was_kept_is_one_before_the_last_words() -> None:
    assert found(USER, USER) == [([USER], "", True)]
    assert found(SAID, USER, USER) == [([SAID, USER], "", True)]
    assert found(USER, SAID, USER, USER)[-1] == ([USER, SAID, USER], "", True)


@pytest.mark.requirement("live:partial-answers")
def test_reasoning_is_a_part_of_the_answer_that_it_led_to() -> None:
    thought = {"type": "reasoning", "summary": []}
    item = {"type": "message", "role": "assistant", "content": [{"text": "Let me"}]}
    assert found(USER, thought, item, transcript="input") == [([USER], "Let me", False)]
    assert found(USER, thought, item, thought, item, transcript="input") == [
        ([USER, thought, item], "Let me", False),
        ([USER], "Let meLet me", False),
    ]


@pytest.mark.requirement("live:partial-answers")
@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER],
        [SAID],
        [SAID, USER],
        [USER, {**SAID, "tool_calls": [{"id": "1"}]}],
        [USER, {**SAID, "function_call": {"name": "f"}}],
        [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "1"}]}],
        [USER, SAID, {"role": "user", "content": [{"type": "tool_result"}]}],
        [USER, SAID, {"role": "tool", "content": "1"}],
        [USER, {"type": "function_call", "name": "f"}],
        [USER, SAID, *[USER] * 5],
        [USER, {"role": "assistant", "content": 7}],
        [USER, "assistant"],
    ],
)
def test_calls_and_other_forms_are_none(messages: list[Any]) -> None:
    assert found(*messages) == []


@pytest.mark.requirement("live:partial-answers")
def test_a_request_without_a_list_of_messages_has_none() -> None:
    assert find_partial_answers(b'{"input": "assistant"}', "input") == []
    assert find_partial_answers(b'{"other": "assistant"}', "input") == []
