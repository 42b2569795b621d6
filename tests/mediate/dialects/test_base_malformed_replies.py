"""Responses with every JSON type at every place: refused or delivered, in both forms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from claw_mediate.core import tool_result
from claw_mediate.core.types import ModelResponse, Round
from claw_mediate.dialects.base import Dialect, FailedResponseError, UnreadableResponseError
from claw_mediate.dialects.responses.kept import ids_in, ids_of_output
from claw_mediate.dialects.streams import write_stream
from tests.mediate.any_reply import CATALOG, DIALECTS, WIRES
from tests.search_size import each_nth
from tests.wires import Body

VALUES: tuple[Any, ...] = (
    None,
    True,
    7,
    -1.5,
    10**400,
    "text",
    "",
    [],
    ["text"],
    [None],
    [[]],
    [{}],
    {},
    {"a": 1},
    {"type": 7},
)
"""One of each JSON type, and lists and objects that hold what does not belong there."""
_ANNOTATION = {
    "type": "url_citation",
    "url": "https://example.com",
    "start_index": 0,
    "end_index": 1,
    "title": "t",
}
_ITEMS: tuple[Body, ...] = (
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "so"}],
        "content": [{"type": "reasoning_text", "text": "thus"}],
        "encrypted_content": "xyz",
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "Hi", "annotations": [_ANNOTATION], "logprobs": []},
            {"type": "refusal", "refusal": "no"},
        ],
    },
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    },
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "aGk="},
)
_CALLS: tuple[Body, ...] = (
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "desk__set",
        "arguments": "{}",
        "status": "completed",
    },
    {"type": "custom_tool_call", "id": "ct_1", "call_id": "c2", "name": "shell", "input": "ls"},
    {
        "type": "shell_call",
        "id": "sh_1",
        "call_id": "c3",
        "action": {"commands": ["ls"]},
        "environment": {"type": "local"},
    },
    {
        "type": "local_shell_call",
        "id": "ls_1",
        "call_id": "c4",
        "action": {"type": "exec", "command": ["ls"]},
    },
    {
        "type": "apply_patch_call",
        "id": "ap_1",
        "call_id": "c5",
        "operation": {"type": "delete_file", "path": "a"},
    },
    {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "name": "n",
        "arguments": "{}",
        "server_label": "s",
    },
    {"type": "computer_call", "id": "cc_1", "call_id": "c6", "action": {"type": "wait"}},
    {
        "type": "tool_search_call",
        "id": "ts_1",
        "call_id": "c7",
        "execution": "client",
        "arguments": "{}",
    },
)


def _response(*output: Body) -> Body:
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [*output],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}, "store": True, "error": None,
        "incomplete_details": None, "tools": [{"type": "function", "name": "shell"}], "tool_choice": "auto",
        "instructions": "x", "previous_response_id": None, "parallel_tool_calls": True,
    }  # fmt: skip


def _completion(message: Body) -> Body:
    choice = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "finish_reason": "stop",
        "logprobs": None,
    }
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


def _message(*content: Body) -> Body:
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [*content]}
    return {**head, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}


def _tool_call(name: str) -> Body:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": "{}"}}


ANSWERS: dict[str, tuple[Body, ...]] = {
    "responses": (_response(*_ITEMS), *(_response(_ITEMS[0], call) for call in _CALLS)),
    "openai": (
        _completion(
            {
                "content": "Hi",
                "refusal": None,
                "reasoning_content": "so",
                "annotations": [_ANNOTATION],
            }
        ),
        _completion(
            {"content": [{"type": "text", "text": "Hi"}], "audio": {"id": "a", "data": "aGk="}}
        ),
        _completion({"content": None, "tool_calls": [_tool_call("desk__set")]}),
        _completion(
            {"content": None, "tool_calls": [_tool_call("shell"), _tool_call("desk__get")]}
        ),
        _completion(
            {
                "content": None,
                "tool_calls": [
                    {"id": "c2", "type": "custom", "custom": {"name": "x", "input": "y"}}
                ],
            }
        ),
        _completion({"content": None, "function_call": {"name": "shell", "arguments": "{}"}}),
    ),
    "anthropic": (
        _message(
            {
                "type": "text",
                "text": "Hi",
                "citations": [{"type": "char_location", "cited_text": "H"}],
            }
        ),
        _message(
            {"type": "thinking", "thinking": "so", "signature": "s"},
            {"type": "tool_use", "id": "t1", "name": "desk__set", "input": {"a": 1}},
        ),
        _message(
            {"type": "tool_use", "id": "t1", "name": "shell", "input": {}},
            {"type": "redacted_thinking", "data": "x"},
        ),
        _message(
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "s1",
                "content": [{"type": "web_search_result", "url": "u"}],
            },
        ),
    ),
}


def spoilt(answer: Body) -> Iterator[tuple[str, bytes]]:
    """Yield the answer with each place replaced by each value, or left out, with
    the place's name.
    """
    for place in _places(answer):
        for value in (*VALUES, ...):
            made: Any = deepcopy(answer)
            holder = made
            for key in place[:-1]:
                holder = holder[key]
            if value is ...:
                del holder[place[-1]]
            else:
                holder[place[-1]] = value
            yield f"{'.'.join(map(str, place))} = {str(value)[:20]}", json.dumps(made).encode()


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in inside:
        yield from _places(part, (*path, key))


CASES = [
    (name, number)
    for name in ("openai", "responses", "anthropic")  # `make quick` has the first and the last
    for number in range(len(ANSWERS[name]))
]


@pytest.mark.requirement("stream:any-reply", "stream:same-verdict")
@pytest.mark.parametrize(("name", "number"), CASES, ids=str)
def test_every_type_at_every_place_is_refused_or_delivered(name: str, number: int) -> None:
    faults: dict[str, str] = {}
    for place, body in each_nth(5, spoilt(ANSWERS[name][number])):
        try:
            deliver(name, body)
        except Exception as error:  # noqa: BLE001 - any is a fault, and all of them are told
            faults[place] = f"{type(error).__name__}: {str(error)[:80]}"
    assert faults == {}


def deliver(name: str, body: bytes) -> None:
    """Do with an answer all that a turn does, unless it is refused."""
    dialect: Dialect = DIALECTS[name]
    wire = WIRES[name]
    try:
        reply = dialect.read_response(body, CATALOG)
    except (UnreadableResponseError, FailedResponseError):
        return
    asked = wire.request([wire.user("Go")], (), stream=True, more={})
    request = dialect.read_request(json.dumps(asked).encode())
    for terminal in (False, True):
        answer = dialect.write_response(reply, request, {**reply.usage, "n": 1}, terminal=terminal)
        json.loads(answer)
        assert b"".join(write_stream(dialect, answer, request))
        assert dialect.response_anchor(reply, request, terminal=terminal)
        if name == "responses":
            ids_of_output(answer)
    _go_on(dialect, reply, is_responses=name == "responses")


def _go_on(dialect: Dialect, reply: ModelResponse, *, is_responses: bool) -> None:
    """Do what a turn does with the answer as a round of its transcript."""
    results = tuple(tool_result.unknown_tool(call) for call in reply.calls)
    past = Round(1, reply, results)
    dialect.write_answers(past)
    for replayed in (False, True):
        dialect.replay_rules.find_losses([past], replayed=replayed)
        messages = b",".join(dialect.write_hidden_rounds([past], replayed=replayed))
        for maker in ("", "another"):
            adapted = dialect.replay_rules.adapt(messages, maker)
            json.loads(b"[%b]" % adapted)
            json.loads(b"[%b]" % dialect.summarize(adapted))
        if is_responses:
            ids_in(messages)
