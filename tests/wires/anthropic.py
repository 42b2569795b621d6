"""Anthropic messages, as a runner's SDK and the provider see them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tests.wires import Body, Made, Said

PATH = "/v1/messages"
MODEL = "claude-test"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_THINKING = {"thinking", "redacted_thinking"}


def message(*blocks: Any, **more: Any) -> Body:
    """A message of the model's; text stands for a block of it."""
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
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
        body["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in native]
    return body | {"stream": True} if stream else body


def user(words: str) -> Body:
    return {"role": "user", "content": words}


def results(given: Sequence[tuple[str, str]]) -> list[Body]:
    blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": output} for call_id, output in given]
    return [{"role": "user", "content": blocks}]


def choice(word: str, *, parallel: bool | None = None) -> Body:
    kind = _CHOICES.get(word)
    told = {"type": kind} if kind else {"type": "tool", "name": word}
    return {"tool_choice": told if parallel is None else {**told, "disable_parallel_tool_use": not parallel}}


def reply(text: str, calls: Sequence[Made], more: Body) -> bytes:
    made = [tool_use(call.id, call.name, _input(call.arguments)) for call in calls]
    return msgspec.json.encode(message(*([text] if text else []), *made, **more))


def _input(arguments: str) -> msgspec.Raw | str:
    """The arguments in their own spelling; a text that is no JSON can only be a string, as some gateways give it."""
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
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Message(msgspec.Struct):
    content: list[_Block]


def said(body: bytes) -> Said:
    blocks = msgspec.json.decode(body, type=_Message).content
    calls = [Made(block.id, block.name, _text(block.input)) for block in blocks if block.type == "tool_use"]
    return Said("".join(block.text for block in blocks if block.type == "text"), tuple(calls))


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
        assert kind in {"content_block_start", "content_block_delta", "content_block_stop"}, "one lifecycle"
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
    """The events of a stream, without the pings between them; each is named after its type."""
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
    """A delta fits its block, and what grows begins empty."""
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
        given = _of_type(one, "tool_result")
        found += ["tool"] * len(given) if given else [one["role"]]
    return found


def answers(messages: Sequence[Body]) -> list[tuple[str, str]]:
    return [(block["tool_use_id"], block["content"]) for one in messages for block in _of_type(one, "tool_result")]


def tools(request: Body) -> dict[str, str]:
    return {entry["name"]: entry.get("description", "") for entry in request.get("tools", ())}


def chosen(request: Body) -> tuple[str | None, bool | None]:
    told = request.get("tool_choice")
    if told is None:
        return None, None
    words = {kind: word for word, kind in _CHOICES.items()}
    disabled = told.get("disable_parallel_tool_use")
    return told.get("name") or words[told["type"]], None if disabled is None else not disabled


def check(request: Body, replies: Mapping[str, bytes]) -> None:
    assert request.get("stream", False) is False
    offered = list(tools(request))
    assert len(offered) == len(request.get("tools", ())), "names of tools are unique"
    word, _ = chosen(request)
    assert word is None or offered, "a choice needs tools"
    assert word in {None, "auto", "required", "none", *offered}
    messages = [one for one in request["messages"] if one["role"] != "system"]
    assert [one["role"] for one in messages] == [("user", "assistant")[n % 2] for n in range(len(messages))]
    ids: set[str] = set()
    for before, one, behind in zip([{}, *messages], messages, [*messages[1:], {}], strict=False):
        _check_content(one)
        made = [block["id"] for block in _of_type(one, "tool_use")]
        given = [block["tool_use_id"] for block in _of_type(one, "tool_result")]
        if one["role"] == "assistant":
            assert sorted(made) == sorted(block["tool_use_id"] for block in _of_type(behind, "tool_result"))
            assert not ids.intersection(made), "ids of calls are unique"
            ids.update(made)
            _check_thinking(one, replies)
        else:
            assert not made
            assert sorted(given) == sorted(block["id"] for block in _of_type(before, "tool_use"))


def _check_content(one: Body) -> None:
    content = one["content"]
    assert content, "no message is empty"
    if isinstance(content, str):
        assert content.strip()
        return
    kinds = [block["type"] for block in content]
    given = kinds.count("tool_result")
    assert kinds[:given] == ["tool_result"] * given, "results stand first"
    for block in content:
        if block["type"] == "text":
            assert block["text"].strip(), "the API takes no blank text"
        if block["type"] == "tool_use":
            assert _NAME.fullmatch(block["name"]), block
            assert _ID.fullmatch(block["id"])
            assert isinstance(block["input"], dict)
        if block["type"] == "tool_result":
            failed = isinstance(block["content"], str) and block["content"].startswith('{"ok":false')
            assert block.get("is_error", False) is failed


def _check_thinking(one: Body, replies: Mapping[str, bytes]) -> None:
    """A message that calls holds the thinking that led to its calls: all of it, in order, as it was."""
    for block in _of_type(one, "tool_use"):
        was = json.loads(replies[block["id"]])
        assert _thinking(one["content"]) == _thinking(was["content"])


def _thinking(content: Sequence[Body]) -> list[Body]:
    return [block for block in content if block["type"] in _THINKING]


def _of_type(one: Body, kind: str) -> list[Body]:
    content = one.get("content")
    return [block for block in content if block["type"] == kind] if isinstance(content, list) else []
