"""A provider's response of OpenAI chat completions, and its messages in the transcript."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice, tool_result
from claw_mediate.core.continuity import calls_key, text_key
from claw_mediate.core.reinjection import summarize_arguments, summarize_result
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import ModelResponse, Round, ToolCall, ToolResult, UnreadableArguments
from claw_mediate.dialects.base import (
    MAX_PARTS,
    TERMINAL_TEXT,
    RunnerRequest,
    UnreadableResponseError,
)
from claw_mediate.dialects.bodies import Changes, encode, seed_of, unique_ids
from claw_mediate.dialects.openai.functions import handoff_key, tool_call_as_function
from claw_mediate.dialects.openai.wire_types import (
    Function,
    WireCall,
    arguments_text,
    read_message,
    visible_text,
)
from claw_state.continuity import Anchor


def response_anchor(response: ModelResponse, request: RunnerRequest, *, terminal: bool) -> Anchor:
    """Return the anchor of a response: by its native calls, else by its text."""
    if terminal or not response.calls:
        text = visible_text(read_message.decode(response.message))
        if not text and terminal:
            text = TERMINAL_TEXT
        key = text_key(text)
    elif request.uses_functions:
        key = handoff_key(response.calls[0])
    else:
        key = calls_key(call.id for call in response.calls)

    return Anchor(key, request.evidence.before)


def error_body(body: bytes) -> bytes | None:
    """Return a provider's error body, ``{"error": …}``, in one line; None for any other body."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None

    if not isinstance(document, dict) or not document.get("error"):
        return None

    error = document.pop("error")
    return msgspec.json.encode({"error": error, **document})


class _Message(msgspec.Struct):
    tool_calls: list[WireCall] | None = None
    function_call: Function | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: Any = None


class _Response(msgspec.Struct):
    choices: list[_Choice]
    usage: dict[str, Any] | None = None


class _RawMessage(msgspec.Struct):
    tool_calls: list[msgspec.Raw] | None = None


class _RawChoice(msgspec.Struct):
    message: msgspec.Raw


class _RawResponse(msgspec.Struct):
    choices: list[_RawChoice]


_FREE_TEXT = "free text"
_READ_MEMBERS = json_splice.marks(
    (
        "choices",
        "usage",
        "message",
        "finish_reason",
        "role",
        "content",
        "tool_calls",
        "function_call",
    )
)
"""The members of a response that are read, except those of its calls."""
_CALL_MEMBERS = ("id", "function", "custom")
_CALL_MARKS = json_splice.marks(_CALL_MEMBERS)

_raw_response_decoder = msgspec.json.Decoder(_RawResponse)
_raw_message_decoder = msgspec.json.Decoder(_RawMessage)
_response_decoder = msgspec.json.Decoder(_Response)


