"""Responses and items that a provider keeps, as the runner may read them.

docs/spec/responses.md section 10. A kept response repeats the request that the provider got:
managed tools are taken out of it. Its items are those of that request and of everything before it:
hidden ones are taken out. Pages are of what is left.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from claw_contract.whole_numbers import whole_number
from claw_mediate.core import json_splice
from claw_mediate.dialects.base import UnreadableRequestError, UnreadableResponseError
from claw_mediate.dialects.bodies import Changes, encode
from claw_mediate.dialects.kept import PAGE_SIZE, Concealment, ShownEcho
from claw_mediate.dialects.responses.items import (
    CUSTOM,
    FUNCTION,
    REASONING,
    TOLD,
    Item,
    item_name,
    join_items,
    read_item,
    split_items,
    tool_name,
)

_DEFAULT_SIZE = 20
type _Outcome = Literal["none", "hidden", "shown"]
"""The calls and messages that reasoning led to: none, only hidden ones, or one that is shown."""


class _Answer(msgspec.Struct):
    """The members by which the items that answer a call name it, each its own one."""

    call_id: Any = None
    id: Any = None
    approval_request_id: Any = None


class _Page(msgspec.Struct):
    data: list[msgspec.Raw]
    has_more: Any = None
    last_id: Any = None


_answer_decoder = msgspec.json.Decoder(_Answer)
_page_decoder = msgspec.json.Decoder(_Page)
_text_decoder = msgspec.json.Decoder(str)
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def ids_in(items: bytes) -> frozenset[str]:
    """Return the ids of items (JSON, comma separated) and of the calls that they make or answer."""
    found: set[str] = set()

    for raw in split_items(b"[%b]" % items):
        view = read_item(raw)
        ids = (view.id, view.own_call_id, _answered_call(raw, view))
        # A provider may give anything.
        found.update(each for each in ids if isinstance(each, str) and each)

    return frozenset(found)


def ids_of_output(body: bytes) -> frozenset[str]:
    """Return the ids of a response's items."""
    output = json_splice.Object(body).value("output")
    return frozenset() if output is None else ids_in(output[1:-1])


def show_response(body: bytes, echo: ShownEcho, concealment: Concealment) -> bytes:
    """Return a kept response as its runner may read it.

    Raise ``UnreadableResponseError`` for anything else.
    """
    try:
        json_splice.check_utf8(body)
        _object_decoder.decode(body)
        document = json_splice.Object(body)
        changes = _echo_changes(document, echo) | _concealing_changes(document, concealment)
        changed = {name: value for name, value in changes.items() if value != document.value(name)}
        return document.edit(changed) if changed else body
    except (
        msgspec.DecodeError,
        RecursionError,
        UnicodeDecodeError,
        json_splice.JsonSpliceError,
    ) as error:
        raise UnreadableResponseError("the provider's answer is not one response") from error


def _echo_changes(document: json_splice.Object, echo: ShownEcho) -> Changes:
    """Return the changes that make a response repeat the runner's request, and not ours."""
    changes: Changes = {"id": encode(echo.id)}

    previous = document.value("previous_response_id")
    if echo.previous and previous is not None and previous[:1] == b'"':
        changes["previous_response_id"] = encode(echo.previous)

    if echo.tool_choice and document.value("tool_choice") is not None:
        changes["tool_choice"] = echo.tool_choice

    instructions = document.value("instructions")
    if echo.instructions >= 0 and instructions is not None and instructions[:1] == b'"':
        own = _text_decoder.decode(instructions)[: echo.instructions]
        changes["instructions"] = encode(own) if own else b"null"

    return changes


def _concealing_changes(document: json_splice.Object, concealment: Concealment) -> Changes:
    """Return the changes that take managed tools and hidden items out of a response."""
    changes: Changes = {}

    tools = document.value("tools")
    if tools is not None and tools[:1] == b"[":
        # A tool that can't be read (None) may be one of them.
        hidden_names = {None, *concealment.names} if concealment.names else set()
        changes["tools"] = join_items(
            tool for tool in split_items(tools) if tool_name(tool) not in hidden_names
        )

    for name in ("input", "output"):
        items = document.value(name)
        if items is not None and items[:1] == b"[":
            changes[name] = join_items(show_items(split_items(items), concealment))

    if concealment != Concealment():
        changes |= {name: b"null" for name in TOLD if document.value(name) is not None}

    return changes


