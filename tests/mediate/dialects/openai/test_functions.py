"""OpenAI before tools: the runner uses functions and gets function calls, and its
provider gets tools only.

The desk runs every transcript on this wire too, and so shows that they are the same for such a
runner.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.core.json_splice import JsonSpliceError
from claw_mediate.core.round_matching import match_rounds
from claw_mediate.core.types import ModelResponse, ToolUse
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from claw_mediate.dialects.streams import write_stream
from claw_state.continuity import StoredRounds
from tests.mediate.made import JSON_TEXT, catalog, granted
from tests.turns.desk import Desk
from tests.wires import openai_legacy

GET = granted("desk.get")
FUNCTIONS = {"functions": [{"name": "shell", "parameters": {}}]}
CALL = {
    "role": "assistant",
    "content": None,
    "function_call": {"name": "shell", "arguments": '{"a":1}'},
}
ANSWER = {"role": "function", "name": "shell", "content": "ok"}
USER = {"role": "user", "content": "Go"}


def offered(body: bytes | dict[str, Any], use: ToolUse = ToolUse.AS_REQUESTED) -> bytes:
    request = OPENAI_CHAT.read_request(
        body if isinstance(body, bytes) else json.dumps(body).encode()
    )
    write = OPENAI_CHAT.build_request(request, catalog(GET, native=request.declared_tools))
    return b"".join(write(use))


def handed(
    *calls: dict[str, Any], request: dict[str, Any] | None = None, **more: Any
) -> tuple[dict[str, Any], str, bytes]:
    """Return the choice that a runner is handed, the anchor by which it is found,
    and its stream.
    """
    asked = OPENAI_CHAT.read_request(
        json.dumps(request or {"messages": [USER], **FUNCTIONS}).encode()
    )
    message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
    body = json.dumps(
        {"id": "a", "choices": [{"message": message, "finish_reason": "tool_calls", **more}]}
    ).encode()
    reply: ModelResponse = OPENAI_CHAT.read_response(body, catalog(GET, native=["shell"]))
    written = OPENAI_CHAT.write_response(reply, asked, reply.usage, terminal=False)
    stream = b"".join(write_stream(OPENAI_CHAT, written, asked))
    return (
        json.loads(written)["choices"][0],
        OPENAI_CHAT.response_anchor(reply, asked, terminal=False),
        stream,
    )


def call(arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "type": "function",
        "function": {"name": "shell", "arguments": arguments},
        **more,
    }


def test_functions_become_tools_between_the_runners_tools_and_the_managed_ones() -> None:
    body = b'{"messages":[],"functions":[ {"name":"f", "x":1.0} ,{"name":"g"}],"tools":[{"t":1e5}],"y":2}'
    assert offered(body) == (
        b'{"messages":[],"tools":[{"t":1e5},{"type":"function","function":{"name":"f", "x":1.0}},'
        b'{"type":"function","function":{"name":"g"}},{"type":"function","function":'
        b'{"name":"desk__get","description":"","parameters":{"type":"object"}}}],"y":2}'
    )


@pytest.mark.requirement("legacy:functions")
@pytest.mark.parametrize(
    ("choice", "as_asked", "released"),
    [
        ({}, None, None),
        ({"function_call": None}, None, None),
        ({"function_call": "auto"}, "auto", "auto"),
        (
            {"function_call": {"name": "shell"}},
            {"type": "function", "function": {"name": "shell"}},
            "auto",
        ),
        (
            {"function_call": {"name": "desk.get"}},
            {"type": "function", "function": {"name": "desk__get"}},
            "auto",
        ),
        ({"function_call": "none", "tool_choice": "required"}, "required", "auto"),
        ({"function_call": {"name": "shell"}, "tool_choice": "auto"}, "auto", "auto"),
    ],
)
def test_a_choice_among_functions_becomes_one_among_tools(
    choice: dict[str, Any], as_asked: Any, released: Any
) -> None:
    body = {"messages": [], **FUNCTIONS, **choice}
    for use, expected in (
        (ToolUse.AS_REQUESTED, as_asked),
        (ToolUse.RELEASED, released),
        (ToolUse.FORBIDDEN, "none"),
    ):
        request = json.loads(offered(body, use))
        assert request.get("tool_choice") == expected
        assert not request.keys() & {"functions", "function_call"}


@pytest.mark.requirement("legacy:functions")
def test_a_runner_that_wants_no_function_gets_no_tools() -> None:
    body = json.dumps({"messages": [], **FUNCTIONS, "function_call": "none"}).encode()
    assert OPENAI_CHAT.read_request(body).bypass == "tool_choice_none"


@pytest.mark.requirement("legacy:history")
def test_function_calls_and_answers_become_tool_calls_and_other_bytes_stay() -> None:
    body = (
        b'{"messages":[{"role":"user","x":1.0}, {"role":"assistant" , "content":null,"function_call" :'
        b'{"name":"f", "arguments":"{}"},"y":1e5} ,{"z":-0,"role":"function","name":"f","content":"\\u00e9"} ,'
        b'{"role":"user"}],"functions":[]}'
    )
    sent = offered(body)
    call_id = json.loads(sent)["messages"][1]["tool_calls"][0]["id"].encode()
    assert sent.startswith(
        b'{"messages":[{"role":"user","x":1.0}, {"role":"assistant" , "content":null,"y":1e5,"tool_calls":[{"id":"%b",'
        b'"type":"function","function":{"name":"f", "arguments":"{}"}}]} ,{"z":-0,"role":"tool","name":"f",'
        b'"content":"\\u00e9","tool_call_id":"%b"} ,{"role":"user"}],' % (call_id, call_id)
    )


@pytest.mark.requirement("legacy:history")
@pytest.mark.parametrize(
    "messages",
    [
        [CALL],
        [CALL, USER, ANSWER],
        [ANSWER],
        [USER, {**ANSWER, "name": "other"}],
        [CALL, {**ANSWER, "name": "other"}],
        [{**CALL, "function_call": None}, ANSWER],
        [{**CALL, "function_call": "shell"}, ANSWER],
        [
            {**CALL, "tool_calls": [call()]},
            {"role": "tool", "tool_call_id": "c1", "content": ""},
            ANSWER,
        ],
    ],
)
def test_a_function_call_without_its_answer_stays_as_it_is(messages: list[Any]) -> None:
    assert json.loads(offered({"messages": messages, **FUNCTIONS}))["messages"] == messages


@pytest.mark.requirement("legacy:history")
@pytest.mark.parametrize("content", [{}, {"content": None}])
def test_an_answer_without_content_gets_an_empty_one(content: dict[str, Any]) -> None:
    answer = {"role": "function", "name": "shell", **content}
    assert (
        json.loads(offered({"messages": [CALL, answer], **FUNCTIONS}))["messages"][1]["content"]
        == ""
    )


TURN = st.lists(
    st.sampled_from([[USER], [CALL, ANSWER], [{**CALL, "content": "x"}, ANSWER], [ANSWER]]),
    max_size=6,
)


@pytest.mark.requirement("legacy:history")
@given(TURN, TURN)
def test_a_history_of_functions_has_the_same_bytes_and_ids_in_every_later_request(
    first: list[list[Any]], later: list[list[Any]]
) -> None:
    before = [message for part in first for message in part]
    after = before + [message for part in later for message in part]
    sent, again = (
        json.loads(offered({"messages": messages, **FUNCTIONS}))["messages"]
        for messages in (before, after)
    )
    assert again[: len(sent)] == sent
    ids = [made["id"] for message in again for made in message.get("tool_calls", ())]
    assert (
        len(ids)
        == len(set(ids))
        == sum(part[0] is not USER and len(part) > 1 for part in first + later)
    )
    assert [message["tool_call_id"] for message in again if message["role"] == "tool"] == ids


@pytest.mark.requirement("wire:repeated-member")
@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[],"functions":[],"functions":[]}',
        b'{"messages":[],"function_call":"auto","function_call":"none"}',
        b'{"messages":[{"role":"assistant","function_call":{"name":"f"},"function_call":{"name":"f"}},{"role":"function"}]}',
        b'{"messages":[{"role":"assistant","function_call":{"name":"f"}},{"role":"function","role":"function"}]}',
    ],
)
def test_a_repeated_member_of_the_old_form_is_refused(body: bytes) -> None:
    with pytest.raises(JsonSpliceError, match="stands twice"):
        offered(body)


@pytest.mark.requirement("legacy:reply")
def test_only_the_first_native_call_is_handed_over_as_a_function_call() -> None:
    choice, _, stream = handed(call('{"a": 1.0}', x=1), call("{}", id="c2"), index=0)
    assert choice["message"] == {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "shell", "arguments": '{"a": 1.0}'},
    }
    assert choice["finish_reason"] == "function_call"
    assert json.loads(openai_legacy.assembled(stream))["choices"][0] == choice


@pytest.mark.requirement("legacy:reply")
@pytest.mark.parametrize("reason", ["stop", "length", None])
def test_another_finish_reason_stays_the_providers(reason: str | None) -> None:
    assert handed(call(), finish_reason=reason)[0]["finish_reason"] == reason


def test_a_custom_call_of_a_function_hands_its_input_over() -> None:
    choice, _, _ = handed(
        {"id": "a", "type": "custom", "custom": {"name": "shell", "input": "ls\n"}}
    )
    assert choice["message"]["function_call"] == {"name": "shell", "arguments": "ls\n"}


@pytest.mark.requirement("legacy:reply")
def test_a_runner_that_declares_tools_too_is_handed_tool_calls() -> None:
    tools = [{"type": "function", "function": {"name": "other"}}]
    choice, _, _ = handed(call(), request={"messages": [USER], "tools": tools, **FUNCTIONS})
    assert choice["message"]["tool_calls"] == [call()]


@pytest.mark.requirement("legacy:anchor")
@pytest.mark.parametrize("spelled", ['{"a":1,"b":[2]}', '{ "b": [2],\n"a": 1.0 }'])
@pytest.mark.parametrize(
    "content", [{}, {"content": None}, {"content": ""}, {"content": "", "tool_calls": None}]
)
def test_a_handoff_is_found_again_by_its_name_its_arguments_and_what_was_said(
    spelled: str, content: dict[str, Any]
) -> None:
    _, anchor, _ = handed(call('{"a": 1, "b": [2]}'))
    kept = {
        "role": "assistant",
        **content,
        "function_call": {"name": "shell", "arguments": spelled},
    }
    assert OPENAI_CHAT.read_request(
        json.dumps({"messages": [USER, kept, ANSWER]}).encode()
    ).evidence.anchors == {1: anchor}


@pytest.mark.requirement("legacy:anchor")
def test_equal_handoffs_of_one_conversation_are_told_apart_by_their_order() -> None:
    request = {"messages": [USER], **FUNCTIONS}
    made = []
    for _ in range(3):
        choice, anchor, _ = handed(call(), request=request)
        made.append(anchor)
        request["messages"] = [*request["messages"], choice["message"], ANSWER]
    anchors = OPENAI_CHAT.read_request(json.dumps(request).encode()).evidence.anchors
    assert list(anchors.values()) == made
    kept = [StoredRounds(number, anchor, "", b"") for number, anchor in enumerate(made)]
    assert [one.id for _, one in sorted(match_rounds(anchors, kept, "").items())] == [0, 1, 2]
    other = {"messages": [{"role": "user", "content": "Stop"}], **FUNCTIONS}
    assert handed(call(), request=other)[1] not in made


@given(JSON_TEXT, JSON_TEXT, JSON_TEXT)
def test_any_members_of_the_old_form_are_read(first: str, second: str, third: str) -> None:
    messages = f'[{{"role":"assistant","function_call":{first},"content":{second}}},{{"role":"function","name":{third}}}]'
    assert json.loads(offered(f'{{"messages":{messages}}}'.encode()))["tools"]


@pytest.mark.requirement("legacy:reply")
@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_calls_that_are_left_out_are_reported_once(tmp_path: Path, stream: bool) -> None:
    desk = Desk(tmp_path, openai_legacy, stream=stream)
    desk.model_says(("shell", {"n": 1}), ("shell", {"n": 2}))
    await desk.asks("Go", native=["shell"])
    assert [made.arguments for made in desk.answer.calls] == ['{"n": 1}']
    desk.model_says("Done.")
    await desk.runs_native("ok")
    assert desk.interventions() == ["legacy_function_calls_serialized"]
    await desk.mediator.close(0)
