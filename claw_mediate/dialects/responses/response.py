"""A provider's response of OpenAI Responses, and its items in the transcript.

docs/spec/responses.md has the rules.

A response's ``message`` is its array ``output``. Its items stay as the provider wrote them. Only
missing ids are added, and names and arguments changed that providers do not accept in a request;
items that must leave the transcript are left out.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_mediate.core import json_splice, tool_result
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
from claw_mediate.dialects.openai.response import is_object
from claw_mediate.dialects.openai.wire_types import Function, arguments_text
from claw_mediate.dialects.responses.anchors import answer_anchor
from claw_mediate.dialects.responses.echo import ECHOED, echo_changes
from claw_mediate.dialects.responses.failures import failed_response
from claw_mediate.dialects.responses.items import (
    CUSTOM,
    FUNCTION,
    IMAGE,
    Item,
    check_parts,
    has_answer,
    item_name,
    join_items,
    keep_items,
    kept_places,
    mint_item_id,
    output_text,
    read_item,
    split_items,
    write_answer,
)
from claw_mediate.dialects.responses.reasoning import (
    is_replayable,
    sign,
    without_reasoning,
)
from claw_state.continuity import Anchor

_FREE_TEXT = "free text"
_OUT_OF_TOKENS = "max_output_tokens"


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


_READ = frozenset((*_Response.__struct_fields__, *ECHOED))
_ITEM_MEMBERS = ("type", "id", "call_id", "name", "namespace", "arguments")
_ITEM_MARKS = json_splice.marks(_ITEM_MEMBERS)


_response_decoder = msgspec.json.Decoder(_Response)


def read_response(body: bytes, catalog: ToolCatalog) -> ModelResponse:
    """Return the view of a response.

    Raise ``UnreadableResponseError``, or ``FailedResponseError`` for one that failed.
    """
    try:
        json_splice.check_utf8(body)
        view = _response_decoder.decode(body)
        parsed = json_splice.Object(body, unique=_READ)
        sent_items = split_items(parsed.value("output") or b"[]")
        if len(sent_items) > MAX_PARTS:
            raise UnreadableResponseError(
                f"the provider's response holds more than {MAX_PARTS} items"
            )
        _check_items(sent_items, view.output)

        reason = _check_status(view)
        is_cut = reason == _OUT_OF_TOKENS
        items, calls = _read_calls(sent_items, view.output, catalog, body, is_cut=is_cut)

        pending_results: tuple[bytes, ...] = ()
        places: Sequence[int] = range(len(items))
        is_filtered = reason not in {"", _OUT_OF_TOKENS}
        if is_filtered:
            # Its calls may be half of what the model meant.
            pending_results = _answer_filtered(view.output, calls)
            places = _without_managed_calls(view.output, calls)
            items = [items[place] for place in places]
            calls = ()
    except json_splice.JsonSpliceError as error:
        raise UnreadableResponseError(f"the provider's response is ambiguous: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableResponseError(
            "the provider's response is not one of the Responses API"
        ) from error

    message = join_items(items)
    is_as_sent = items == sent_items
    if not is_as_sent:
        body = parsed.edit({"output": message})
    return ModelResponse(
        body,
        message,
        calls,
        view.usage or {},
        id=view.id if isinstance(view.id, str) else "",
        is_kept=view.store is True,
        pending_results=pending_results,
        places=tuple(places) if len(places) < len(sent_items) else None,
        parsed=parsed if is_as_sent else None,
    )


def _check_items(items: Sequence[bytes], views: Sequence[Item]) -> None:
    """Raise ``DecodeError`` or ``RepeatedMemberError`` for an item that can't be used."""
    for view in views:
        check_parts(view)

    for item in items:
        if not json_splice.stand_once(_ITEM_MARKS, item):
            json_splice.find_members(item, _ITEM_MEMBERS)


def _check_status(view: _Response) -> str:
    """Return the reason why a response is incomplete; "" for a complete one (section 5).

    Raise ``FailedResponseError``, or ``UnreadableResponseError`` for a status that we do not know.
    """
    match view.status:
        case None | "completed":
            return ""
        case "incomplete":
            reason = view.incomplete_details.reason if view.incomplete_details is not None else None
            return reason if isinstance(reason, str) and reason else "unknown"
        case "failed":
            raise failed_response(view.error)
        case status:
            raise UnreadableResponseError(
                f"the provider's response has the status {str(status)[:32]!r}"
            )


