"""OpenAI chat completions: ``POST …/chat/completions`` (request, response, and the stream in ``openai_stream``)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject
from claw_mediate import result, wire
from claw_mediate.catalog import Catalog
from claw_mediate.continuity import calls_anchor, text_anchor
from claw_mediate.dialects import openai_stream, sse
from claw_mediate.dialects.base import RunnerRequest, UnreadableReplyError, UnreadableRequestError
from claw_mediate.model import Answer, Call, Reply, Round
from claw_mediate.talk import ToolUse

NAME: Final = "openai-chat"
MOST_TOOLS: Final = 128
"""How many tools OpenAI takes in one request."""

stream = openai_stream.stream


class _Function(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b'""')


class _WireCall(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None
    custom: _Function | None = None


class _Message(msgspec.Struct):
    role: str = ""
    content: Any = None
    tool_calls: list[_WireCall] | None = None


class _Tool(msgspec.Struct):
    name: str | None = None
    function: _Function | None = None
    custom: _Function | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Request(msgspec.Struct):
    messages: list[_Message]
    model: str = ""
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    functions: list[_Tool] | None = None
    n: int | None = None


class _Choice(msgspec.Struct):
    message: msgspec.Raw


class _Response(msgspec.Struct):
    choices: list[_Choice]
    usage: dict[str, Any] | None = None


_read_request = msgspec.json.Decoder(_Request)
_read_response = msgspec.json.Decoder(_Response)
_read_message = msgspec.json.Decoder(_Message)


def read_request(body: bytes) -> RunnerRequest:
    """The view of a runner's request."""
    try:
        view = _read_request.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableRequestError(f"the request is not a chat completion: {error}") from error
    declared = tuple(name for tool in (*(view.tools or ()), *(view.functions or ())) if (name := _tool_name(tool)))
    return RunnerRequest(
        body=body,
        model=view.model,
        stream=view.stream is True,
        include_usage=bool(view.stream_options and view.stream_options.include_usage),
        declared=declared,
        bypass=_bypass(view),
        choice=view.tool_choice,
        anchors=_anchors(view.messages),
    )


def offer(request: RunnerRequest, catalog: Catalog, woven: Mapping[int, bytes]) -> Mapping[ToolUse, bytes]:
    """The body for the provider, but for the rounds of this turn. Managed tools stand behind the runner's own."""
    spans = {member.name: (member.start, member.end) for member in wire.members(request.body)}
    changes: dict[str, bytes | None] = {
        "tools": wire.appended(_value(request.body, spans, "tools"), map(_wire_tool, catalog.offered)),
        "messages": _weave(_value(request.body, spans, "messages"), woven),
        "stream_options": None,
    }
    if "stream" in spans:
        changes["stream"] = b"false"
    try:
        base = wire.edited(request.body, changes)
        choice = _presented_choice(request.choice, catalog)
        as_asked = base if choice is None else wire.edited(base, {"tool_choice": json.dumps(choice).encode()})
        released = wire.edited(base, {"tool_choice": b'"auto"'}) if _forces(request.choice) else as_asked
        forbidden = wire.edited(base, {"tool_choice": b'"none"'})
    except wire.RepeatedMemberError as error:
        raise UnreadableRequestError(str(error)) from error
    return {ToolUse.AS_ASKED: as_asked, ToolUse.RELEASED: released, ToolUse.FORBIDDEN: forbidden}


def write_request(offered: bytes, rounds: Sequence[Round]) -> bytes:
    """Hidden rounds go behind the last message."""
    if not rounds:
        return offered
    place = next(member for member in wire.members(offered) if member.name == "messages")
    messages = wire.appended(offered[place.start : place.end], hidden_messages(rounds, replayed=False))
    return wire.spliced(offered, [(place.start, place.end, messages)])


def read_reply(body: bytes, catalog: Catalog) -> Reply:
    """The view of a response; the first choice counts (requests for several are not mediated)."""
    try:
        view = _read_response.decode(body)
        body.decode()
        if not view.choices:
            raise UnreadableReplyError("the provider's response has no choice")
        raw = bytes(view.choices[0].message)
        message = _read_message.decode(raw)
        calls = _calls(message.tool_calls or [], catalog, hashlib.sha256(body).hexdigest()[:16])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableReplyError("the provider's response is not a chat completion") from error
    return Reply(body, raw, calls, view.usage or {})


def write_reply(reply: Reply, usage: JsonObject, *, terminal: bool) -> bytes:
    """Upstream's bytes; ``usage`` is the turn's. A terminal reply is the model's words without its call."""
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


def reply_anchor(reply: Reply, request: RunnerRequest) -> str:
    """By the native calls' ids where there are any, else by the text and what was said before it."""
    message = _read_message.decode(reply.message)
    if message.tool_calls:
        return calls_anchor(call.id for call in reply.calls)
    before = _read_request.decode(request.body).messages
    return text_anchor(_text(message), _said(before))


def tokens(usage: JsonObject) -> tuple[int, int, int]:
    """(prompt, completion, cached)."""
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"), cached)
    prompt, completion, cached = (count if isinstance(count, int) else 0 for count in counts)
    return prompt, completion, cached


