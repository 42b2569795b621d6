"""The calls of a streamed chat completion, put together of their parts."""

from __future__ import annotations

from typing import Any

import pytest

from claw_mediate.dialects.base import UnreadableResponseError
from tests.mediate.dialects.openai.cut_reply import (
    END,
    assembled,
    call,
    chunk,
    message_of,
    plain,
    shape,
)


def function(name: str, arguments: str) -> dict[str, str]:
    return {"name": name, "arguments": arguments}


@pytest.mark.requirement("live:chat-calls")
@pytest.mark.parametrize(
    ("deltas", "wanted"),
    [
        pytest.param(
            [call(0, "a", name="get"), call(0, name="_x"), call(0, arguments='{"a"'), call(0, arguments=":1}")],
            [("a", "get_x", '{"a":1}')],
            id="8, a name in parts",
        ),
        pytest.param(
            [call(1, "a", name="x"), call(1, arguments="{}"), call(2, "b", name="y", arguments="[]")],
            [("a", "x", "{}"), ("b", "y", "[]")],
            id="10, calls begin at index 1",
        ),
        pytest.param(
            [call(0, "a", name="x"), call(0, arguments="{"), call(0, arguments="}"), call(0, "b", name="y"), call(0, arguments="1")],
            [("a", "x", "{}"), ("b", "y", "1")],
            id="10, two calls share one index",
        ),
        pytest.param(
            [call(0, "a", name="x", arguments="1"), call(1, "b", name="y"), call(0, "a", arguments="2"), call(1, "b", arguments="3")],
            [("a", "x", "12"), ("b", "y", "3")],
            id="each part has the id, and calls are interleaved",
        ),
        pytest.param(
            [call(None, "a", name="x", arguments="1"), call(None, "b", name="y"), call(None, "a", arguments="2")],
            [("a", "x", "12"), ("b", "y", "")],
            id="no index, but ids",
        ),
        pytest.param(
            [call(None, name="x", arguments="1"), call(None, arguments="2"), call(None, name="y")],
            [(None, "x", "12"), (None, "y", "")],
            id="neither index nor id",
        ),
    ],
)  # fmt: skip
def test_calls_are_put_together_by_index_and_id(
    deltas: list[Any], wanted: list[tuple[str | None, str, str]]
) -> None:
    calls = message_of(*map(chunk, deltas), END)["tool_calls"]
    got = [
        (each.get("id"), each["function"]["name"], each["function"]["arguments"]) for each in calls
    ]
    assert got == wanted
    assert all("index" not in each and each["type"] == "function" for each in calls)


@pytest.mark.requirement("live:chat-calls")
def test_other_members_of_a_call_stay_with_it() -> None:
    signed = {"index": 0, "extra_content": {"google": {"thought_signature": "S"}}}
    custom = {"index": 1, "id": "b", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    more = {"index": 1, "custom": {"input": " -l"}}
    deltas: list[Any] = [
        call(0, "a", name="x"),
        *({"tool_calls": [each]} for each in (signed, custom, more)),
    ]
    first, second = message_of(*map(chunk, deltas), END)["tool_calls"]
    assert first["extra_content"] == signed["extra_content"]
    assert second == {"id": "b", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}


@pytest.mark.requirement("live:chat-calls")
def test_a_call_in_the_old_form_and_arguments_that_are_an_object() -> None:
    parts: list[Any] = [{"name": "x", "arguments": ""}, {"arguments": '{"a"'}, {"arguments": ":1}"}]
    events = [*(chunk({"function_call": part}) for part in parts), chunk({}, "function_call")]
    assert message_of(*events)["function_call"] == function("x", '{"a":1}')
    assert {each.kind for each in assembled(events)[1]} == {"opening", "call", "end"}

    as_object: Any = {
        "tool_calls": [{"id": "a", "function": {"name": "x", "arguments": {"a": 1.0}}}]
    }
    [made] = message_of(chunk(as_object), END)["tool_calls"]
    assert made["function"] == function("x", '{"a": 1.0}')


@pytest.mark.requirement("live:chat-calls")
def test_text_and_a_call_of_one_chunk_are_told_as_two_events() -> None:
    """Edge 9."""
    both = {**call(0, "a", name="x", arguments="{}"), "content": "Let me look."}
    _, told = assembled([chunk(both), chunk(call(0, arguments="")), END])
    assert shape(told) == [
        ("opening", "", ""),
        ("content", "content", "Let me look."),
        ("call", "tool_calls.0", ""),
        ("call", "tool_calls.0.arguments", "{}"),
        ("end", "", ""),
    ]
    [whole] = plain(told[2]).values()
    assert whole == {"id": "a", "type": "function", "function": function("x", "")}


@pytest.mark.requirement("live:early-calls")
def test_an_event_names_its_tool_once_the_name_is_whole() -> None:
    deltas = [
        call(0, "a", name="get"),
        call(0, name="_x"),
        call(0, arguments="{"),
        call(1, "b", name="y", arguments="{}"),
        call(0, arguments="}"),
    ]
    _, told = assembled(map(chunk, deltas))
    parts = [event.call for event in told if event.call is not None]
    assert [(part.number, part.id, part.tool) for part in parts] == [
        (0, "a", ""),
        (0, "a", ""),
        (0, "a", "get_x"),
        (1, "b", "y"),
        (1, "b", "y"),
        (0, "a", "get_x"),
    ]


@pytest.mark.requirement("live:early-calls")
def test_a_call_that_changes_its_name_behind_its_arguments_is_refused() -> None:
    begun = [chunk(call(0, "a", name="get", arguments="{")), chunk(call(0, name=""))]
    assembled(begun)
    with pytest.raises(UnreadableResponseError, match="changes its name"):
        assembled([*begun, chunk(call(0, name="_x"))])
