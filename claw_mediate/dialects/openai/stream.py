"""A finished chat completion as one well-formed stream (docs/spec/mediation.md section 6).

One id, the role in the first chunk of a choice only, content in chunks of a few dozen characters,
tool calls with index from 0 and arguments in parts, ``finish_reason`` as the provider gave it, a
usage chunk if it was asked for, ``[DONE]``. Members that we do not know travel once and as they
are: a message's in its first delta, a choice's in its last chunk, the response's in the first chunk
of all (``openai`` in Python makes its completion of that one).
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from claw_mediate.dialects import sse
from claw_mediate.dialects.base import RunnerRequest, StreamOpening
from claw_mediate.dialects.sse import (
    Members,
    as_raw,
    split_array,
    split_object,
    split_text,
    string_member,
    without_line_breaks,
)

_FRAME = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
"""Members of a response that every chunk repeats."""
_REASONING = ("reasoning_content", "reasoning")
"""Members that stream before the text, each whole: the SDK of JavaScript knows neither, and would
keep the last part only.
"""
_TEXTS = (
    "content",
    "refusal",
)  # Members of a message that grow as they stream, in the order in which they are shown
_CALLS = ("tool_calls", "function_call")


def stream(
    body: bytes, request: RunnerRequest, opening: StreamOpening | None = None
) -> Iterator[bytes]:
    response = split_object(without_line_breaks(body)) | (
        _opening_members(opening) if opening is not None else {}
    )
    usage = response.pop("usage", b"null")
    choices = [split_object(choice) for choice in split_array(response.pop("choices"))]
    response |= {"object": b'"chat.completion.chunk"', "id": _response_id(response, body)}
    frame = _chunk_head({name: response[name] for name in _FRAME if name in response})
    head = _chunk_head(response)
    for index, choice in enumerate(choices):
        for delta in _deltas(split_object(choice["message"])):
            yield _chunk(head, {"index": index, "delta": delta, "finish_reason": None})
            head = frame
        yield _chunk(frame, {**as_raw(_last_members(choice)), "index": index, "delta": {}})
    if request.include_usage:
        yield sse.event(frame + b'],"usage":' + usage + b"}")
    yield sse.DONE


def empty_chunk(opening: StreamOpening) -> bytes:
    """Return a chunk that says nothing.

    It has a choice, since clients read the first one of every chunk.
    """
    # The SDK of Python keeps the first id and model that a stream shows, that of JavaScript the
    # last ones.
    frame = {**_opening_members(opening), "object": b'"chat.completion.chunk"'}
    return _chunk(_chunk_head(frame), {"index": 0, "delta": {}, "finish_reason": None})


def _opening_members(opening: StreamOpening) -> Members:
    members = {"id": opening.id, "model": opening.model, "created": opening.created}
    return split_object(msgspec.json.encode(members))


def _response_id(response: Members, body: bytes) -> bytes:
    own = response.get("id", b"")
    return (
        own if own[:1] == b'"' else b'"chatcmpl%s"' % hashlib.sha256(body).hexdigest()[:24].encode()
    )


def _last_members(choice: Members) -> Members:
    """Return the members of a choice that follow its complete message.

    A stream without a ``finish_reason`` is a broken one, and ``logprobs`` that are none break an
    SDK.
    """
    rest = {name: value for name, value in choice.items() if name != "message"}
    if rest.get("logprobs", b"{")[:1] != b"{":
        del rest["logprobs"]
    if not string_member(choice, "finish_reason"):
        rest["finish_reason"] = (
            b'"tool_calls"' if _tool_calls(split_object(choice["message"])) else b'"stop"'
        )
    return rest


def _deltas(message: Members) -> Iterator[dict[str, Any]]:
    growing = {name: whole for name in _TEXTS if (whole := string_member(message, name))}
    thoughts = {name: message[name] for name in _REASONING if string_member(message, name)}
    first = {
        name: value for name, value in message.items() if name not in {*growing, *thoughts, *_CALLS}
    }
    if string_member(message, "role") is None:
        first["role"] = b'"assistant"'
    yield {**as_raw(first), **({"content": ""} if "content" in growing else {})}
    for name, thought in thoughts.items():
        yield as_raw({name: thought})
    for name, whole in growing.items():
        for piece in split_text(whole):
            yield {name: piece}
    for index, call in enumerate(_tool_calls(message)):
        yield from _call_deltas(index, split_object(call))
    if (function := message.get("function_call", b""))[:1] == b"{":
        for parts in _function_deltas(split_object(function)):
            yield {"function_call": parts}


def _tool_calls(message: Members) -> list[bytes]:
    calls = message.get("tool_calls", b"")
    return split_array(calls) if calls[:1] == b"[" else []


def _call_deltas(index: int, call: Members) -> Iterator[dict[str, Any]]:
    # A custom call goes whole: its parts would replace each other there.
    function = call.get("function", b"")
    if function[:1] != b"{":
        yield {"tool_calls": [{**as_raw(call), "index": index}]}
        return
    kind = {} if string_member(call, "type") else {"type": "function"}
    first, *rest = _function_deltas(split_object(function))
    yield {"tool_calls": [{**as_raw(call), **kind, "index": index, "function": first}]}
    for part in rest:
        yield {"tool_calls": [{"index": index, "function": part}]}


def _function_deltas(function: Members) -> Iterator[dict[str, Any]]:
    """Yield a function with its name first, then its arguments in parts; some
    providers give them as an object.
    """
    raw = function.get("arguments", b"null")
    whole = (
        string_member(function, "arguments")
        if raw[:1] == b'"'
        else ""
        if raw == b"null"
        else raw.decode()
    )
    yield {**as_raw(function), "arguments": ""}
    for piece in split_text(whole or ""):
        yield {"arguments": piece}


def _chunk_head(frame: Members) -> bytes:
    return msgspec.json.encode(as_raw(frame))[:-1] + b',"choices":['


def _chunk(head: bytes, choice: dict[str, Any]) -> bytes:
    return sse.event(head + msgspec.json.encode(choice) + b"]}")
