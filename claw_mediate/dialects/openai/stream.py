"""A finished chat completion as one well-formed stream (docs/spec/mediation.md section 6).

It has one id, the role in the first chunk of a choice only, content in chunks of a few dozen
characters, tool calls with an index from 0 and arguments in parts, ``finish_reason`` as the
provider gave it, a usage chunk if the runner asked for one, and ``[DONE]``.

Members that we do not know are sent once and as they are: a message's in its first delta, a
choice's in its last chunk, and the response's in the first chunk of all, of which ``openai`` in
Python makes its completion.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from claw_mediate.dialects import sse
from claw_mediate.dialects.base import Keepalive, RunnerRequest, StreamOpening
from claw_mediate.dialects.members import (
    Members,
    as_raw,
    split_array,
    split_object,
    string_member,
    without_line_breaks,
)

_FRAME = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
"""Members of a response that every chunk repeats."""
_REASONING = ("reasoning_content", "reasoning")
"""Members that come before the text, each in one delta.

The SDK of JavaScript knows neither, and would keep only the last of several parts.
"""
_TEXTS = ("content", "refusal")
"""Members that are sent in parts, in the order in which they are shown."""
_CALLS = ("tool_calls", "function_call")


def stream(
    body: bytes, request: RunnerRequest, opening: StreamOpening | None = None
) -> Iterator[bytes]:
    """Yield the events of a response. ``opening``: the head of the stream, if it has begun."""
    response = split_object(without_line_breaks(body))
    if opening is not None:
        response |= _opening_members(opening)

    usage = response.pop("usage", b"null")
    choices = [split_object(choice) for choice in split_array(response.pop("choices"))]
    response |= {"object": b'"chat.completion.chunk"', "id": _response_id(response, body)}

    # Every chunk begins with the frame. The first one has all other members of the response, too.
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


def keepalive(note: str, kind: Keepalive, opening: StreamOpening) -> bytes:
    """Return a comment, which every SDK skips; of the native kind, a chunk with an empty delta."""
    return sse.comment(note) if kind == "comment" else _empty_chunk(opening)


def stream_error(error: bytes, _opening: StreamOpening) -> bytes:
    """Return the events of an error that comes after the headers."""
    return sse.event(error) + sse.DONE


def _empty_chunk(opening: StreamOpening) -> bytes:
    """Return a chunk that says nothing.

    It has a choice, because clients read the first choice of every chunk.
    """
    # It needs id and model, too: the SDK of Python keeps the first ones that a stream has, that of
    # JavaScript the last ones.
    frame = {**_opening_members(opening), "object": b'"chat.completion.chunk"'}
    return _chunk(_chunk_head(frame), {"index": 0, "delta": {}, "finish_reason": None})


def _opening_members(opening: StreamOpening) -> Members:
    members = {"id": opening.id, "model": opening.model, "created": opening.created}
    return split_object(msgspec.json.encode(members))


def _response_id(response: Members, body: bytes) -> bytes:
    """Return the id of a response, as JSON; one is made of the body if the provider gave none."""
    own = response.get("id", b"")
    if own[:1] == b'"':
        return own

    digest = hashlib.sha256(body).hexdigest()[:24]
    return b'"chatcmpl%b"' % digest.encode()


def _last_members(choice: Members) -> Members:
    """Return the members of a choice that follow its complete message."""
    rest = {name: value for name, value in choice.items() if name != "message"}

    # Null instead of an object breaks an SDK.
    if rest.get("logprobs", b"{")[:1] != b"{":
        del rest["logprobs"]

    # A stream without a reason counts as broken.
    if not string_member(choice, "finish_reason"):
        has_calls = bool(_tool_calls(split_object(choice["message"])))
        rest["finish_reason"] = b'"tool_calls"' if has_calls else b'"stop"'

    return rest


def _deltas(message: Members) -> Iterator[dict[str, Any]]:
    """Yield the deltas of a message: other members, reasoning, texts, calls."""
    texts = {name: text for name in _TEXTS if (text := string_member(message, name))}
    reasoning = {name: message[name] for name in _REASONING if string_member(message, name)}
    sent_later = {*texts, *reasoning, *_CALLS}

    first: dict[str, Any] = {
        name: msgspec.Raw(value) for name, value in message.items() if name not in sent_later
    }
    if string_member(message, "role") is None:
        first["role"] = "assistant"
    if "content" in texts:
        first["content"] = ""
    yield first

    for name, thought in reasoning.items():
        yield as_raw({name: thought})

    for name, text in texts.items():
        for part in sse.split_text(text):
            yield {name: part}

    for index, call in enumerate(_tool_calls(message)):
        yield from _call_deltas(index, split_object(call))

    function = message.get("function_call", b"")
    if function[:1] == b"{":
        for parts in _function_deltas(split_object(function)):
            yield {"function_call": parts}


def _tool_calls(message: Members) -> list[bytes]:
    calls = message.get("tool_calls", b"")
    return split_array(calls) if calls[:1] == b"[" else []


def _call_deltas(index: int, call: Members) -> Iterator[dict[str, Any]]:
    function = call.get("function", b"")
    if function[:1] != b"{":
        # A custom call is sent whole: an SDK would keep only the last of several parts.
        yield {"tool_calls": [{**as_raw(call), "index": index}]}
        return

    first, *rest = _function_deltas(split_object(function))
    members: dict[str, Any] = as_raw(call)
    if not string_member(call, "type"):
        members["type"] = "function"
    yield {"tool_calls": [{**members, "index": index, "function": first}]}

    for part in rest:
        yield {"tool_calls": [{"index": index, "function": part}]}


def _function_deltas(function: Members) -> Iterator[dict[str, Any]]:
    """Yield a function with its name first, then its arguments in parts."""
    yield {**as_raw(function), "arguments": ""}

    # Some providers give the arguments as an object.
    raw = function.get("arguments", b"null")
    if raw == b"null":
        return
    text = string_member(function, "arguments") if raw[:1] == b'"' else raw.decode()
    for part in sse.split_text(text or ""):
        yield {"arguments": part}


def _chunk_head(frame: Members) -> bytes:
    """Return the beginning of a chunk, up to its choices."""
    return msgspec.json.encode(as_raw(frame))[:-1] + b',"choices":['


def _chunk(head: bytes, choice: dict[str, Any]) -> bytes:
    return sse.event(head + msgspec.json.encode(choice) + b"]}")
