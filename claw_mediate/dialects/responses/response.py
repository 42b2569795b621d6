"""OpenAI Responses: ``POST …/responses``.

The dialect; ``request`` reads the runner's side (docs/spec/responses.md).

A response's ``message`` is its array ``output``. Its items stay as the provider wrote them: changed
are only ids that are missing, and names and arguments that providers do not take back; items that
must leave the transcript are left out.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice, tool_result
from claw_mediate.core.json_outline import MAX_WHOLE_BYTES
from claw_mediate.core.object_ids import RESPONSE_SHAPE
from claw_mediate.core.reinjection import summarize_arguments, summarize_result
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import ModelResponse, Round, ToolCall, ToolResult, UnreadableArguments
from claw_mediate.dialects.base import (
    MAX_PARTS,
    TERMINAL_TEXT,
    FailedResponseError,
    ProviderRequest,
    RunnerRequest,
    UnreadableResponseError,
)
from claw_mediate.dialects.bodies import Changes, encode, unique_ids
from claw_mediate.dialects.openai import chat
from claw_mediate.dialects.openai.wire_types import Function, arguments_text
from claw_mediate.dialects.responses import request as responses_request
from claw_mediate.dialects.responses import stream as responses_stream
from claw_mediate.dialects.responses.anchors import answer_anchor
from claw_mediate.dialects.responses.items import (
    CUSTOM,
    FUNCTION,
    IMAGE,
    REASONING,
    TOLD,
    Item,
    check_parts,
    has_answer,
    item_name,
    join_items,
    keep_items,
    output_text,
    read_item,
    split_items,
    tool_name,
    write_answer,
)
from claw_mediate.dialects.responses.reasoning import (
    ReasoningRules,
    is_replayable,
    sign,
    without_reasoning,
)
from claw_state.continuity import Anchor

NAME: Final = "openai-responses"
TRANSCRIPT: Final = "input"
ID_PREFIX: Final = responses_stream.ID_PREFIX
ANSWER_SHAPE: Final = RESPONSE_SHAPE
MAX_TOOLS: Final = 128  # The limit of chat completions; OpenAI names none for this protocol
REPLAY_RULES: Final = ReasoningRules()

read_request = responses_request.read_request
build_request = responses_request.build_request
add_context = responses_request.add_context
stream = responses_stream.stream
keepalive = responses_stream.keepalive
stream_error = responses_stream.stream_error
error_body = chat.error_body

_FREE_TEXT = "free text"
_CUT = "max_output_tokens"
_FAILED_STATUS = {"rate_limit_exceeded": 429, "insufficient_quota": 402, "server_error": 502}
_OF_THE_REQUEST = ("invalid", "context", "image", "policy")
"""Words of the API's other error codes, which the request is to blame for."""
_ECHOED = ("tools", "tool_choice", "instructions", "input", "previous_response_id", *TOLD)


class _Reason(msgspec.Struct):
    reason: Any = None


class _Response(msgspec.Struct):
    output: list[Item]
    id: Any = None
    status: Any = None
    store: Any = None
    incomplete_details: _Reason | None = None
    error: Any = None
    usage: dict[str, Any] | None = None


_READ = frozenset((*_Response.__struct_fields__, *_ECHOED))
_ITEM_MEMBERS = ("type", "id", "call_id", "name", "namespace", "arguments")
_ITEM_MARKS = json_splice.marks(_ITEM_MEMBERS)


class _EchoedMembers(msgspec.Struct):
    """The members of a request that its response repeats, with the API's defaults."""

    tool_choice: msgspec.Raw = msgspec.Raw(b'"auto"')
    instructions: msgspec.Raw = msgspec.Raw(b"null")
    input: msgspec.Raw = msgspec.Raw(b"null")


_echoed_decoder = msgspec.json.Decoder(_EchoedMembers)
_NOT_ASKED = _EchoedMembers()
_response_decoder = msgspec.json.Decoder(_Response)


def write_request(request: ProviderRequest, hidden: Sequence[bytes]) -> bytes:
    return request.with_messages(hidden) if hidden else request.body


