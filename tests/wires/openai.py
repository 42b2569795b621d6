"""OpenAI chat completions, as a runner's SDK and the provider see them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.wires import Body, MadeCall, ReplyContent, in_halves, in_words, openai_rules

PATH = "/v1/chat/completions"
MODEL = "gpt-test"
TRANSCRIPT = "messages"

check = openai_rules.check


def completion(
    text: str | None = None, *, calls: list[tuple[str, str, Any]] | None = None, **more: Any
) -> dict[str, Any]:
    """Return a chat completion: text, or calls as (id, name, arguments)."""
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if calls:
        message["tool_calls"] = [
            {
                "id": call_id,
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": args if isinstance(args, str) else json.dumps(args),
                },
            }
            for call_id, name, args in calls
        ]
    reason = "tool_calls" if calls else "stop"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-test",
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        **more,
    }


def request(messages: Sequence[Body], native: Sequence[str], *, stream: bool, more: Body) -> Body:
    body: Body = {"model": MODEL, "messages": list(messages), **more}
    if native:
        functions = [
            {"type": "function", "function": {"name": name, "parameters": {}}} for name in native
        ]
        body["tools"] = [*more.get("tools", ()), *functions]
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def user(words: str) -> Body:
    return {"role": "user", "content": words}


def results(given: Sequence[tuple[str, str]]) -> list[Body]:
    return [
        {"role": "tool", "tool_call_id": call_id, "content": output} for call_id, output in given
    ]


def choice(word: str, *, parallel: bool | None = None) -> Body:
    named = {"type": "function", "function": {"name": word}}
    side_by_side = {} if parallel is None else {"parallel_tool_calls": parallel}
    return {"tool_choice": word if word in {"auto", "required", "none"} else named, **side_by_side}


def foreign(name: str) -> Body:
    return {"type": "custom", "custom": {"name": name}}


def picture(words: str) -> Body:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    return {"role": "user", "content": [{"type": "text", "text": words}, image]}


def echoes(message: Body) -> dict[str, Body]:
    forms = {
        "as it came": message,
        "with nulls": {"refusal": None, "annotations": [], "audio": None, **message},
        "without what it thought": {
            name: value for name, value in message.items() if name != "reasoning_content"
        },
    }
    if message.get("content"):
        forms["in parts"] = {**message, "content": [{"type": "text", "text": message["content"]}]}
    return forms


def reply(
    text: str, calls: Sequence[MadeCall], more: Body, *, thought: str = "", cut: bool = False
) -> bytes:
    body = completion(
        text or None, calls=[(call.id, call.name, call.arguments) for call in calls], **more
    )
    choice = body["choices"][0]
    choice["message"] |= {"reasoning_content": thought} if thought else {}
    choice["finish_reason"] = "length" if cut else choice["finish_reason"]
    return json.dumps(body).encode()


def streamed(body: bytes) -> bytes:
    response = json.loads(body)
    (choice,) = response.pop("choices")
    usage = response.pop("usage", None)
    message = choice.pop("message")

    deltas = _deltas(message)
    choices: list[list[Body]] = [
        [{**choice, "delta": delta, "finish_reason": None}] for delta in deltas
    ]
    choices.append([{**choice, "delta": {}}])
    chunk = {**response, "object": "chat.completion.chunk"}
    chunks = [{**chunk, "choices": each} for each in choices]
    if usage is not None:
        chunks.append({**chunk, "choices": [], "usage": usage})

    events = [json.dumps(each).encode() for each in chunks] + [b"[DONE]"]
    return b"".join(b"data: %b\n\n" % event for event in events)


def _deltas(message: Body) -> list[Body]:
    """Return a message as a stream has it: its role first, then words, then calls in parts."""
    texts = {name: message.pop(name, None) or "" for name in ("reasoning_content", "content")}
    calls = message.pop("tool_calls", None) or []
    opening: Body = {"content": "" if texts["content"] else None, "refusal": None, **message}
    deltas = [opening]
    deltas += [{name: word} for name, text in texts.items() for word in in_words(text)]

    for place, call in enumerate(calls):
        function = {**call["function"], "arguments": ""}
        deltas.append({"tool_calls": [{"index": place, **call, "function": function}]})
        deltas += [
            {"tool_calls": [{"index": place, "function": {"arguments": part}}]}
            for part in in_halves(call["function"]["arguments"])
        ]
    return deltas


def ended(body: bytes) -> str:
    reason: str = json.loads(body)["choices"][0]["finish_reason"]
    return reason


def error(code: str, message: str) -> Body:
    return {
        "error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    }


def said(body: bytes) -> ReplyContent:
    message = json.loads(body)["choices"][0]["message"]
    calls = [
        MadeCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    ]
    return ReplyContent(
        message.get("content") or "", tuple(calls), message.get("reasoning_content") or ""
    )


def kept(body: bytes) -> Body:
    message: Body = json.loads(body)["choices"][0]["message"]
    return {
        name: value for name, value in message.items() if value is not None or name == "content"
    }


def usage(body: bytes) -> tuple[int, int]:
    tokens = json.loads(body)["usage"]
    assert tokens["total_tokens"] == tokens["prompt_tokens"] + tokens["completion_tokens"]
    return tokens["prompt_tokens"], tokens["completion_tokens"]


def assembled(stream: bytes) -> bytes:
    frames = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: ")]
    assert frames[-1] == b"[DONE]"
    chunks = [json.loads(frame) for frame in frames[:-1]]
    assert len({chunk["id"] for chunk in chunks}) == 1
    message: Body = {}
    ends: list[str] = []
    tokens = None
    for chunk in chunks:
        assert "error" not in chunk, chunk
        assert not ends or not chunk["choices"], "nothing of a choice comes behind its end"
        tokens = chunk.get("usage") or tokens
        for part in chunk["choices"]:
            assert part["index"] == 0
            assert ("role" in part["delta"]) == (not message), "the role comes first, and once"
            _grow(message, part["delta"])
            ends += [part["finish_reason"]] if part["finish_reason"] else []
    assert len(ends) == 1
    body = {
        "choices": [{"index": 0, "message": message, "finish_reason": ends[0]}],
        "usage": tokens,
    }
    return json.dumps({**chunks[0], "object": "chat.completion", **body}).encode()


def _grow(message: Body, delta: Body) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            for call in value:
                _grow_calls(message.setdefault("tool_calls", []), call)
        elif name != "role" and isinstance(value, str):
            message[name] = (message.get(name) or "") + value
        elif isinstance(value, dict) and name in message:
            _grow(message[name], value)
        else:
            message.setdefault(name, value)


def _grow_calls(made: list[Body], delta: Body) -> None:
    index = delta.pop("index")
    assert index in {len(made) - 1, len(made)}, "calls come one after the other, from 0"
    if index == len(made):
        made.append(delta)
    else:
        assert "id" not in delta
        made[index]["function"]["arguments"] += delta["function"]["arguments"]


def stream_error(stream: bytes) -> bytes | None:
    errors = [line[6:] for line in stream.split(b"\n") if line.startswith(b'data: {"error"')]
    if not errors:
        return None
    assert stream.endswith(b"data: " + errors[0] + b"\n\ndata: [DONE]\n\n")
    return errors[0]


def code(error: bytes) -> str | None:
    told = json.loads(error)["error"]
    assert told.keys() >= {"message", "type", "code"}
    assert told["message"]
    return told["code"]


def parts(messages: Sequence[Body]) -> list[str]:
    return [message["role"] for message in messages]


def answers(messages: Sequence[Body]) -> list[tuple[str, str]]:
    return [
        (message["tool_call_id"], message["content"])
        for message in messages
        if message["role"] == "tool"
    ]


def called(request: Body) -> list[str]:
    return [
        call["function"]["name"]
        for one in request["messages"]
        for call in one.get("tool_calls", ())
    ]


def tools(request: Body) -> dict[str, str]:
    functions = [entry[entry["type"]] for entry in request.get("tools", ())]
    return {function["name"]: function.get("description", "") for function in functions}


def chosen(request: Body) -> tuple[str | None, bool | None]:
    word = request.get("tool_choice")
    if isinstance(word, dict):
        word = (
            word["function"]["name"]
            if word["type"] == "function"
            else word["allowed_tools"]["mode"]
        )
    return word, request.get("parallel_tool_calls")
