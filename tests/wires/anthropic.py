"""Anthropic messages, as a runner's SDK and the provider see them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from tests.wires import Body, MadeCall, ReplyContent, anthropic_rules, in_halves, in_words
from tests.wires.anthropic_rules import of_type

PATH = "/v1/messages"
MODEL = "claude-test"
TRANSCRIPT = "messages"
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}

check = anthropic_rules.check


def message(*blocks: Any, **more: Any) -> Body:
    """Return a model's message; a string stands for a text block."""
    content = [
        {"type": "text", "text": block} if isinstance(block, str) else block for block in blocks
    ]
    called = any(block["type"] == "tool_use" for block in content)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": content,
        "stop_reason": "tool_use" if called else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
        **more,
    }


def tool_use(call_id: str, name: str, arguments: Any) -> Body:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def request(messages: Sequence[Body], native: Sequence[str], *, stream: bool, more: Body) -> Body:
    body: Body = {"model": MODEL, "max_tokens": 1024, "messages": list(messages), **more}
    if native:
        own = [{"name": name, "input_schema": {"type": "object"}} for name in native]
        body["tools"] = [*more.get("tools", ()), *own]
    return body | {"stream": True} if stream else body


def user(words: str) -> Body:
    return {"role": "user", "content": words}


def results(given: Sequence[tuple[str, str]]) -> list[Body]:
    blocks = [
        {"type": "tool_result", "tool_use_id": call_id, "content": output}
        for call_id, output in given
    ]
    return [{"role": "user", "content": blocks}]


def choice(word: str, *, parallel: bool | None = None) -> Body:
    kind = _CHOICES.get(word)
    told = {"type": kind} if kind else {"type": "tool", "name": word}
    return {
        "tool_choice": told
        if parallel is None
        else {**told, "disable_parallel_tool_use": not parallel}
    }


def foreign(name: str) -> Body:
    return {"type": "web_search_20250305", "name": name}


def picture(words: str) -> Body:
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    return {
        "role": "user",
        "content": [{"type": "image", "source": source}, {"type": "text", "text": words}],
    }


def echoes(message: Body) -> dict[str, Body]:
    blocks = message["content"]
    forms = {
        "as it came": blocks,
        "with a mark for the cache": [
            *blocks[:-1],
            {**blocks[-1], "cache_control": {"type": "ephemeral"}},
        ],
        "without what it thought": [block for block in blocks if block["type"] != "thinking"],
    }
    if len(forms["without what it thought"]) == 1 and blocks[-1]["type"] == "text":
        forms["as text"] = blocks[-1]["text"]
    return {name: {"role": "assistant", "content": content} for name, content in forms.items()}


def reply(
    text: str, calls: Sequence[MadeCall], more: Body, *, thought: str = "", cut: bool = False
) -> bytes:
    thinking = (
        [{"type": "thinking", "thinking": thought, "signature": f"sig+{thought}=="}]
        if thought
        else []
    )
    made = [tool_use(call.id, call.name, _input(call.arguments)) for call in calls]
    reason = {"stop_reason": "max_tokens"} if cut else {}
    return msgspec.json.encode(
        message(*thinking, *([text] if text else []), *made, **reason, **more)
    )


def streamed(body: bytes) -> bytes:
    message = json.loads(body)
    blocks = message["content"]
    raw = msgspec.json.decode(body, type=_Message).content
    ends = {name: message[name] for name in ("stop_reason", "stop_sequence")}
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None}

    events: list[Body] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(blocks):
        begins, deltas = _begin(block, bytes(raw[index].input).decode())
        events.append({"type": "content_block_start", "index": index, "content_block": begins})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    usage = {"output_tokens": message["usage"]["output_tokens"]}
    events.append({"type": "message_delta", "delta": ends, "usage": usage})
    events.append({"type": "message_stop"})

    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


def _begin(block: Body, arguments: str) -> tuple[Body, list[Body]]:
    """Return a block as its stream begins it, and the deltas that complete it.

    ``arguments``: the call's arguments in their own spelling.
    """
    match block["type"]:
        case "text":
            words = in_words(block["text"])
            return {**block, "text": ""}, [{"type": "text_delta", "text": each} for each in words]
        case "thinking":
            words = in_words(block["thinking"])
            return {**block, "thinking": "", "signature": ""}, [
                *({"type": "thinking_delta", "thinking": each} for each in words),
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "tool_use":
            parts = in_halves(arguments)
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": each} for each in parts
            ]
        case _:
            return block, []


def ended(body: bytes) -> str:
    reason: str = json.loads(body)["stop_reason"]
    return reason


def _input(arguments: str) -> msgspec.Raw | str:
    """Return the arguments in their own spelling; a text that is not JSON becomes a
    string, as from some gateways.
    """
    try:
        json.loads(arguments)
    except ValueError:
        return arguments
    return msgspec.Raw(arguments.encode())


def error(code: str, message: str) -> Body:
    return {"type": "error", "error": {"type": code, "message": message}}


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Message(msgspec.Struct):
    content: list[_Block]