def _read_calls(
    raw: Sequence[bytes], views: Sequence[Item], catalog: ToolCatalog, body: bytes, *, is_cut: bool
) -> tuple[list[bytes], tuple[ToolCall, ...]]:
    """Return the items, each call with an id of its own, and the calls."""
    items = list(raw)
    places = [index for index, view in enumerate(views) if view.is_call]
    if not places:
        return items, ()

    ids = unique_ids((views[index].own_call_id for index in places), lambda: f"call{seed_of(body)}")
    calls: list[ToolCall] = []
    for index, call_id in zip(places, ids, strict=True):
        view = views[index]
        cut = view.status == "incomplete" or (is_cut and index == places[-1])
        calls.append(_make_call(view, call_id, catalog, cut=cut))

        if view.own_call_id != call_id:
            name = "id" if view.kind == "mcp_approval_request" else "call_id"
            items[index] = json_splice.edit(raw[index], {name: encode(call_id)})

    return items, tuple(calls)


def _make_call(view: Item, call_id: str, catalog: ToolCatalog, *, cut: bool) -> ToolCall:
    name = item_name(view)
    if view.kind == FUNCTION and isinstance(view.namespace, str) and view.namespace:
        return catalog.make_namespaced_call(call_id, view.namespace, name, _arguments(view))

    if view.kind == FUNCTION:
        return catalog.make_call(call_id, name, _arguments(view), cut=cut)

    if view.kind == CUSTOM:
        # Its input is free text, which only the runner can read. It must not be taken for the
        # arguments of a managed tool, and least of all for none.
        return catalog.make_call(call_id, name, _FREE_TEXT)

    return replace(catalog.make_native_call(call_id, view.kind), is_answerable=has_answer(view))


def _arguments(view: Item) -> str:
    return arguments_text(Function(arguments=view.arguments))


def _answer_filtered(views: Sequence[Item], calls: Sequence[ToolCall]) -> tuple[bytes, ...]:
    """Return the answers to the managed calls of a response that a filter ended."""
    reason = "the answer was filtered before it was complete."
    call_views = [view for view in views if view.is_call]
    return tuple(
        write_answer(view, tool_result.invalid_arguments(call, reason))
        for view, call in zip(call_views, calls, strict=True)
        if call.owner != "native"
    )


def _without_managed_calls(views: Sequence[Item], calls: Sequence[ToolCall]) -> Sequence[int]:
    """Return the places of the items that stay."""
    places = [index for index, view in enumerate(views) if view.is_call]
    native = {index for index, call in zip(places, calls, strict=True) if call.owner == "native"}
    return kept_places(views, native.__contains__)


def keep_calls(response: ModelResponse, catalog: ToolCatalog, count: int) -> ModelResponse:
    """Return a response with its first calls only (``Dialect.keep_calls``).

    A provider that keeps the others expects their answers with the next request.
    """
    items = split_items(response.message)
    views = [read_item(item) for item in items]
    places = [index for index, view in enumerate(views) if view.is_call]
    dropped = zip(places[count:], response.calls[count:], strict=True)
    answers = tuple(
        write_answer(views[index], tool_result.managed_tools_first(call))
        for index, call in dropped
        if call.is_answerable
    )

    output = join_items(items[: places[count]] if count < len(places) else items)
    body = json_splice.edit(response.body, {"output": output})
    kept = read_response(body, catalog)
    return replace(kept, pending_results=(*kept.pending_results, *answers))


def write_response(
    response: ModelResponse, request: RunnerRequest, usage: JsonObject, *, terminal: bool
) -> bytes:
    """Return the provider's bytes as the runner may see them (section 6).

    They repeat its own tools and choices, and have ``usage``.
    """
    body = response.parsed or json_splice.Object(response.body)

    changes: Changes = {**echo_changes(body.value, request)}
    if terminal:
        changes |= {"status": b'"completed"', "incomplete_details": b"null"}
    items = _delivered_items(response, terminal=terminal)
    if items != split_items(response.message):
        changes["output"] = join_items(items)
    if usage != response.usage:
        changes["usage"] = encode(usage)

    return body.edit(changes) if changes else response.body


def _delivered_items(response: ModelResponse, *, terminal: bool) -> list[bytes]:
    """Return the items that the runner gets, each with an id."""
    raw = split_items(response.message)
    return _with_ids(_terminal_items(raw) if terminal else raw, response.body)


def _terminal_items(raw: Sequence[bytes]) -> list[bytes]:
    """Return the items without calls, and with a text."""
    views = [read_item(item) for item in raw]
    items = keep_items(raw, views, lambda _: False)
    if output_text(map(read_item, items)).strip():
        return items

    others = [item for item in items if not read_item(item).is_message]
    content = [{"type": "output_text", "text": TERMINAL_TEXT, "annotations": []}]
    message = {"type": "message", "role": "assistant", "status": "completed", "content": content}
    return [*others, encode(message)]


