"""A finished chat completion as one well-formed stream (spec/mediation.md section 6).

One id, the role in the first chunk only, content in chunks of a few dozen characters, tool calls with index from 0 and
arguments in parts, ``finish_reason`` as upstream gave it, a usage chunk if it was asked for, ``[DONE]``. Members of the
message that we do not know travel in the first delta, as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from claw_mediate.dialects import sse
from claw_mediate.dialects.base import RunnerRequest

CHUNK = 48
"""Characters of text, or of arguments, in one chunk."""
_TEXTS = ("reasoning_content", "reasoning", "content", "refusal")
"""Members of a message that grow as they stream, in the order in which they are shown."""


def stream(body: bytes, request: RunnerRequest) -> Iterator[bytes]:
    """The events of a response body that ``read_reply`` has accepted."""
    response: dict[str, Any] = msgspec.json.decode(body)
    usage = response.pop("usage", None)
    choices = response.pop("choices")
    frame = {**response, "object": "chat.completion.chunk"}
    for position, choice in enumerate(choices):
        index = choice.get("index", position)
        for delta in _deltas(choice.get("message") or {}):
            yield _chunk(frame, [{"index": index, "delta": delta, "finish_reason": None}])
        rest = {key: value for key, value in choice.items() if key not in {"message", "index", "finish_reason"}}
        last = {"index": index, "delta": {}, **rest, "finish_reason": choice.get("finish_reason") or "stop"}
        yield _chunk(frame, [last])
    if request.include_usage:
        yield _chunk({**frame, "usage": usage}, [])
    yield sse.DONE


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    grown = {name for name in _TEXTS if isinstance(message.get(name), str) and message[name]}
    first = {name: value for name, value in message.items() if name not in grown and name != "tool_calls"}
    yield {"role": "assistant", **first, **({"content": ""} if "content" in grown else {})}
    for name in (name for name in _TEXTS if name in grown):
        for piece in _pieces(message[name]):
            yield {name: piece}
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield from _call_deltas(index, call)


def _call_deltas(index: int, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind = "custom" if call.get("custom") else "function"
    text = "input" if kind == "custom" else "arguments"
    inner = dict(call.get(kind) or {})
    argument = inner.pop(text, "")
    parts = argument if isinstance(argument, str) else json.dumps(argument)
    yield {"tool_calls": [{**call, "index": index, kind: {**inner, text: ""}}]}
    for piece in _pieces(parts):
        yield {"tool_calls": [{"index": index, kind: {text: piece}}]}


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + CHUNK] for start in range(0, len(text), CHUNK))


def _chunk(frame: dict[str, Any], choices: list[dict[str, Any]]) -> bytes:
    return sse.event(msgspec.json.encode({**frame, "choices": choices}))
