"""OpenAI chat completions, the provider's response: its view, and the messages of hidden rounds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice, tool_result
from claw_mediate.core.reinjection import summarize_arguments, summarize_result
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import ModelResponse, Round, ToolCall, ToolResult, UnreadableArguments
from claw_mediate.dialects.base import MAX_PARTS, TERMINAL_TEXT, RunnerRequest, UnreadableResponseError
from claw_mediate.dialects.body_edits import Changes, encode
from claw_mediate.dialects.openai.functions import tool_call_as_function
from claw_mediate.dialects.openai.wire_types import Function, WireCall, arguments_text, read_message, visible_text


class _Message(msgspec.Struct):
    tool_calls: list[WireCall] | None = None
    function_call: Function | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: Any = None


class _Response(msgspec.Struct):
    choices: list[_Choice]
    usage: dict[str, Any] | None = None


_FREE_TEXT = "free text"
_response_decoder = msgspec.json.Decoder(_Response)


def read_response(body: bytes, catalog: ToolCatalog) -> ModelResponse:
    """The view of a response; the first choice counts (requests for several are not mediated).

    Its calls are in ``tool_calls``, each with an id of its own: it is written into the response where it was not there, so
    that the transcript, the runner and the anchor have the same.
    """
    try:
        json_splice.check_utf8(body)
        view = _response_decoder.decode(body)
        if not view.choices:
            raise UnreadableResponseError("the provider's response has no choice")
        first = view.choices[0]
        if len(first.message.tool_calls or ()) > MAX_PARTS:
            raise UnreadableResponseError(f"the provider's response holds more than {MAX_PARTS} calls")
        message = _find_message(body)
        if first.message.function_call is not None and not first.message.tool_calls:
            return read_response(
                _edit_first_choice(body, partial(json_splice.edit, changes=_functions_as_tool_calls(message))), catalog
            )
        seed = hashlib.sha256(body).hexdigest()[:16]
        calls = _read_calls(first.message.tool_calls or [], catalog, seed, cut=first.finish_reason == "length")
        named = _write_call_ids(message, calls)
        if named != message:
            body = _edit_first_choice(body, partial(json_splice.edit, changes={"message": named}))
    except json_splice.JsonSpliceError as error:
        raise UnreadableResponseError(f"the provider's response is ambiguous: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableResponseError("the provider's response is not a chat completion") from error
    return ModelResponse(body, named, calls, view.usage or {})


def write_response(reply: ModelResponse, request: RunnerRequest, usage: JsonObject, *, terminal: bool) -> bytes:
    """Upstream's bytes; ``usage`` is the turn's. A terminal reply is the model's words without its call; calls are handed over
    in the form that the runner speaks.
    """
    body = reply.body
    if terminal:
        body = _edit_first_choice(body, partial(_without_terminal_call, reply), alone=True)
    elif reply.calls and request.legacy:
        body = _edit_first_choice(body, tool_call_as_function)
    return body if usage == reply.usage else json_splice.edit(body, {"usage": encode(usage)})


def write_hidden_rounds(rounds: Sequence[Round], *, replayed: bool) -> tuple[bytes, ...]:
    """Of each round the assistant's message with the calls that were answered, and a tool message for each answer."""
    messages: list[bytes] = []
    for past in rounds:
        kept = [answer for answer in past.answers if not (replayed and answer.code in tool_result.NOT_REINJECTED)]
        if kept:
            messages += [_assistant_message(past.reply, kept), *map(_tool_message, kept)]
    return tuple(messages)


def _find_message(body: bytes) -> bytes:
    """The first choice's message. Raises ``RepeatedMemberError`` where a member that is read or changed here stands twice."""
    choices = json_splice.find_members(body, ("choices", "usage"))["choices"]
    first, _ = json_splice.element_spans(body, choices.start)[0]
    message = json_splice.find_members(body, ("message", "finish_reason"), first)["message"]
    made = json_splice.find_members(body, ("role", "content", "tool_calls", "function_call"), message.start).get(
        "tool_calls"
    )
    if made is not None and body[made.start : made.start + 1] == b"[":
        for call, _ in json_splice.element_spans(body, made.start):
            json_splice.find_members(body, ("id", "function", "custom"), call)
    return body[message.start : message.end]


def _edit_first_choice(body: bytes, edit: Callable[[bytes], bytes], *, alone: bool = False) -> bytes:
    """The response with its first choice edited; ``alone``: and with no other choice."""
    choices = json_splice.find_members(body, ["choices"])["choices"]
    start, end = json_splice.element_spans(body, choices.start)[0]
    choice = edit(body[start:end])
    return json_splice.splice(body, [(choices.start, choices.end, b"[%b]" % choice) if alone else (start, end, choice)])


def _without_terminal_call(reply: ModelResponse, choice: bytes) -> bytes:
    text = encode(visible_text(read_message.decode(reply.message)) or TERMINAL_TEXT)
    message = json_splice.edit(reply.message, {"tool_calls": None, "content": text})
    return json_splice.edit(choice, {"message": message, "finish_reason": b'"stop"'})