def read_response(body: bytes, catalog: ToolCatalog) -> ModelResponse:
    """Return the view of a response.

    Raise ``UnreadableResponseError``, or ``FailedResponseError`` for one that failed.
    """
    try:
        json_splice.check_utf8(body)
        view = _response_decoder.decode(body)
        parsed = json_splice.Object(body, unique=_READ)
        raw = items = split_items(parsed.value("output") or b"[]")
        if len(raw) > MAX_PARTS:
            raise UnreadableResponseError(
                f"the provider's response holds more than {MAX_PARTS} items"
            )
        for each in view.output:
            check_parts(each)
        for item in items:
            if not json_splice.stand_once(_ITEM_MARKS, item):
                json_splice.find_members(item, _ITEM_MEMBERS)
        reason = _check_status(view)
        raw, calls = _read_calls(raw, view.output, catalog, body, is_cut=reason == _CUT)
        pending_results: tuple[bytes, ...] = ()
        if reason not in {"", _CUT}:  # Its calls may be half of what the model meant
            pending_results = _answer_filtered(view.output, calls)
            raw, calls = _without_managed_calls(raw, view.output, calls), ()
    except json_splice.JsonSpliceError as error:
        raise UnreadableResponseError(f"the provider's response is ambiguous: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableResponseError(
            "the provider's response is not one of the Responses API"
        ) from error
    message = join_items(raw)
    found: json_splice.Object | None = parsed
    if raw != items:
        body, found = parsed.edit({"output": message}), None
    response_id = view.id if isinstance(view.id, str) else ""
    return ModelResponse(
        body,
        message,
        calls,
        usage=view.usage or {},
        id=response_id,
        is_kept=view.store is True,
        pending_results=pending_results,
        parsed=found,
    )


def _check_status(view: _Response) -> str:
    """Return why a response is incomplete; "" for a complete one (section 5)."""
    match view.status:
        case None | "completed":
            return ""
        case "incomplete":
            reason = view.incomplete_details.reason if view.incomplete_details is not None else None
            return reason if isinstance(reason, str) and reason else "unknown"
        case "failed":
            raise _failure(view.error)
        case status:
            raise UnreadableResponseError(
                f"the provider's response has the status {str(status)[:32]!r}"
            )


def _failure(error: Any) -> FailedResponseError:
    details = error if isinstance(error, dict) else {}
    code, message = (
        str(details.get("code") or "server_error"),
        str(details.get("message") or "the provider failed"),
    )
    shown = {"message": message, "type": "api_error", "param": None, "code": code}
    status = _FAILED_STATUS.get(code, 400 if any(word in code for word in _OF_THE_REQUEST) else 502)
    return FailedResponseError(status, encode({"error": shown}))


def _read_calls(
    raw: Sequence[bytes], views: Sequence[Item], catalog: ToolCatalog, body: bytes, *, is_cut: bool
) -> tuple[list[bytes], tuple[ToolCall, ...]]:
    """Return the items, each call with an id of its own, and the calls."""
    places = [index for index, view in enumerate(views) if view.is_call]
    if not places:
        return [*raw], ()
    ids = unique_ids((views[index].own_call_id for index in places), f"call{_seed(body)}")
    named, calls = list(raw), []
    for index, call_id in zip(places, ids, strict=True):
        view = views[index]
        cut = view.status == "incomplete" or (is_cut and index == places[-1])
        calls.append(_make_call(view, call_id, catalog, cut=cut))
        if view.own_call_id != call_id:
            name = "id" if view.kind == "mcp_approval_request" else "call_id"
            named[index] = json_splice.edit(raw[index], {name: encode(call_id)})
    return named, tuple(calls)


def _make_call(view: Item, call_id: str, catalog: ToolCatalog, *, cut: bool) -> ToolCall:
    name = item_name(view)
    if view.kind == FUNCTION and isinstance(view.namespace, str) and view.namespace:
        return catalog.make_namespaced_call(call_id, view.namespace, name, _arguments(view))
    if view.kind == FUNCTION:
        return catalog.make_call(call_id, name, _arguments(view), cut=cut)
    if view.kind == CUSTOM:
        # Its input is free text: the runner's to read. No managed tool takes it, least of all for
        # ``{}``.
        return catalog.make_call(call_id, name, _FREE_TEXT)
    return replace(catalog.make_native_call(call_id, view.kind), is_answerable=has_answer(view))