def keepalive(note: str) -> bytes:
    """A comment: every SDK skips it (reference/gateways.md section 2.8)."""
    return sse.comment(note)


def stream_error(error: bytes) -> bytes:
    """The error as data, then the end."""
    return sse.event(error) + sse.DONE


def error_body(body: bytes) -> bytes | None:
    """``{"error": …}`` in one line, or None."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return msgspec.json.encode(document) if isinstance(document, dict) and document.get("error") else None


def _bypass(view: _Request) -> str | None:
    if view.tool_choice == "none":
        return "tool_choice_none"
    if view.n is not None and view.n > 1:
        return "several_choices_not_mediated"
    if view.functions:
        return "legacy_functions_not_mediated"
    return None


def _tool_name(tool: _Tool) -> str | None:
    inner = tool.function or tool.custom
    return inner.name if inner and inner.name else tool.name


def _wire_tool(offered: Any) -> bytes:
    function = {"name": offered.alias, "description": offered.description, "parameters": offered.schema}
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False, separators=(",", ":")).encode()


def _value(body: bytes, spans: Mapping[str, tuple[int, int]], name: str) -> bytes:
    start, end = spans.get(name, (0, 0))
    value = body[start:end]
    return b"[]" if value in (b"", b"null") else value


def _weave(messages: bytes, woven: Mapping[int, bytes]) -> bytes:
    """Hidden messages go right before the message at their index."""
    if not woven:
        return messages
    places = wire.elements(messages)
    return wire.spliced(messages, [(places[i][0], places[i][0], hidden + b",") for i, hidden in woven.items()])


def _presented_choice(choice: JsonObject | str | None, catalog: Catalog) -> JsonObject | None:
    """A choice that names a managed tool canonically names its alias; None: leave the runner's bytes alone."""
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    alias = catalog.alias(name) if isinstance(name, str) else None
    if alias is None or not isinstance(choice, dict) or not isinstance(function, dict):
        return None
    return {**choice, "function": {**function, "name": alias}}


def _forces(choice: JsonObject | str | None) -> bool:
    if isinstance(choice, dict):
        allowed = choice.get("allowed_tools")
        return not (isinstance(allowed, dict) and allowed.get("mode") == "auto")
    return choice == "required"


def _calls(views: Sequence[_WireCall], catalog: Catalog, seed: str) -> tuple[Call, ...]:
    """The calls, each with an id of its own: one that is missing or taken is minted, of letters and digits only."""
    calls: list[Call] = []
    for index, view in enumerate(views):
        taken = {call.id for call in calls}
        call_id = view.id if view.id and view.id not in taken else f"call{seed}{index}"
        calls.append(_call(view, call_id, catalog))
    return tuple(calls)


def _call(view: _WireCall, call_id: str, catalog: Catalog) -> Call:
    if view.function is None:
        # A custom call's input is free text: it is the runner's, and we never read it.
        return catalog.call(call_id, view.custom.name if view.custom else "", "")
    text = bytes(view.function.arguments)
    # Some providers give the arguments as an object instead of its text.
    arguments = msgspec.json.decode(text, type=str) if text[:1] == b'"' else text.decode()
    return catalog.call(call_id, view.function.name, arguments)


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
    view = msgspec.json.decode(call, type=_WireCall)
    return call if view.id == call_id else wire.edited(call, {"id": json.dumps(call_id).encode()})


def _tool_message(answer: Answer) -> bytes:
    message = {"role": "tool", "tool_call_id": answer.call.id, "content": answer.content.decode()}
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def _terminal_choices(reply: Reply) -> bytes:
    choices = next(member for member in wire.members(reply.body) if member.name == "choices")
    array = reply.body[choices.start : choices.end]
    start, end = wire.elements(array)[0]
    text = json.dumps(_text(_read_message.decode(reply.message)), ensure_ascii=False).encode()
    message = wire.edited(reply.message, {"tool_calls": None, "content": text})
    choice = wire.edited(array[start:end], {"message": message, "finish_reason": b'"stop"'})
    return b"[" + choice + b"]"


def _anchors(messages: Sequence[_Message]) -> dict[int, str]:
    anchors: dict[int, str] = {}
    said: list[str] = []
    for index, message in enumerate(messages):
        if message.role == "user":
            said.append(_text(message))
        elif message.role == "assistant" and message.tool_calls:
            anchors[index] = calls_anchor(call.id or "" for call in message.tool_calls)
        elif message.role == "assistant":
            anchors[index] = text_anchor(_text(message), said)
    return anchors


def _said(messages: Sequence[_Message]) -> list[str]:
    """The texts of the users' messages: what tells equal answers apart."""
    return [_text(message) for message in messages if message.role == "user"]


def _text(message: _Message) -> str:
    """The visible text of a message, whether it is a string, its parts, null or absent."""
    if isinstance(message.content, str):
        return message.content
    if isinstance(message.content, list):
        parts = [part.get("text") for part in message.content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""