def read_response(body: bytes, catalog: ToolCatalog) -> ModelResponse:
    """Return the view of a response.

    Only the first choice counts: requests for several are not mediated. Each of its calls is in
    ``tool_calls`` and has an id of its own. A missing id is written into the response, so that the
    transcript, the runner and the anchor have the same.

    Raises ``UnreadableResponseError``.
    """
    try:
        json_splice.check_utf8(body)
        view = _response_decoder.decode(body)
        if not view.choices:
            raise UnreadableResponseError("the provider's response has no choice")

        choice = view.choices[0]
        call_views = choice.message.tool_calls or []
        if len(call_views) > MAX_PARTS:
            raise UnreadableResponseError(
                f"the provider's response holds more than {MAX_PARTS} calls"
            )

        message = _find_message(body)
        if choice.message.function_call is not None and not call_views:
            # The old form is rewritten as a tool call, and that response is read.
            changes = _function_as_tool_call(message)
            return read_response(_edit_in_first_choice(body, changes), catalog)

        calls = _read_calls(call_views, catalog, body, cut=choice.finish_reason == "length")
        if any(view.id != call.id for view, call in zip(call_views, calls, strict=True)):
            message = _write_call_ids(message, calls)
            body = _edit_in_first_choice(body, {"message": message})
    except json_splice.JsonSpliceError as error:
        raise UnreadableResponseError(f"the provider's response is ambiguous: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableResponseError("the provider's response is not a chat completion") from error

    return ModelResponse(body, message, calls, view.usage or {})


def keep_calls(response: ModelResponse, catalog: ToolCatalog, count: int) -> ModelResponse:
    """Return a completion with its first calls only (``Dialect.keep_calls``)."""
    calls = json_splice.Object(response.message).value("tool_calls") or b"[]"
    kept = [calls[start:end] for start, end in json_splice.element_spans(calls)][:count]
    message = json_splice.edit(response.message, {"tool_calls": b"[%b]" % b",".join(kept)})

    body = _edit_in_first_choice(response.body, {"message": message})
    return read_response(body, catalog)


def write_response(
    response: ModelResponse, request: RunnerRequest, usage: JsonObject, *, terminal: bool
) -> bytes:
    """Return the provider's bytes with ``usage``, and with calls in the form that the runner uses.

    A terminal response has the model's text without its call.
    """
    body = response.body
    if terminal:
        body = edit_first_choice(body, partial(_without_terminal_call, response), alone=True)
    elif response.calls and request.uses_functions:
        body = edit_first_choice(body, tool_call_as_function)

    if usage == response.usage:
        return body
    return json_splice.edit(body, {"usage": encode(usage)})


def write_hidden_rounds(rounds: Sequence[Round], *, replayed: bool) -> tuple[bytes, ...]:
    """Return the messages of rounds.

    Of each round they are the assistant's message with the calls that were answered, and a tool
    message for each result. A round without results has none.
    """
    messages: list[bytes] = []

    for past in rounds:
        results = [
            result
            for result in past.results
            if not (replayed and result.code in tool_result.NOT_REINJECTED)
        ]
        if results:
            messages.append(_assistant_message(past.response, results))
            messages += map(_tool_message, results)

    return tuple(messages)


def write_answers(answered: Round) -> tuple[bytes, ...]:
    """Return the tool messages of a round."""
    return tuple(map(_tool_message, answered.results))


def _find_message(body: bytes) -> bytes:
    """Return the message of the first choice.

    Raises ``RepeatedMemberError`` for a member that is read or changed here.
    """
    if json_splice.stand_once(_READ_MEMBERS, body):
        # Nearly every response has each member once. It is decoded without a further search.
        message = bytes(_raw_response_decoder.decode(body).choices[0].message)
        for raw in _raw_message_decoder.decode(message).tool_calls or ():
            call = bytes(raw)
            if not json_splice.stand_once(_CALL_MARKS, call):
                json_splice.find_members(call, _CALL_MEMBERS)
        return message

    choices = json_splice.find_members(body, ("choices", "usage"))["choices"]
    choice_start, _ = json_splice.element_spans(body, choices.start)[0]
    found = json_splice.find_members(body, ("message", "finish_reason"), choice_start)["message"]
    members = json_splice.find_members(
        body, ("role", "content", "tool_calls", "function_call"), found.start
    )

    calls = members.get("tool_calls")
    if calls is not None and body[calls.start : calls.start + 1] == b"[":
        for call_start, _ in json_splice.element_spans(body, calls.start):
            json_splice.find_members(body, _CALL_MEMBERS, call_start)

    return body[found.start : found.end]


def _edit_in_first_choice(body: bytes, changes: Changes) -> bytes:
    """Return the response with these changes of its first choice."""
    return edit_first_choice(body, partial(json_splice.edit, changes=changes))


def edit_first_choice(body: bytes, edit: Callable[[bytes], bytes], *, alone: bool = False) -> bytes:
    """Return the response with its first choice edited; ``alone``: and with no other choice."""
    choices = json_splice.find_members(body, ["choices"])["choices"]
    start, end = json_splice.element_spans(body, choices.start)[0]
    choice = edit(body[start:end])

    if alone:
        return json_splice.splice(body, [(choices.start, choices.end, b"[%b]" % choice)])
    return json_splice.splice(body, [(start, end, choice)])


def _without_terminal_call(response: ModelResponse, choice: bytes) -> bytes:
    text = visible_text(read_message.decode(response.message)) or TERMINAL_TEXT
    message = json_splice.edit(response.message, {"tool_calls": None, "content": encode(text)})
    return json_splice.edit(choice, {"message": message, "finish_reason": b'"stop"'})


def _function_as_tool_call(message: bytes) -> Changes:
    """Return the changes of a choice whose message has a ``function_call``, as some still have.

    It gets a tool call instead.
    """
    function = json_splice.Object(message).value("function_call") or b"{}"
    calls = b'[{"type":"function","function":%b}]' % function
    return {"message": json_splice.edit(message, {"function_call": None, "tool_calls": calls})}


def _read_calls(
    views: Sequence[WireCall], catalog: ToolCatalog, body: bytes, *, cut: bool
) -> tuple[ToolCall, ...]:
    """Return the calls of a response. ``cut``: the model ran out of tokens within the last one."""
    ids = unique_ids((view.id for view in views), lambda: f"call{seed_of(body)}")
    return tuple(
        _read_call(view, call_id, catalog, cut=cut and view is views[-1])
        for view, call_id in zip(views, ids, strict=True)
    )


def _read_call(view: WireCall, call_id: str, catalog: ToolCatalog, *, cut: bool) -> ToolCall:
    if view.function is None:
        # The input of a custom call is free text, which only the runner can read. It must not be
        # taken for the arguments of a managed tool, and least of all for none.
        return catalog.make_call(call_id, view.custom.name if view.custom else "", _FREE_TEXT)
    return catalog.make_call(call_id, view.function.name, arguments_text(view.function), cut=cut)


def _write_call_ids(message: bytes, calls: Sequence[ToolCall]) -> bytes:
    """Return the message with the ids of its calls."""
    tool_calls = json_splice.find_members(message, ["tool_calls"])["tool_calls"]
    spans = json_splice.element_spans(message, tool_calls.start)

    cuts: list[json_splice.Cut] = []
    for call, (start, end) in zip(calls, spans, strict=True):
        raw = message[start:end]
        if msgspec.json.decode(raw, type=WireCall).id != call.id:
            cuts.append((start, end, json_splice.edit(raw, {"id": encode(call.id)})))

    return json_splice.splice(message, cuts)


def _assistant_message(response: ModelResponse, results: Sequence[ToolResult]) -> bytes:
    """Return the response's message with the calls that have a result, as providers accept it."""
    message = response.message
    answered = {result.call.id for result in results}
    if all(call.id in answered and not _resend_changes(call) for call in response.calls):
        return _with_role(message)

    tool_calls = json_splice.find_members(message, ["tool_calls"])["tool_calls"]
    spans = json_splice.element_spans(message, tool_calls.start)
    calls = [
        _resendable_call(message[start:end], call)
        for call, (start, end) in zip(response.calls, spans, strict=True)
        if call.id in answered
    ]
    array = b"[" + b",".join(calls) + b"]"
    return _with_role(json_splice.splice(message, [(tool_calls.start, tool_calls.end, array)]))


def _with_role(message: bytes) -> bytes:
    """Return a message with its role.

    Some providers leave it out, and none of them accepts a message without.
    """
    if read_message.decode(message).role == "assistant":
        return message
    return json_splice.edit(message, {"role": b'"assistant"'})


def _resendable_call(raw: bytes, call: ToolCall) -> bytes:
    """Return a call as providers accept it in a request.

    Its name is of plain characters, and its arguments are the JSON of an object.
    """
    changes = _resend_changes(call)
    view = msgspec.json.decode(raw, type=WireCall)
    is_custom = view.function is None and view.custom is not None
    if not changes or is_custom:
        return raw

    parsed = json_splice.Object(raw)
    function = parsed.value("function") if view.function is not None else None
    return parsed.edit({"function": json_splice.edit(function or b"{}", changes)})


def _resend_changes(call: ToolCall) -> Changes:
    """Return the changes of a call's function for ``_resendable_call``."""
    changes: Changes = {}
    if call.safe_name is not None:
        changes["name"] = encode(call.safe_name)

    # OpenAI accepts any arguments that it gave. Others parse them, and would refuse this
    # conversation in every later request.
    if isinstance(call.arguments, UnreadableArguments) and not is_object(call.arguments.text):
        changes["arguments"] = encode(json.dumps({"invalid_json": call.arguments.text}))
    return changes


def is_object(text: str) -> bool:
    """Return True if a text is the JSON of an object."""
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


def _tool_message(result: ToolResult) -> bytes:
    message = {"role": "tool", "tool_call_id": result.call.id, "content": result.content.decode()}
    return encode(message)


def summarize(messages: bytes) -> bytes:
    """Return shorter hidden messages: their calls, and how each ended.

    Texts, thoughts, long arguments and the data of results are left out.
    """
    array = b"[%b]" % messages
    spans = json_splice.element_spans(array)
    return b",".join(_summarize_message(array[start:end]) for start, end in spans)


def _summarize_message(message: bytes) -> bytes:
    parsed = json_splice.Object(message)
    calls = parsed.value("tool_calls")
    if calls is None:
        content = msgspec.json.decode(parsed.value("content") or b'""', type=str)
        return parsed.edit({"content": encode(summarize_result(content))})

    spans = json_splice.element_spans(calls)
    short_calls = b",".join(_summarize_call(calls[start:end]) for start, end in spans)
    return b'{"role":"assistant","content":null,"tool_calls":[%b]}' % short_calls


def _summarize_call(call: bytes) -> bytes:
    """Return a call with summarized arguments.

    Its other members stay: a provider may need its own (signatures).
    """
    parsed = json_splice.Object(call)
    function = parsed.value("function")
    if function is None:
        return call

    arguments = msgspec.json.decode(json_splice.Object(function).value("arguments") or b'""')
    text = arguments if isinstance(arguments, str) else encode(arguments).decode()
    summary = summarize_arguments(text)
    if summary is None:
        return call

    # Arguments are JSON in a string.
    short = encode(encode(summary).decode())
    return parsed.edit({"function": json_splice.edit(function, {"arguments": short})})