def _arguments(view: Item) -> str:
    return arguments_text(Function(arguments=view.arguments))


def _answer_filtered(views: Sequence[Item], calls: Sequence[ToolCall]) -> tuple[bytes, ...]:
    """Return the answers to the managed calls of a response that a filter ended."""
    made = zip((view for view in views if view.is_call), calls, strict=True)
    reason = "the answer was filtered before it was complete."
    return tuple(
        write_answer(view, tool_result.invalid_arguments(call, reason))
        for view, call in made
        if call.owner != "native"
    )


def _without_managed_calls(
    raw: Sequence[bytes], views: Sequence[Item], calls: Sequence[ToolCall]
) -> list[bytes]:
    owners = iter(calls)
    native = {
        index for index, view in enumerate(views) if view.is_call and next(owners).owner == "native"
    }
    return keep_items(raw, views, native.__contains__)


def write_response(
    response: ModelResponse, request: RunnerRequest, usage: JsonObject, *, terminal: bool
) -> bytes:
    """Return the provider's bytes as the runner may see them (section 6): its own
    tools and choices, and ``usage``.
    """
    body = response.parsed or json_splice.Object(response.body)
    changes: Changes = _echo(body, request)
    named = _delivered_items(response, terminal=terminal)
    if terminal:
        changes |= {"status": b'"completed"', "incomplete_details": b"null"}
    if named != split_items(response.message):
        changes["output"] = join_items(named)
    if usage != response.usage:
        changes["usage"] = encode(usage)
    return body.edit(changes) if changes else response.body


def _delivered_items(response: ModelResponse, *, terminal: bool) -> list[bytes]:
    """Return the items that the runner gets, each with an id."""
    raw = split_items(response.message)
    return _with_ids(_terminal_items(raw) if terminal else raw, response.body)


def _echo(body: json_splice.Object, request: RunnerRequest) -> Changes:
    """Return the changes that make the response repeat the runner's request, and not ours."""
    changes: Changes = {}
    tools = body.value("tools")
    if tools is not None and tools[:1] == b"[":
        declared = frozenset(("", *request.declared_tools))  # Tools of other types have no name
        changes["tools"] = join_items(
            tool for tool in split_items(tools) if tool_name(tool) in declared
        )
    if echoed := [
        name for name in _EchoedMembers.__struct_fields__ if body.value(name) is not None
    ]:
        changes |= _asked_members(request.body, echoed)
    changes |= {name: b"null" for name in TOLD if body.value(name) is not None}
    if body.value("previous_response_id") is not None:
        named = request.kept.previous_response if request.kept is not None else ""
        changes["previous_response_id"] = encode(named or None)
    return {name: value for name, value in changes.items() if value != body.value(name)}


def _asked_members(body: bytes, names: Sequence[str]) -> dict[str, bytes]:
    if len(body) <= MAX_WHOLE_BYTES:
        asked = _echoed_decoder.decode(body)
        return {name: bytes(getattr(asked, name)) for name in names}
    parsed = json_splice.Object(body)
    return {name: parsed.value(name) or bytes(getattr(_NOT_ASKED, name)) for name in names}


def _terminal_items(raw: Sequence[bytes]) -> list[bytes]:
    views = [read_item(item) for item in raw]
    words = keep_items(raw, views, lambda _: False)
    if output_text(map(read_item, words)).strip():
        return words
    content = [{"type": "output_text", "text": TERMINAL_TEXT, "annotations": []}]
    done = {"type": "message", "role": "assistant", "status": "completed", "content": content}
    return [*(item for item in words if not read_item(item).is_message), encode(done)]