def show_items(raw: Sequence[bytes], concealment: Concealment) -> list[bytes]:
    """Return the items, oldest first, without the hidden ones.

    Reasoning is hidden, too, if everything it led to is.
    """
    views = [read_item(item) for item in raw]
    managed_ids = [view.own_call_id for view in views if _is_managed(view, concealment)]
    hidden_ids = concealment.ids.union(each for each in managed_ids if isinstance(each, str))

    # From the last item to the first, because what reasoning led to comes after it.
    shown: list[bytes] = []
    outcome: _Outcome = "none"  # Of reasoning that stands right before the items seen so far
    for item, view in zip(reversed(raw), reversed(views), strict=True):
        ids = (view.id, view.own_call_id, _answered_call(item, view))
        has_hidden_id = any(isinstance(each, str) and each in hidden_ids for each in ids)
        is_hidden = has_hidden_id or _is_managed(view, concealment)

        if view.kind == REASONING:
            if is_hidden or outcome == "hidden":
                # ``outcome`` stays: reasoning right before this one led to the same items.
                continue
            outcome = "none"
        elif view.speaker not in {"assistant", None}:
            # The runner's message or a result: what comes before it led to nothing behind it.
            outcome = "none"
        elif view.is_call or view.is_message:
            if not is_hidden:
                outcome = "shown"
            elif outcome == "none":
                outcome = "hidden"

        if not is_hidden:
            shown.append(item)

    return shown[::-1]


def _is_managed(view: Item, concealment: Concealment) -> bool:
    """Return True if the item is a call of a managed tool."""
    is_plain_call = view.kind in {FUNCTION, CUSTOM} and not view.namespace
    return is_plain_call and item_name(view) in concealment.names


def _answered_call(raw: bytes, view: Item) -> Any:
    """Return the id of the call that an item answers; None for an item that answers none."""
    if view.speaker != "tool":
        return None

    answer = _answer_decoder.decode(raw)
    return answer.call_id or answer.approval_request_id or answer.id


def read_page(body: bytes) -> tuple[list[bytes], str]:
    """Return the items of a provider's page, and the id after which the next page begins.

    The id of the last page is "". Raise ``UnreadableResponseError``.
    """
    try:
        json_splice.check_utf8(body)
        page = _page_decoder.decode(body)
        items = [bytes(item) for item in page.data]
        for item in items:
            read_item(item)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableResponseError("the provider's answer is not one page of items") from error

    has_next = page.has_more is True and bool(items)
    if not has_next or not isinstance(page.last_id, str):
        return items, ""
    return items, page.last_id


def write_page(items: Sequence[bytes], asked: Mapping[str, str]) -> bytes:
    """Return the page of items (oldest first) that a query asks for.

    Raise ``UnreadableRequestError``.
    """
    limit = asked.get("limit", str(_DEFAULT_SIZE))
    size = whole_number(limit, PAGE_SIZE)
    if not size:
        raise UnreadableRequestError(f"'limit' is a whole number from 1 to {PAGE_SIZE}")

    order = asked.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise UnreadableRequestError("'order' is 'asc' or 'desc'")
    ordered = list(items) if order == "asc" else list(items)[::-1]

    ids = [read_item(item).id for item in ordered]
    start = 0
    end = len(ordered)
    after = asked.get("after")
    if after:
        start = _place(ids, after, "after") + 1
    before = asked.get("before")
    if before:
        end = _place(ids, before, "before")

    page = ordered[start:end][:size]
    page_ids = ids[start:end][:size]
    first = encode(page_ids[0]) if page_ids else b"null"
    last = encode(page_ids[-1]) if page_ids else b"null"
    has_more = b"true" if start + len(page) < end else b"false"
    return b'{"object":"list","data":%b,"first_id":%b,"last_id":%b,"has_more":%b}' % (
        join_items(page),
        first,
        last,
        has_more,
    )


def _place(ids: Sequence[Any], item_id: str, name: str) -> int:
    if item_id not in ids:
        raise UnreadableRequestError(f"{name!r} names no item of this list")
    return ids.index(item_id)


def find_item(items: Sequence[bytes], item_id: str) -> bytes | None:
    """Return the item with that id; None if there is none."""
    for item in items:
        if read_item(item).id == item_id:
            return item
    return None
