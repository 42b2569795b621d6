"""OpenAI chat completions: ``POST …/chat/completions``.

The dialect; ``request`` reads the runner's side.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice, tool_result
from claw_mediate.core.continuity import calls_key, text_key
from claw_mediate.core.reinjection import summarize_arguments, summarize_result
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import ModelResponse, Round, ToolCall, ToolResult, UnreadableArguments
from claw_mediate.dialects import sse
from claw_mediate.dialects.base import (
    MAX_PARTS,
    TERMINAL_TEXT,
    Keepalive,
    ProviderRequest,
    ReplayRules,
    RunnerRequest,
    StreamOpening,
    UnreadableResponseError,
)
from claw_mediate.dialects.bodies import Changes, encode, unique_ids
from claw_mediate.dialects.openai import request as openai_request
from claw_mediate.dialects.openai import stream as openai_stream
from claw_mediate.dialects.openai.functions import handoff_key, tool_call_as_function
from claw_mediate.dialects.openai.wire_types import (
    Function,
    WireCall,
    arguments_text,
    read_message,
    visible_text,
)
from claw_state.continuity import Anchor

NAME: Final = "openai-chat"
TRANSCRIPT: Final = "messages"
REPLAY_RULES: Final = ReplayRules()
MAX_TOOLS: Final = 128  # OpenAI's limit of tools in one request
ID_PREFIX: Final = "chatcmpl"
ANSWER_SHAPE: Final = None

read_request = openai_request.read_request
build_request = openai_request.build_request
add_context = openai_request.add_context
stream = openai_stream.stream


def write_request(request: ProviderRequest, hidden: Sequence[bytes]) -> bytes:
    return request.with_messages(hidden)


def response_anchor(response: ModelResponse, request: RunnerRequest, *, terminal: bool) -> Anchor:
    """Return the anchor: by the native calls' ids where there are any, else by the text."""
    if terminal or not response.calls:
        text = visible_text(read_message.decode(response.message)) or TERMINAL_TEXT * terminal
        return Anchor(text_key(text), request.evidence.before)
    key = (
        handoff_key(response.calls[0])
        if request.uses_functions
        else calls_key(call.id for call in response.calls)
    )
    return Anchor(key, request.evidence.before)


def keepalive(note: str, kind: Keepalive, opening: StreamOpening) -> bytes:
    """Return a comment, which every SDK skips; native: a chunk whose delta is empty."""
    return sse.comment(note) if kind == "comment" else openai_stream.empty_chunk(opening)


def stream_error(error: bytes, opening: StreamOpening | None = None) -> bytes:
    del opening
    return sse.event(error) + sse.DONE


