"""Chat completions: requests are edited and never rebuilt, or refused in one sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from claw_mediate.core.json_splice import JsonSpliceError
from claw_mediate.core.types import ToolUse
from claw_mediate.core.weave import Insert
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from tests.mediate.made import catalog, granted

GET = granted("desk.get")


def offered(body: bytes, woven: dict[int, bytes] | None = None) -> dict[ToolUse, bytes]:
    request = OPENAI_CHAT.read_request(body)
    write = OPENAI_CHAT.build_request(
        request,
        catalog(GET, native=request.declared_tools),
        {index: Insert(hidden) for index, hidden in (woven or {}).items()},
    )
    return {use: b"".join(write(use)) for use in ToolUse}


MANAGED = b'{"type":"function","function":{"name":"desk__get","description":"","parameters":{"type":"object"}}}'


@pytest.mark.requirement("injection:tools-appended")
@pytest.mark.parametrize(
    ("tools", "after"),
    [
        (b"", b',"tools":[' + MANAGED + b"]}"),
        (b', "tools" : null', b', "tools" : [' + MANAGED + b"]}"),
        (b', "tools" : [ ]', b', "tools" : [ ' + MANAGED + b"]}"),
        (b', "tools":[{"x": 1.0} ]', b', "tools":[{"x": 1.0} ,' + MANAGED + b"]}"),
    ],
)
def test_managed_tools_follow_the_runners_own(tools: bytes, after: bytes) -> None:
    assert (
        offered(b'{"messages":[ ]' + tools + b"}")[ToolUse.AS_REQUESTED]
        == b'{"messages":[ ]' + after
    )


@pytest.mark.requirement("injection:same-bytes")
def test_the_same_manifest_gives_the_same_bytes() -> None:
    body = b'{"messages":[]}'
    assert offered(body) == offered(body)


@pytest.mark.requirement("injection:tool-choice-released")
@pytest.mark.parametrize(
    ("choice", "as_asked", "released"),
    [
        ("auto", "auto", "auto"),
        ("required", "required", "auto"),
        ({"name": "desk.get"}, None, "auto"),
        (
            {"type": "function", "function": {"name": "shell"}},
            {"type": "function", "function": {"name": "shell"}},
            "auto",
        ),
        (
            {"type": "function", "function": {"name": "desk.get"}},
            {"type": "function", "function": {"name": "desk__get"}},
            "auto",
        ),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}, None, None),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required"}},
            None,
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}},
        ),
    ],
)
def test_a_choice_is_kept_at_first_and_released_if_forced(
    choice: Any, as_asked: Any, released: Any
) -> None:
    body = json.dumps({"messages": [], "tool_choice": choice}).encode()
    bodies = offered(body)
    assert json.loads(bodies[ToolUse.AS_REQUESTED])["tool_choice"] == (as_asked or choice)
    assert json.loads(bodies[ToolUse.RELEASED])["tool_choice"] == (released or choice)
    assert json.loads(bodies[ToolUse.FORBIDDEN])["tool_choice"] == "none"
    assert all(len(json.loads(body)["tools"]) == 1 for body in bodies.values())


@pytest.mark.parametrize(
    ("more", "bypass"),
    [
        ({"tool_choice": "none"}, "tool_choice_none"),
        ({"n": 2}, "several_choices_not_mediated"),
        ({"n": 1.5}, "several_choices_not_mediated"),
        ({"n": "2"}, "several_choices_not_mediated"),
        ({"n": 1}, None),
        ({"n": None}, None),
    ],
)
def test_a_request_that_is_not_mediated_has_the_reason(
    more: dict[str, Any], bypass: str | None
) -> None:
    assert OPENAI_CHAT.read_request(json.dumps({"messages": [], **more}).encode()).bypass == bypass


@pytest.mark.requirement("injection:foreign-tools")
def test_the_names_of_tools_of_any_type_are_declared() -> None:
    tools = [
        {"type": "function", "function": {"name": "a"}},
        {"type": "custom", "custom": {"name": "b"}},
        {"type": "namespace", "name": "c"},
        {"type": "web_search"},
        {"type": "function", "function": None},
    ]
    assert OPENAI_CHAT.read_request(
        json.dumps({"messages": [], "tools": tools}).encode()
    ).declared_tools == ("a", "b", "c")


@pytest.mark.requirement("wire:odd-content")
@pytest.mark.parametrize(
    "content",
    ["5", "1e400", "{}", "[5]", '["a"]', '[{"text":5}]', "true", '[{"type":"new","x":[]}]'],
)
def test_a_content_of_an_unknown_form_passes_to_the_provider(content: str) -> None:
    messages = ",".join(
        f'{{"role":"{role}","content":{content}}}'
        for role in ("system", "user", "assistant", "tool")
    )
    body = f'{{"messages":[{messages}]'.encode()
    assert offered(body + b"}")[ToolUse.AS_REQUESTED].startswith(body)


@pytest.mark.requirement("failure:bad-request")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"{",
        b'{"messages":null}',
        b'{"messages":[null]}',
        b'{"messages":[],"tools":{}}',
        b'{"messages":[],"tools":[null]}',
        b'{"messages":[],"stream":"yes"}',
        b'{"messages":[],"model":null}',
        b'{"messages":[],"x":NaN}',
        b'{"messages":[],"x":"\\ud800"}',
        b'{"messages":[],"x":"\xff"}',
        b'{"\xff":1,"messages":[]}',
        b'{"messages":[{"content":"\xff"}]}',
        b'{"messages":[],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'\xef\xbb\xbf{"messages":[]}',
        b'{"messages":[]} x',
    ],
)
def test_a_body_that_is_no_request_is_refused_in_one_sentence(body: bytes) -> None:
    with pytest.raises(UnreadableRequestError) as caught:
        OPENAI_CHAT.read_request(body)
    assert "\n" not in str(caught.value)


@pytest.mark.requirement("wire:repeated-member")
@pytest.mark.parametrize("name", ["tools", "stream_options", "tool_choice", "stream"])
def test_a_repeated_member_that_we_change_is_refused(name: str) -> None:
    value = {"tools": "[]", "stream_options": "{}", "tool_choice": '"auto"', "stream": "true"}[name]
    with pytest.raises(JsonSpliceError, match=f"'{name}' stands twice"):
        offered(f'{{"messages":[],"{name}":{value},"{name}":{value}}}'.encode())


@pytest.mark.requirement("loop:handoff-continuity")
def test_hidden_messages_come_right_before_their_message() -> None:
    body = b'{"messages":[ {"role":"user"} , {"role":"assistant","content":"x"}],"a":1e400}'
    woven = offered(body, {1: b'{"h":1},{"h":2}'})[ToolUse.AS_REQUESTED]
    assert woven.startswith(
        b'{"messages":[ {"role":"user"} , {"h":1},{"h":2},{"role":"assistant","content":"x"}],"a":1e400'
    )


def live_body(**members: Any) -> Any:
    body = json.dumps({"messages": [], "stream": True, **members}).encode()
    request = replace(OPENAI_CHAT.read_request(body), is_live=True)
    write = OPENAI_CHAT.build_request(request, catalog(GET))
    return json.loads(b"".join(write(ToolUse.AS_REQUESTED)))


@pytest.mark.requirement("live:chat-request")
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (None, {"include_usage": True}),
        ({}, {"include_usage": True}),
        ({"include_usage": False}, {"include_usage": True}),
        ({"include_obfuscation": False}, {"include_obfuscation": False, "include_usage": True}),
    ],
)
def test_a_live_request_asks_for_a_stream_and_its_usage(options: Any, asked: Any) -> None:
    body = live_body(stream_options=options)
    assert body["stream"] is True
    assert body["stream_options"] == asked
    assert live_body()["stream_options"] == {"include_usage": True}

    # A provider that refuses the question is asked without it.
    sent = json.dumps(body).encode()
    again = json.loads(OPENAI_CHAT.without_stream_usage(sent))
    rest = {name: value for name, value in asked.items() if name != "include_usage"}
    assert again.get("stream_options", {}) == rest
    assert OPENAI_CHAT.without_stream_usage(b'{"a": 1}') == b'{"a": 1}'


@pytest.mark.requirement("live:chat-request")
def test_a_refusal_of_the_usage_names_the_options() -> None:
    detail = {"type": "extra_forbidden", "loc": ["body", "stream_options"], "input": {}}
    refusal = json.dumps({"detail": [detail]}).encode()
    assert OPENAI_CHAT.refuses_stream_usage(refusal)
    assert not OPENAI_CHAT.refuses_stream_usage(b'{"error":{"message":"max_tokens is too large"}}')


@pytest.mark.requirement("live:chat-buffered")
@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": None, "modalities": ["text"]}, None),
        ({"response_format": {"type": "json_object"}}, "structured_output"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "structured_output"),
        ({"functions": [{"name": "x"}]}, "legacy_functions"),
        ({"functions": [{"name": "x"}], "tools": [{"type": "function"}]}, None),
        ({"modalities": ["text", "audio"]}, "audio"),
        ({"modalities": "audio", "response_format": "json_object"}, None),
    ],
)
def test_the_reason_why_a_stream_can_not_be_live(
    members: dict[str, Any], reason: str | None
) -> None:
    """Edge 38, and the table of section 1."""
    body = json.dumps({"messages": [], "stream": True, **members}).encode()
    assert OPENAI_CHAT.read_request(body).buffered_reason == reason