def _with_ids(raw: Sequence[bytes], body: bytes) -> list[bytes]:
    """Return items that have an id each, since strict clients refuse one without."""
    views = [read_item(item) for item in raw]
    if all(isinstance(view.id, str) and view.id for view in views):
        return [*raw]
    prefix, seed = {FUNCTION: "fc", "message": "msg", REASONING: "rs"}, _seed(body)
    return [
        item
        if isinstance(view.id, str) and view.id
        else json_splice.edit(item, {"id": encode(f"{prefix.get(view.kind, 'item')}{seed}{index}")})
        for index, (item, view) in enumerate(zip(raw, views, strict=True))
    ]


def _seed(body: bytes) -> str:
    """Return what the ids that a response lacks are made of."""
    return hashlib.sha256(body).hexdigest()[:16]


def write_hidden_rounds(rounds: Sequence[Round], *, replayed: bool) -> tuple[bytes, ...]:
    """Return, for each round, the response's items without those that leave the
    transcript, and the answers to its calls.
    """
    items: list[bytes] = []
    for past in rounds:
        kept = {
            result.call.id: result
            for result in past.results
            if not (replayed and result.code in tool_result.NOT_REINJECTED)
        }
        if kept:
            # An image is large, and the model has seen it: later turns do without.
            written = _round_items(
                past.response,
                kept,
                IMAGE if replayed else "",
                is_known=past.response.is_kept and not replayed,
            )
            items += sign(written, past.response.maker) if replayed else written
    return tuple(items)


def write_answers(answered: Round) -> tuple[bytes, ...]:
    given = {result.call.id: result for result in answered.results}
    views = map(read_item, split_items(answered.response.message))
    calls = [
        view for view in views if view.is_call and view.own_call_id in given and has_answer(view)
    ]
    return tuple(write_answer(view, given[view.own_call_id]) for view in calls)


def _round_items(
    response: ModelResponse, kept: dict[str, ToolResult], dropped: str, *, is_known: bool
) -> Iterator[bytes]:
    raw = split_items(response.message)
    views = [read_item(item) for item in raw]
    answered = {
        index: kept[view.own_call_id]
        for index, view in enumerate(views)
        if view.is_call and view.own_call_id in kept and has_answer(view)
    }
    sent = [
        _resendable(item, answered[index].call) if index in answered else item
        for index, item in enumerate(raw)
    ]
    transcript = keep_items(sent, views, answered.__contains__, dropped=dropped)
    yield from transcript if is_known or is_replayable(views) else without_reasoning(transcript)
    for index, result in answered.items():
        yield write_answer(views[index], result)


def _resendable(raw: bytes, call: ToolCall) -> bytes:
    """Return a call as providers take it back: with a name of plain characters, and
    arguments that are an object's JSON.
    """
    view = read_item(raw)
    if view.kind != FUNCTION:
        return raw
    changes: Changes = {} if call.safe_name is None else {"name": encode(call.safe_name)}
    if isinstance(call.arguments, UnreadableArguments) and not chat.is_object(call.arguments.text):
        changes["arguments"] = encode(json.dumps({"invalid_json": call.arguments.text}))
    return json_splice.edit(raw, changes) if changes else raw


def response_anchor(response: ModelResponse, request: RunnerRequest, *, terminal: bool) -> Anchor:
    return answer_anchor(
        [read_item(item) for item in _delivered_items(response, terminal=terminal)],
        request.evidence.before,
    )


def summarize(messages: bytes) -> bytes:
    """Return hidden items with their calls and how each went, without what was sent
    and answered.
    """
    items = without_reasoning(split_items(b"[%b]" % messages))
    return b",".join(_summarize_item(item) for item in items if read_item(item).is_in_summary)


def _summarize_item(item: bytes) -> bytes:
    view = read_item(item)
    if view.kind == FUNCTION:
        summary = summarize_arguments(_arguments(view))
        return (
            item
            if summary is None
            else json_splice.edit(item, {"arguments": encode(encode(summary).decode())})
        )
    if view.kind != "function_call_output":
        return item
    parsed = json_splice.Object(item)
    output = msgspec.json.decode(parsed.value("output") or b'""')
    text = output if isinstance(output, str) else output[0]["text"]  # its images are left out
    return parsed.edit({"output": encode(summarize_result(text))})
