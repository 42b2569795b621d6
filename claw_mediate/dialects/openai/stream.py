"""A finished chat completion, told as the events of its reply (docs/spec/mediation.md section 6).

Content comes in parts of a few dozen characters, calls with their arguments in parts, and
``finish_reason`` as the provider gave it.

Members that we do not know are told once and as they are: a message's with its opening, a choice's
with its end, and the response's with the opening of all, of which ``openai`` in Python makes its
completion.

The events have these members of their chunk in ``data``:

    chunk    those of the chunk itself
    choice   those of its choice
    delta    those of its delta; of a text that is told whole, also the text, in the provider's
               spelling
    order    the names of the members of the first delta, if events of some of them follow
    call     those of a part of a call
    usage    the usage, at the end of all

A reply ends with an event for each choice, which has ``choice``, and one more, which has
``usage``.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from claw_mediate.core.reply_events import EventKind, ReplyEvent
from claw_mediate.dialects import sse
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.members import (
    Members,
    as_raw,
    split_array,
    split_object,
    string_member,
    without_line_breaks,
)
from claw_mediate.dialects.openai.assemble import REASONING
from claw_mediate.dialects.openai.assemble_calls import (
    FUNCTION_CALL,
    TOOL_CALLS,
    call_channel,
)

_TEXTS = ("content", "refusal")
"""Members that are sent in parts, in the order in which they are shown.

Reasoning comes before them, and whole: the SDK of JavaScript does not know it, and would keep only
the last of several parts.
"""
_CALLS = (TOOL_CALLS, FUNCTION_CALL)
_SAYS_NOTHING = (b"null", b'""')


def tell(body: bytes, _request: RunnerRequest) -> Iterator[ReplyEvent]:
    """Yield the events of a response."""
    response = split_object(without_line_breaks(body))
    usage = response.pop("usage", b"null")
    choices = [split_object(choice) for choice in split_array(response.pop("choices"))]
    response |= {"object": b'"chat.completion.chunk"', "id": _response_id(response, body)}

    for piece, choice in enumerate(choices):
        message = split_object(choice["message"])
        first = _first_delta(message)
        told_later = [name for name, value in first.items() if _says_something(name, value)]
        opening: dict[str, Any] = {
            "delta": {name: value for name, value in first.items() if name not in told_later}
        }
        if told_later:
            opening["order"] = tuple(first)
        if piece == 0:
            opening["chunk"] = as_raw(response)
        yield ReplyEvent("opening", piece, opening)

        yield from _tell_message(piece, message, {name: first[name] for name in told_later})
        yield ReplyEvent("end", piece, {"choice": _last_members(choice, message)})

    yield ReplyEvent("end", 0, {"usage": msgspec.Raw(usage)})


def _response_id(response: Members, body: bytes) -> bytes:
    """Return the id of a response, as JSON; one is made of the body if the provider gave none."""
    own = response.get("id", b"")
    if own[:1] == b'"':
        return own

    digest = hashlib.sha256(body).hexdigest()[:24]
    return b'"chatcmpl%b"' % digest.encode()


def _first_delta(message: Members) -> dict[str, Any]:
    """Return the delta that opens a message: its role, and all that is not told in parts."""
    texts = [name for name in (*_TEXTS, *REASONING) if string_member(message, name)]
    sent_later = {*_CALLS, *texts}
    first: dict[str, Any] = {
        name: msgspec.Raw(value) for name, value in message.items() if name not in sent_later
    }
    if string_member(message, "role") is None:
        first["role"] = "assistant"
    if "content" in sent_later:
        first["content"] = ""
    return first


def _says_something(name: str, value: msgspec.Raw | str) -> bool:
    """Return True if a member of a first delta is more than its head.

    Then it has an event of its own: the opening of a stream may have been shown before, and a
    hidden reply shows no objects.
    """
    return isinstance(value, msgspec.Raw) and name != "role" and bytes(value) not in _SAYS_NOTHING


def _tell_message(
    piece: int, message: Members, others: dict[str, msgspec.Raw]
) -> Iterator[ReplyEvent]:
    """Yield the events of a message: other members, reasoning, texts, calls."""
    for name, value in others.items():
        text = string_member(message, name)
        kind: EventKind = "object" if text is None else "content"
        yield ReplyEvent(kind, piece, {"delta": {name: value}}, name, text or "")

    for name in REASONING:
        if thought := string_member(message, name):
            spelled = {"delta": {name: msgspec.Raw(message[name])}}
            yield ReplyEvent("reasoning", piece, spelled, name, thought)

    for name in _TEXTS:
        for part in sse.split_text(string_member(message, name) or ""):
            yield ReplyEvent("content", piece, {}, name, part)

    yield from _tell_calls(piece, message)


def _tell_calls(piece: int, message: Members) -> Iterator[ReplyEvent]:
    for index, raw in enumerate(_tool_calls(message)):
        yield from _tell_call(piece, call_channel(index), split_object(raw))

    function = message.get(FUNCTION_CALL, b"")
    if function[:1] == b"{":
        yield from _tell_function(piece, FUNCTION_CALL, {}, split_object(function))


def _tool_calls(message: Members) -> list[bytes]:
    calls = message.get(TOOL_CALLS, b"")
    return split_array(calls) if calls[:1] == b"[" else []


def _tell_call(piece: int, channel: str, call: Members) -> Iterator[ReplyEvent]:
    members: dict[str, Any] = as_raw(call)
    function = call.get("function", b"")
    if function[:1] != b"{":
        # A custom call is sent whole: an SDK would keep only the last of several parts.
        yield ReplyEvent("call", piece, {"call": members}, channel)
        return

    if not string_member(call, "type"):
        members["type"] = "function"
    yield from _tell_function(piece, channel, members, split_object(function))


def _tell_function(
    piece: int, channel: str, call: dict[str, Any], function: Members
) -> Iterator[ReplyEvent]:
    """Yield a function with its name first, then its arguments in parts."""
    call["function"] = {**as_raw(function), "arguments": ""}
    yield ReplyEvent("call", piece, {"call": call}, channel)

    # Some providers give the arguments as an object.
    raw = function.get("arguments", b"null")
    if raw == b"null":
        return
    text = string_member(function, "arguments") if raw[:1] == b'"' else raw.decode()
    for part in sse.split_text(text or ""):
        yield ReplyEvent("call", piece, {}, f"{channel}.arguments", part)


def _last_members(choice: Members, message: Members) -> dict[str, Any]:
    """Return the members of a choice that follow its complete message."""
    rest = {name: value for name, value in choice.items() if name != "message"}

    # Null instead of an object breaks an SDK.
    if rest.get("logprobs", b"{")[:1] != b"{":
        del rest["logprobs"]

    # A stream without a reason counts as broken.
    if not string_member(choice, "finish_reason"):
        has_calls = bool(_tool_calls(message))
        rest["finish_reason"] = b'"tool_calls"' if has_calls else b'"stop"'

    return as_raw(rest)
