"""Anthropic's requests: they are edited and never rebuilt, or refused in one sentence."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mediate.core import tool_result
from claw_mediate.core.json_splice import JsonSpliceError
from claw_mediate.core.types import Round, ToolUse
from claw_mediate.dialects.anthropic import DIALECT as ANTHROPIC_MESSAGES
from claw_mediate.dialects.base import UnreadableRequestError
from tests.mediate.made import JSON_TEXT, catalog, granted

GET = granted("desk.get")
MANAGED = b'{"name":"desk__get","description":"","input_schema":{"type":"object"}}'


def offered(body: bytes, context: str = "") -> dict[ToolUse, bytes]:
    request = ANTHROPIC_MESSAGES.read_request(body)
    write = ANTHROPIC_MESSAGES.build_request(
        request, catalog(GET, native=request.declared_tools), {}, context
    )
    return {use: b"".join(write(use)) for use in ToolUse}


@pytest.mark.requirement("injection:tools-appended")
@pytest.mark.parametrize(
    ("tools", "after"),
    [
        (b"", b',"tools":[' + MANAGED + b"]}"),
        (b', "tools" : null', b', "tools" : [' + MANAGED + b"]}"),
        (b', "tools" : [ ]', b', "tools" : [ ' + MANAGED + b"]}"),
        (
            b', "tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5.0} ]',
            b', "tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5.0} ,'
            + MANAGED
            + b"]}",
        ),
    ],
)
def test_managed_tools_follow_the_runners_own(tools: bytes, after: bytes) -> None:
    assert (
        offered(b'{"messages":[ ]' + tools + b"}")[ToolUse.AS_REQUESTED]
        == b'{"messages":[ ]' + after
    )


@pytest.mark.requirement("wire:byte-fidelity")
@settings(max_examples=60)
@given(st.lists(JSON_TEXT, max_size=3), JSON_TEXT)
def test_the_blocks_and_unknown_fields_keep_their_bytes(sources: list[str], other: str) -> None:
    blocks = ",".join(f'{{ "type":"image", "source" :{source}}}' for source in sources)
    head = f'{{ "x-unknown": {other} , "messages" : [{{"role":"user","content":[{blocks}]}} ]'
    body = offered(f'{head},"stream":true }}'.encode())[ToolUse.AS_REQUESTED]
    assert body == f'{head},"stream":false ,"tools":['.encode() + MANAGED + b"]}"


@pytest.mark.requirement("injection:tool-choice-released")
@pytest.mark.parametrize(
    ("choice", "asked", "released"),
    [
        ('{"type": "auto"}', '{"type": "auto"}', '{"type": "auto"}'),
        ('{"type": "any"}', '{"type": "any"}', '{"type":"auto"}'),
        (
            '{"type":"any", "disable_parallel_tool_use": true}',
            '{"type":"any", "disable_parallel_tool_use": true}',
            '{"type":"auto","disable_parallel_tool_use":true}',
        ),
        ('{"type":"tool","name": "shell"}', '{"type":"tool","name": "shell"}', '{"type":"auto"}'),
        (
            '{"type": "tool","name":"desk.get"}',
            '{"type":"tool","name":"desk__get"}',
            '{"type":"auto"}',
        ),
    ],
)
def test_a_forced_choice_holds_once_and_names_the_alias(
    choice: str, asked: str, released: str
) -> None:
    bodies = offered(f'{{"messages":[],"tool_choice":{choice}}}'.encode())
    shown = {
        use: bodies[use].decode().partition('"tool_choice":')[2].partition(',"tools"')[0]
        for use in ToolUse
    }
    assert shown == {
        ToolUse.AS_REQUESTED: asked,
        ToolUse.RELEASED: released,
        ToolUse.FORBIDDEN: '{"type":"none"}',
    }


@pytest.mark.requirement("injection:tool-choice-kept")
def test_a_request_without_a_tool_choice_gets_one_only_to_forbid_tools() -> None:
    bodies = offered(b'{"messages":[]}')
    assert "tool_choice" not in json.loads(bodies[ToolUse.AS_REQUESTED])
    assert "tool_choice" not in json.loads(bodies[ToolUse.RELEASED])
    assert json.loads(bodies[ToolUse.FORBIDDEN])["tool_choice"] == {"type": "none"}


@pytest.mark.requirement("context:system-end")
@pytest.mark.parametrize(
    ("system", "after"),
    [
        ("", '"Live: \\"x\\""'),
        ('"system":null,', '"Live: \\"x\\""'),
        ('"system":"",', '"Live: \\"x\\""'),
        ('"system":"Be \\u0062rief.",', '"Be \\u0062rief.\\n\\nLive: \\"x\\""'),
        (
            '"system":[{"type":"text","text":"A","cache_control":{"type":"ephemeral"}}],',
            '[{"type":"text","text":"A","cache_control":{"type":"ephemeral"}},{"type":"text","text":"Live: \\"x\\""}]',
        ),
    ],
)
def test_context_is_added_at_the_end_of_the_system_prompt_and_nothing_else_changes(
    system: str, after: str
) -> None:
    body = f'{{{system}"messages":[ {{"role":"user","content":"Q"}}]}}'.encode()
    request = ANTHROPIC_MESSAGES.read_request(body)
    edited = ANTHROPIC_MESSAGES.add_context(request, 'Live: "x"').decode()
    assert f'"system":{after}' in edited
    assert '"messages":[ {"role":"user","content":"Q"}]' in edited
    mediated = offered(body, 'Live: "x"')[ToolUse.AS_REQUESTED].decode()
    assert f'"system":{after}' in mediated


@pytest.mark.requirement("wire:repeated-member")
@pytest.mark.parametrize(
    "name", ["messages", "tools", "tool_choice", "model", "stream", "system", "max_tokens"]
)
def test_a_member_that_is_read_must_not_be_repeated(name: str) -> None:
    twice = {
        "model": '"m"',
        "stream": "true",
        "max_tokens": "1",
        "tool_choice": '{"type":"auto"}',
        "system": '"x"',
    }
    value = twice.get(name, "[]")
    with pytest.raises(JsonSpliceError, match=f"'{name}' stands twice"):
        offered(f'{{"messages":[],"{name}":{value},"{name}":{value}}}'.encode())


@pytest.mark.requirement("wire:odd-content")
@pytest.mark.parametrize(
    "content",
    ["5", "1e400", "{}", "[5]", '["a"]', '[{"type":5}]', "true", '[{"type":"new","x":[]}]', "null"],
)
def test_a_content_of_an_unknown_form_passes_to_the_provider(content: str) -> None:
    messages = ",".join(
        f'{{"role":"{role}","content":{content}}}' for role in ("user", "assistant", "new")
    )
    for end in ("", f',{{"role":"assistant","content":{content}}}'):
        body = f'{{"system":{content},"messages":[{messages}{end}]'.encode()
        assert offered(body + b"}")[ToolUse.AS_REQUESTED].startswith(body)


@pytest.mark.requirement("failure:bad-request")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"messages":{}}',
        b'{"messages":["x"]}',
        b"\xff",
        b'{"messages":' + b"[" * 100_000,
    ],
)
def test_a_body_that_is_no_request_is_refused_in_one_sentence(body: bytes) -> None:
    with pytest.raises(UnreadableRequestError, match="the request is not a messages request"):
        ANTHROPIC_MESSAGES.read_request(body)


@pytest.mark.requirement("anthropic:roles-alternate")
@pytest.mark.parametrize("prefill", ['"Sure, "', '[{"type":"text","text":"Sure, "}]'])
def test_the_first_hidden_round_continues_the_message_that_the_runner_began(prefill: str) -> None:
    body = f'{{"messages":[{{"role":"user","content":"Q"}} , {{"role":"assistant","content":{prefill}}} ]}}'.encode()
    request = ANTHROPIC_MESSAGES.read_request(body)
    names = catalog(GET)
    write = ANTHROPIC_MESSAGES.build_request(request, names)
    first = b"".join(write(ToolUse.AS_REQUESTED))
    assert first.startswith(body.removesuffix(b" ]}"))
    assert json.loads(first)["messages"] == json.loads(body)["messages"]
    content = [
        {"type": "text", "text": "let me look."},
        {"type": "tool_use", "id": "t", "name": "desk__get", "input": {}},
    ]
    reply = ANTHROPIC_MESSAGES.read_response(json.dumps({"content": content}).encode(), names)
    rounds = [
        Round(number, reply, (tool_result.unknown_tool(reply.calls[0]),)) for number in (1, 2)
    ]
    hidden = ANTHROPIC_MESSAGES.write_hidden_rounds(rounds, replayed=False)
    extended = b"".join(write(ToolUse.AS_REQUESTED, hidden))
    messages: list[dict[str, Any]] = json.loads(extended)["messages"]
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert messages[1]["content"] == [{"type": "text", "text": "Sure, "}, *content]


def test_the_evidence_of_an_agents_words_is_without_tool_results() -> None:
    messages = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Q"}, {"type": "image", "source": {}}],
        },
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a-1", "name": "shell", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a-1", "content": "out"}],
        },
        {"role": "system", "content": "by the runner"},
    ]
    body = {
        "messages": messages,
        "system": [{"type": "text", "text": "S"}],
        "max_tokens": 7,
        "model": "m",
    }
    request = ANTHROPIC_MESSAGES.read_request(json.dumps(body).encode())
    assert (request.user_texts, request.system, request.max_tokens) == (("Q",), "S", 7)
    assert list(request.evidence.anchors) == [1]


@pytest.mark.requirement("continuity:text-anchor")
@pytest.mark.parametrize(
    "spelled",
    [
        "Hi",
        " Hi\n",
        [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}, "citations": None}],
        [{"type": "thinking", "thinking": "", "signature": "s"}, {"type": "text", "text": "Hi"}],
        [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}],
    ],
)
def test_an_answer_is_found_again_however_the_runner_spells_it(spelled: Any) -> None:
    asked = ANTHROPIC_MESSAGES.read_request(b'{"messages":[{"role":"user","content":"Q"}]}')
    content = [
        {"type": "thinking", "thinking": "long", "signature": "s"},
        {"type": "text", "text": "Hi"},
    ]
    reply = ANTHROPIC_MESSAGES.read_response(json.dumps({"content": content}).encode(), catalog())
    anchor = ANTHROPIC_MESSAGES.response_anchor(reply, asked, terminal=False)
    again = [
        {"role": "user", "content": [{"type": "text", "text": "Q"}]},
        {"role": "assistant", "content": spelled},
    ]
    assert ANTHROPIC_MESSAGES.read_request(
        json.dumps({"messages": again}).encode()
    ).evidence.anchors == {1: anchor}


@pytest.mark.requirement("live:anthropic-request")
@pytest.mark.parametrize("said", [b"true", b"null", b""])
def test_a_live_request_asks_for_a_stream(said: bytes) -> None:
    body = b'{"messages":[]%b}' % (b',"stream":' + said if said else b"")
    request = ANTHROPIC_MESSAGES.read_request(body)
    live = msgspec.structs.replace(request, is_live=True)
    build = ANTHROPIC_MESSAGES.build_request
    for use in ToolUse:
        made = json.loads(b"".join(build(live, catalog(GET))(use)))
        assert made["stream"] is True
        buffered = json.loads(b"".join(build(request, catalog(GET))(use)))
        assert buffered.get("stream") is (False if said else None)


@pytest.mark.requirement("live:anthropic-structured-output")
@pytest.mark.parametrize(
    ("member", "reason"),
    [
        ("", None),
        (',"output_config":{"format":{"type":"json_schema","schema":{}}}', "structured_output"),
        (',"output_format":{"type":"json_schema","schema":{}}', "structured_output"),
        (',"output_config":{"effort":"low"}', None),
        (',"output_config":{"format":null}', None),
        (',"output_config":null,"output_format":null', None),
        (',"output_config":7', None),
    ],
)
def test_an_answer_that_is_to_be_json_is_buffered(member: str, reason: str | None) -> None:
    body = f'{{"messages":[],"stream":true{member}}}'.encode()
    assert ANTHROPIC_MESSAGES.read_request(body).buffered_reason == reason
