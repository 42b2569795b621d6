"""OpenAI chat completions, the provider's response: its view, and the messages of hidden rounds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from claw_contract.base import JsonObject
from claw_mediate import result, wire
from claw_mediate.catalog import Catalog
from claw_mediate.dialects.base import TERMINAL_TEXT, RunnerRequest, UnreadableReplyError
from claw_mediate.dialects.edits import compact
from claw_mediate.dialects.openai_views import WireCall, read_message, visible_text
from claw_mediate.model import Answer, Call, Reply, Round


class _Choice(msgspec.Struct):
    message: msgspec.Raw
    finish_reason: Any = None


class _Response(msgspec.Struct):
    choices: list[_Choice]
    usage: dict[str, Any] | None = None


_FREE_TEXT = "free text"
_read_response = msgspec.json.Decoder(_Response)


def read_reply(body: bytes, catalog: Catalog) -> Reply:
    """The view of a response; the first choice counts (requests for several are not mediated)."""
    try:
        body.decode()
        msgspec.json.decode(body)  # all of it, since a stream is made of all of it
        view = _read_response.decode(body)
        if not view.choices:
            raise UnreadableReplyError("the provider's response has no choice")
        raw = bytes(view.choices[0].message)
        message, *_ = [read_message.decode(choice.message) for choice in view.choices]
        _read_once(body)
        cut = view.choices[0].finish_reason == "length"
        calls = _calls(message.tool_calls or [], catalog, hashlib.sha256(body).hexdigest()[:16], cut=cut)
    except wire.WireError as error:
        raise UnreadableReplyError(f"the provider's response is ambiguous: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableReplyError("the provider's response is not a chat completion") from error
    return Reply(body, raw, calls, view.usage or {})


def write_reply(reply: Reply, request: RunnerRequest, usage: JsonObject, *, terminal: bool) -> bytes:
    """Upstream's bytes; ``usage`` is the turn's. A terminal reply is the model's words without its call."""
    del request
    changes: dict[str, bytes | None] = {}
    if usage != reply.usage:
        changes["usage"] = json.dumps(usage, ensure_ascii=False).encode()
    if terminal:
        changes["choices"] = _terminal_choices(reply)
    return wire.edited(reply.body, changes) if changes else reply.body


def hidden_messages(rounds: Sequence[Round], *, replayed: bool) -> tuple[bytes, ...]:
    """Of each round the assistant's message with the calls that were answered, and a tool message for each answer."""
    messages: list[bytes] = []
    for past in rounds:
        kept = [answer for answer in past.answers if not (replayed and answer.code in result.NOT_REPLAYED)]
        if kept:
            messages += [_assistant(past.reply, kept), *map(_tool_message, kept)]
    return tuple(messages)


def _read_once(body: bytes) -> None:
    """Raises ``RepeatedMemberError`` where a member that is read or changed here stands twice."""
    choices = wire.once(body, ("choices", "usage"))["choices"]
    first, _ = wire.elements(body, choices.start)[0]
    message = wire.once(body, ("message", "finish_reason"), first)["message"]
    made = wire.once(body, ("role", "content", "tool_calls"), message.start).get("tool_calls")
    if made is not None and body[made.start : made.start + 1] == b"[":
        for call, _ in wire.elements(body, made.start):
            wire.once(body, ("id", "function", "custom"), call)


def _calls(views: Sequence[WireCall], catalog: Catalog, seed: str, *, cut: bool) -> tuple[Call, ...]:
    """The calls, each with an id of its own: one that is missing or taken is minted, of letters and digits only."""
    calls: list[Call] = []
    for index, view in enumerate(views):
        taken = {call.id for call in calls}
        call_id = view.id if view.id and view.id not in taken else f"call{seed}{index}"
        calls.append(_call(view, call_id, catalog, cut=cut and view is views[-1]))
    return tuple(calls)


def _call(view: WireCall, call_id: str, catalog: Catalog, *, cut: bool) -> Call:
    if view.function is None:
        # A custom call's input is free text: the runner's to read. No managed tool takes it, least of all for ``{}``.
        return catalog.call(call_id, view.custom.name if view.custom else "", _FREE_TEXT)
    text = bytes(view.function.arguments)
    # Some providers give the arguments as an object instead of its text.
    arguments = msgspec.json.decode(text, type=str) if text[:1] == b'"' else text.decode()
    return catalog.call(call_id, view.function.name, arguments, cut=cut)


def _assistant(reply: Reply, kept: Sequence[Answer]) -> bytes:
    """The assistant's message with exactly the kept calls, each with the id that its answer names."""
    place = next(member for member in wire.members(reply.message) if member.name == "tool_calls")
    array = reply.message[place.start : place.end]
    raw = {call.id: array[start:end] for call, (start, end) in zip(reply.calls, wire.elements(array), strict=True)}
    calls = [_with_id(raw[answer.call.id], answer.call.id) for answer in kept]
    if len(kept) == len(reply.calls) and calls == list(raw.values()):
        return reply.message
    return wire.spliced(reply.message, [(place.start, place.end, b"[" + b",".join(calls) + b"]")])


def _with_id(call: bytes, call_id: str) -> bytes:
    view = msgspec.json.decode(call, type=WireCall)
    return call if view.id == call_id else wire.edited(call, {"id": json.dumps(call_id).encode()})


def _tool_message(answer: Answer) -> bytes:
    message = {"role": "tool", "tool_call_id": answer.call.id, "content": answer.content.decode()}
    return compact(message)


def _terminal_choices(reply: Reply) -> bytes:
    choices = next(member for member in wire.members(reply.body) if member.name == "choices")
    array = reply.body[choices.start : choices.end]
    start, end = wire.elements(array)[0]
    text = compact(visible_text(read_message.decode(reply.message)) or TERMINAL_TEXT)
    message = wire.edited(reply.message, {"tool_calls": None, "content": text})
    choice = wire.edited(array[start:end], {"message": message, "finish_reason": b'"stop"'})
    return b"[" + choice + b"]"