def said(body: bytes) -> ReplyContent:
    blocks = msgspec.json.decode(body, type=_Message).content
    calls = [
        MadeCall(block.id, block.name, _text(block.input))
        for block in blocks
        if block.type == "tool_use"
    ]
    text = "".join(block.text for block in blocks if block.type == "text")
    return ReplyContent(
        text, tuple(calls), "".join(block.thinking for block in blocks if block.type == "thinking")
    )


def _text(raw: msgspec.Raw) -> str:
    text = bytes(raw).decode()
    return json.loads(text) if text.startswith('"') else text


def kept(body: bytes) -> Body:
    return {"role": "assistant", "content": json.loads(body)["content"]}


def usage(body: bytes) -> tuple[int, int]:
    tokens = json.loads(body)["usage"]
    return tokens["input_tokens"], tokens["output_tokens"]


def assembled(stream: bytes) -> bytes:
    events = _events(stream)
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    first, *between, last, _ = events
    assert first["type"] == "message_start"
    body = first["message"]
    assert (body["content"], body["stop_reason"]) == ([], None)
    assert body["usage"].keys() >= {"input_tokens", "output_tokens"}
    blocks: list[Body] = []
    grown: dict[str, list[str]] | None = None
    for event in between:
        kind = event["type"]
        assert kind in {"content_block_start", "content_block_delta", "content_block_stop"}, (
            "one lifecycle"
        )
        assert (grown is None) == (kind == "content_block_start"), "one block at a time"
        if grown is None:
            blocks.append(event["content_block"])
            grown = {}
        assert event["index"] == len(blocks) - 1, "indexes without gaps"
        if kind == "content_block_delta":
            _grow(blocks[-1], grown, event["delta"])
        elif kind == "content_block_stop":
            blocks[-1] |= {name: _whole(name, pieces) for name, pieces in grown.items()}
            grown = None
    assert grown is None, "every block is ended"
    assert "output_tokens" in last["usage"]
    tokens = {**body["usage"], **last["usage"]}
    return msgspec.json.encode({**body, **last["delta"], "content": blocks, "usage": tokens})


def _events(stream: bytes) -> list[Body]:
    """Return the events of a stream without pings; each one's name must be its type."""
    assert stream.endswith(b"\n\n")
    events: list[Body] = []
    for block in stream.removesuffix(b"\n\n").split(b"\n\n"):
        lines = [line for line in block.split(b"\n") if not line.startswith(b":")]
        if lines:
            name, data = lines
            event = json.loads(data.removeprefix(b"data: "))
            assert name == f"event: {event['type']}".encode()
            events += [event] if event["type"] != "ping" else []
    return events


_GROWS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def _grow(block: Body, grown: dict[str, list[str]], delta: Body) -> None:
    """Add a delta to its block: it must fit the block, and the member that grows
    must begin empty.
    """
    match block["type"], delta["type"]:
        case "text", "citations_delta":
            block["citations"].append(delta["citation"])
        case "thinking", "signature_delta":
            assert block["signature"] == ""
            block["signature"] = delta["signature"]
        case ("text", "text_delta") | ("thinking", "thinking_delta"):
            name = _GROWS[delta["type"]]
            assert block[name] == ""
            grown.setdefault(name, []).append(delta[name])
        case (("tool_use" | "server_tool_use" | "mcp_tool_use"), "input_json_delta"):
            assert block["input"] == {}
            grown.setdefault("input", []).append(delta["partial_json"])
        case other:
            raise AssertionError(other)


def _whole(name: str, pieces: list[str]) -> Any:
    text = "".join(pieces)
    return msgspec.Raw(text.encode()) if name == "input" else text


def stream_error(stream: bytes) -> bytes | None:
    errors = [event for event in _events(stream) if event["type"] == "error"]
    if not errors:
        return None
    assert _events(stream)[-1:] == errors, "nothing comes behind an error"
    return json.dumps(errors[0]).encode()


def code(error: bytes) -> str | None:
    told = json.loads(error)
    assert told["type"] == "error"
    assert told["error"]["message"]
    kind: str = told["error"]["type"]
    return None if kind == "api_error" else kind


def parts(messages: Sequence[Body]) -> list[str]:
    found: list[str] = []
    for one in messages:
        given = of_type(one, "tool_result")
        found += ["tool"] * len(given) if given else [one["role"]]
    return found


def answers(messages: Sequence[Body]) -> list[tuple[str, str]]:
    return [
        (block["tool_use_id"], block["content"])
        for one in messages
        for block in of_type(one, "tool_result")
    ]


def called(request: Body) -> list[str]:
    return [block["name"] for one in request["messages"] for block in of_type(one, "tool_use")]


def tools(request: Body) -> dict[str, str]:
    return {entry["name"]: entry.get("description", "") for entry in request.get("tools", ())}


def chosen(request: Body) -> tuple[str | None, bool | None]:
    told = request.get("tool_choice")
    if told is None:
        return None, None
    words = {kind: word for word, kind in _CHOICES.items()}
    disabled = told.get("disable_parallel_tool_use")
    return told.get("name") or words[told["type"]], None if disabled is None else not disabled