def _functions_as_tool_calls(message: bytes) -> Changes:
    """A message in the form from before tools, which a provider may still give, in the form of tools."""
    call = b'[{"type":"function","function":%b}]' % (json_splice.Object(message).value("function_call") or b"{}")
    return {"message": json_splice.edit(message, {"function_call": None, "tool_calls": call})}


def _read_calls(views: Sequence[WireCall], catalog: ToolCatalog, seed: str, *, cut: bool) -> tuple[ToolCall, ...]:
    """The calls, each with an id of its own: one that is missing or taken is minted, of letters and digits only."""
    calls: list[ToolCall] = []
    taken: set[str] = set()
    for index, view in enumerate(views):
        own = isinstance(view.id, str) and bool(view.id) and view.id not in taken
        call_id = view.id if own else f"call{seed}{index}"
        taken.add(call_id)
        calls.append(_read_call(view, call_id, catalog, cut=cut and view is views[-1]))
    return tuple(calls)


def _read_call(view: WireCall, call_id: str, catalog: ToolCatalog, *, cut: bool) -> ToolCall:
    if view.function is None:
        # A custom call's input is free text: the runner's to read. No managed tool takes it, least of all for ``{}``.
        return catalog.call(call_id, view.custom.name if view.custom else "", _FREE_TEXT)
    return catalog.call(call_id, view.function.name, arguments_text(view.function), cut=cut)


def _write_call_ids(message: bytes, calls: Sequence[ToolCall]) -> bytes:
    """The message with its calls' ids written where they were not there."""
    if not calls:
        return message
    made = json_splice.find_members(message, ["tool_calls"])["tool_calls"]
    cuts = [
        (start, end, json_splice.edit(message[start:end], {"id": encode(call.id)}))
        for call, (start, end) in zip(calls, json_splice.element_spans(message, made.start), strict=True)
        if msgspec.json.decode(message[start:end], type=WireCall).id != call.id
    ]
    return json_splice.splice(message, cuts)


def _assistant_message(reply: ModelResponse, kept: Sequence[ToolResult]) -> bytes:
    """The assistant's message with exactly the kept calls."""
    made = json_splice.find_members(reply.message, ["tool_calls"])["tool_calls"]
    ids = {answer.call.id for answer in kept}
    places = zip(reply.calls, json_splice.element_spans(reply.message, made.start), strict=True)
    calls = [_resendable_call(reply.message[start:end], call) for call, (start, end) in places if call.id in ids]
    message = json_splice.splice(reply.message, [(made.start, made.end, b"[" + b",".join(calls) + b"]")])
    # Providers may leave the role out; none of them takes a message without.
    own = read_message.decode(message).role == "assistant"
    return message if own else json_splice.edit(message, {"role": b'"assistant"'})


def _resendable_call(raw: bytes, call: ToolCall) -> bytes:
    """A call as providers take it back: with a name of plain characters, and arguments that are an object's JSON.

    OpenAI takes any arguments that it gave; others parse them, and refuse the conversation for good.
    """
    view = msgspec.json.decode(raw, type=WireCall)
    if view.function is None and view.custom is not None:
        return raw
    function = json_splice.Object(raw).value("function") if view.function is not None else b"{}"
    changes: Changes = {} if call.told_as is None else {"name": encode(call.told_as)}
    if isinstance(call.arguments, UnreadableArguments) and not _is_object(call.arguments.text):
        changes["arguments"] = encode(json.dumps({"invalid_json": call.arguments.text}))
    return json_splice.edit(raw, {"function": json_splice.edit(function or b"{}", changes)}) if changes else raw


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


def _tool_message(answer: ToolResult) -> bytes:
    message = {"role": "tool", "tool_call_id": answer.call.id, "content": answer.content.decode()}
    return encode(message)


def summarize(messages: bytes) -> bytes:
    """Hidden messages with their calls and how each went; what was said, thought, sent and answered is left out."""
    array = b"[%b]" % messages
    return b",".join(_summarize_message(array[start:end]) for start, end in json_splice.element_spans(array))


def _summarize_message(message: bytes) -> bytes:
    read = json_splice.Object(message)
    if (calls := read.value("tool_calls")) is None:
        content = msgspec.json.decode(read.value("content") or b'""', type=str)
        return read.edit({"content": encode(summarize_result(content))})
    short = b",".join(_summarize_call(calls[start:end]) for start, end in json_splice.element_spans(calls))
    return b'{"role":"assistant","content":null,"tool_calls":[%b]}' % short


def _summarize_call(call: bytes) -> bytes:
    """Its other members stay: they are a provider's own (signatures), without which it may refuse the call."""
    read = json_splice.Object(call)
    if (function := read.value("function")) is None:
        return call
    told = msgspec.json.decode(json_splice.Object(function).value("arguments") or b'""')
    less = summarize_arguments(told if isinstance(told, str) else encode(told).decode())
    if less is None:
        return call
    return read.edit({"function": json_splice.edit(function, {"arguments": encode(encode(less).decode())})})