def error_body(body: bytes) -> bytes | None:
    """Return ``{"error": …}`` in one line, or None."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if not isinstance(document, dict) or not document.get("error"):
        return None
    return msgspec.json.encode({"error": document.pop("error"), **document})


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
"""The members that are read, but for those of calls."""
_CALL_MEMBERS = ("id", "function", "custom")
_CALL_MARKS = json_splice.marks(_CALL_MEMBERS)
_raw_response, _raw_message = msgspec.json.Decoder(_RawResponse), msgspec.json.Decoder(_RawMessage)
_response_decoder = msgspec.json.Decoder(_Response)


def read_response(body: bytes, catalog: ToolCatalog) -> ModelResponse:
    """Return the view of a response; the first choice counts (requests for several
    are not mediated).

    Its calls are in ``tool_calls``, each with an id of its own: a missing one is written into the
    response, so that the transcript, the runner and the anchor have the same. Raises
    ``UnreadableResponseError``.
    """
    try:
        json_splice.check_utf8(body)
        view = _response_decoder.decode(body)
        if not view.choices:
            raise UnreadableResponseError("the provider's response has no choice")
        first = view.choices[0]
        if len(first.message.tool_calls or ()) > MAX_PARTS:
            raise UnreadableResponseError(
                f"the provider's response holds more than {MAX_PARTS} calls"
            )
        message = _find_message(body)
        if first.message.function_call is not None and not first.message.tool_calls:
            changes = _functions_as_tool_calls(message)
            return read_response(
                _edit_first_choice(body, partial(json_splice.edit, changes=changes)), catalog
            )
        seed = hashlib.sha256(body).hexdigest()[:16]
        calls = _read_calls(
            first.message.tool_calls or [], catalog, seed, cut=first.finish_reason == "length"
        )
        is_named = all(
            view.id == call.id
            for view, call in zip(first.message.tool_calls or (), calls, strict=True)
        )
        named = message if is_named else _write_call_ids(message, calls)
        if named != message:
            body = _edit_first_choice(body, partial(json_splice.edit, changes={"message": named}))
    except json_splice.JsonSpliceError as error:
        raise UnreadableResponseError(f"the provider's response is ambiguous: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableResponseError("the provider's response is not a chat completion") from error
    return ModelResponse(body, named, calls, view.usage or {})


def write_response(
    response: ModelResponse, request: RunnerRequest, usage: JsonObject, *, terminal: bool
) -> bytes:
    """Return the provider's bytes with ``usage``.

    A terminal response has the model's words without its call.
    """
    # Calls are handed over in the form that the runner uses.
    body = response.body
    if terminal:
        body = _edit_first_choice(body, partial(_without_terminal_call, response), alone=True)
    elif response.calls and request.uses_functions:
        body = _edit_first_choice(body, tool_call_as_function)
    return body if usage == response.usage else json_splice.edit(body, {"usage": encode(usage)})


def write_hidden_rounds(rounds: Sequence[Round], *, replayed: bool) -> tuple[bytes, ...]:
    """Return, for each round, the assistant's message with the calls that were answered, and a tool
    message for each result.
    """
    messages: list[bytes] = []
    for past in rounds:
        kept = [
            result
            for result in past.results
            if not (replayed and result.code in tool_result.NOT_REINJECTED)
        ]
        if kept:
            messages += [_assistant_message(past.response, kept), *map(_tool_message, kept)]
    return tuple(messages)


def write_answers(answered: Round) -> tuple[bytes, ...]:
    return tuple(map(_tool_message, answered.results))


def _find_message(body: bytes) -> bytes:
    """Return the first choice's message.

    Raises ``RepeatedMemberError`` for a member that is read or changed here.
    """
    if json_splice.stand_once(_READ_MEMBERS, body):
        only = bytes(_raw_response.decode(body).choices[0].message)
        for raw in _raw_message.decode(only).tool_calls or ():
            if not json_splice.stand_once(_CALL_MARKS, made := bytes(raw)):
                json_splice.find_members(made, _CALL_MEMBERS)
        return only
    choices = json_splice.find_members(body, ("choices", "usage"))["choices"]
    first, _ = json_splice.element_spans(body, choices.start)[0]
    message = json_splice.find_members(body, ("message", "finish_reason"), first)["message"]
    members = json_splice.find_members(
        body, ("role", "content", "tool_calls", "function_call"), message.start
    )
    calls = members.get("tool_calls")
    if calls is not None and body[calls.start : calls.start + 1] == b"[":
        for call, _ in json_splice.element_spans(body, calls.start):
            json_splice.find_members(body, _CALL_MEMBERS, call)
    return body[message.start : message.end]


def _edit_first_choice(
    body: bytes, edit: Callable[[bytes], bytes], *, alone: bool = False
) -> bytes:
    """Return the response with its first choice edited; ``alone``: and with no other choice."""
    choices = json_splice.find_members(body, ["choices"])["choices"]
    start, end = json_splice.element_spans(body, choices.start)[0]
    choice = edit(body[start:end])
    return json_splice.splice(
        body, [(choices.start, choices.end, b"[%b]" % choice) if alone else (start, end, choice)]
    )


def _without_terminal_call(response: ModelResponse, choice: bytes) -> bytes:
    text = encode(visible_text(read_message.decode(response.message)) or TERMINAL_TEXT)
    message = json_splice.edit(response.message, {"tool_calls": None, "content": text})
    return json_splice.edit(choice, {"message": message, "finish_reason": b'"stop"'})


def _functions_as_tool_calls(message: bytes) -> Changes:
    """Return the changes from a message with a ``function_call``, which a provider may still give,
    to one with tool calls.
    """
    call = b'[{"type":"function","function":%b}]' % (
        json_splice.Object(message).value("function_call") or b"{}"
    )
    return {"message": json_splice.edit(message, {"function_call": None, "tool_calls": call})}


def _read_calls(
    views: Sequence[WireCall], catalog: ToolCatalog, seed: str, *, cut: bool
) -> tuple[ToolCall, ...]:
    ids = unique_ids((view.id for view in views), f"call{seed}")
    pairs = zip(views, ids, strict=True)
    return tuple(
        _read_call(view, call_id, catalog, cut=cut and view is views[-1]) for view, call_id in pairs
    )


def _read_call(view: WireCall, call_id: str, catalog: ToolCatalog, *, cut: bool) -> ToolCall:
    if view.function is None:
        # A custom call's input is free text: the runner's to read. No managed tool takes it, least
        # of all for ``{}``.
        return catalog.make_call(call_id, view.custom.name if view.custom else "", _FREE_TEXT)
    return catalog.make_call(call_id, view.function.name, arguments_text(view.function), cut=cut)


def _write_call_ids(message: bytes, calls: Sequence[ToolCall]) -> bytes:
    own = json_splice.find_members(message, ["tool_calls"])["tool_calls"]
    cuts = [
        (start, end, json_splice.edit(message[start:end], {"id": encode(call.id)}))
        for call, (start, end) in zip(
            calls, json_splice.element_spans(message, own.start), strict=True
        )
        if msgspec.json.decode(message[start:end], type=WireCall).id != call.id
    ]
    return json_splice.splice(message, cuts)


def _assistant_message(response: ModelResponse, kept: Sequence[ToolResult]) -> bytes:
    ids = {result.call.id for result in kept}
    if all(call.id in ids and not _resend_changes(call) for call in response.calls):
        return _with_role(response.message)
    own = json_splice.find_members(response.message, ["tool_calls"])["tool_calls"]
    places = zip(
        response.calls, json_splice.element_spans(response.message, own.start), strict=True
    )
    calls = [
        _resendable_call(response.message[start:end], call)
        for call, (start, end) in places
        if call.id in ids
    ]
    return _with_role(
        json_splice.splice(response.message, [(own.start, own.end, b"[" + b",".join(calls) + b"]")])
    )


def _with_role(message: bytes) -> bytes:
    """Return a message with its role: providers may leave it out, and none of them
    takes a message without.
    """
    has_role = read_message.decode(message).role == "assistant"
    return message if has_role else json_splice.edit(message, {"role": b'"assistant"'})


def _resendable_call(raw: bytes, call: ToolCall) -> bytes:
    """Return a call as providers take it back: with a name of plain characters, and
    arguments that are an object's JSON.
    """
    changes = _resend_changes(call)
    view = msgspec.json.decode(raw, type=WireCall)
    if not changes or (view.function is None and view.custom is not None):
        return raw
    parsed = json_splice.Object(raw)
    function = parsed.value("function") if view.function is not None else None
    return parsed.edit({"function": json_splice.edit(function or b"{}", changes)})


def _resend_changes(call: ToolCall) -> Changes:
    # OpenAI takes any arguments that it gave; others parse them, and refuse the conversation for
    # good.
    changes: Changes = {} if call.safe_name is None else {"name": encode(call.safe_name)}
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
    """Return hidden messages with their calls and how each went, without what was
    said, thought, sent and answered.
    """
    array = b"[%b]" % messages
    return b",".join(
        _summarize_message(array[start:end]) for start, end in json_splice.element_spans(array)
    )


def _summarize_message(message: bytes) -> bytes:
    parsed = json_splice.Object(message)
    if (calls := parsed.value("tool_calls")) is None:
        content = msgspec.json.decode(parsed.value("content") or b'""', type=str)
        return parsed.edit({"content": encode(summarize_result(content))})
    short = b",".join(
        _summarize_call(calls[start:end]) for start, end in json_splice.element_spans(calls)
    )
    return b'{"role":"assistant","content":null,"tool_calls":[%b]}' % short


def _summarize_call(call: bytes) -> bytes:
    """Return a call with summarized arguments.

    Its other members stay: a provider may need its own (signatures).
    """
    parsed = json_splice.Object(call)
    if (function := parsed.value("function")) is None:
        return call
    arguments = msgspec.json.decode(json_splice.Object(function).value("arguments") or b'""')
    summary = summarize_arguments(
        arguments if isinstance(arguments, str) else encode(arguments).decode()
    )
    if summary is None:
        return call
    return parsed.edit(
        {"function": json_splice.edit(function, {"arguments": encode(encode(summary).decode())})}
    )