def _with_ids(raw: Sequence[bytes], body: bytes) -> list[bytes]:
    """Return items that have an id each, because strict clients refuse one without."""
    items = list(raw)
    lacking: list[tuple[int, Item]] = []
    for index, item in enumerate(raw):
        view = read_item(item)
        if not isinstance(view.id, str) or not view.id:
            lacking.append((index, view))
    if not lacking:
        return items

    seed = seed_of(body)
    for index, view in lacking:
        item_id = mint_item_id(view.kind, seed, index)
        items[index] = json_splice.edit(raw[index], {"id": encode(item_id)})
    return items


def write_hidden_rounds(rounds: Sequence[Round], *, replayed: bool) -> tuple[bytes, ...]:
    """Return the items of rounds.

    Of each round they are the response's items, without those that leave the transcript, and the
    answers to its calls. A round without results has none.
    """
    items: list[bytes] = []

    for past in rounds:
        results = {
            result.call.id: result
            for result in past.results
            if not (replayed and result.code in tool_result.NOT_REINJECTED)
        }
        if not results:
            continue

        response = past.response
        if replayed:
            # An image is large, and the model has seen it: later turns do without.
            written = _round_items(response, results, dropped=IMAGE, is_known=False)
            items += sign(written, response.maker)
        else:
            items += _round_items(response, results, dropped="", is_known=response.is_kept)

    return tuple(items)


def write_answers(answered: Round) -> tuple[bytes, ...]:
    """Return the items that answer the calls of a round."""
    results = {result.call.id: result for result in answered.results}
    views = [read_item(item) for item in split_items(answered.response.message)]
    calls = [view for view in views if _is_answered(view, results)]
    return tuple(write_answer(view, results[view.own_call_id]) for view in calls)


def _is_answered(view: Item, results: Mapping[str, ToolResult]) -> bool:
    return view.is_call and view.own_call_id in results and has_answer(view)


def _round_items(
    response: ModelResponse, results: Mapping[str, ToolResult], *, dropped: str, is_known: bool
) -> Iterator[bytes]:
    """Yield the items of a round: those of its response, then the answers.

    ``dropped``: a type of items that leave. ``is_known``: the provider still has its reasoning.
    """
    raw = split_items(response.message)
    views = [read_item(item) for item in raw]
    answered = {
        index: results[view.own_call_id]
        for index, view in enumerate(views)
        if _is_answered(view, results)
    }

    for index, result in answered.items():
        raw[index] = _resendable(raw[index], result.call)
    transcript = keep_items(raw, views, answered.__contains__, dropped=dropped)
    if is_known or is_replayable(views):
        yield from transcript
    else:
        yield from without_reasoning(transcript)

    for index, result in answered.items():
        yield write_answer(views[index], result)


def _resendable(raw: bytes, call: ToolCall) -> bytes:
    """Return a call as providers accept it in a request.

    Its name is of plain characters, and its arguments are the JSON of an object.
    """
    view = read_item(raw)
    if view.kind != FUNCTION:
        return raw

    changes: Changes = {}
    if call.safe_name is not None:
        changes["name"] = encode(call.safe_name)
    if isinstance(call.arguments, UnreadableArguments) and not is_object(call.arguments.text):
        changes["arguments"] = encode(json.dumps({"invalid_json": call.arguments.text}))
    return json_splice.edit(raw, changes) if changes else raw


def response_anchor(response: ModelResponse, request: RunnerRequest, *, terminal: bool) -> Anchor:
    """Return the anchor of a response, by the items that the runner gets."""
    items = [read_item(item) for item in _delivered_items(response, terminal=terminal)]
    return answer_anchor(items, request.evidence.before)


def summarize(messages: bytes) -> bytes:
    """Return shorter hidden items: calls, and how each ended, and messages.

    Reasoning, long arguments and the data of results are left out.
    """
    items = without_reasoning(split_items(b"[%b]" % messages))
    return b",".join(_summarize_item(item) for item in items if read_item(item).is_in_summary)


def _summarize_item(item: bytes) -> bytes:
    view = read_item(item)
    if view.kind == FUNCTION:
        summary = summarize_arguments(_arguments(view))
        if summary is None:
            return item
        # Arguments are JSON in a string.
        return json_splice.edit(item, {"arguments": encode(encode(summary).decode())})

    if view.kind != "function_call_output":
        return item

    parsed = json_splice.Object(item)
    output = msgspec.json.decode(parsed.value("output") or b'""')
    # A result with images begins with its text (``write_answer``); the images are left out.
    text = output if isinstance(output, str) else output[0]["text"]
    return parsed.edit({"output": encode(summarize_result(text))})
