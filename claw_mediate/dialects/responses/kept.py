"""Responses and items that a provider keeps, as the runner may read them
(docs/spec/responses.md section 10).

A kept response repeats the request that the provider got, and its items are those of that request
and of all that it goes on from. So managed tools leave the first, and hidden items the second.
Paging is over what is left.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

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


class _Answer(msgspec.Struct):
    """The members by which the forms of an output name their call."""

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
        found.update(
            each for each in ids if isinstance(each, str) and each
        )  # Providers may give anything
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
        changes: Changes = {"id": encode(echo.id)}
        if echo.previous and (document.value("previous_response_id") or b"").startswith(b'"'):
            changes["previous_response_id"] = encode(echo.previous)
        tools = document.value("tools")
        if tools is not None and tools[:1] == b"[":
            hidden = {None, *concealment.names} if concealment.names else set()
            changes["tools"] = join_items(
                tool for tool in split_items(tools) if tool_name(tool) not in hidden
            )
        if echo.tool_choice and document.value("tool_choice") is not None:
            changes["tool_choice"] = echo.tool_choice
        instructions = document.value("instructions")
        if echo.instructions >= 0 and instructions is not None and instructions[:1] == b'"':
            own = _text_decoder.decode(instructions)[: echo.instructions]
            changes["instructions"] = encode(own) if own else b"null"
        for name in ("input", "output"):
            items = document.value(name)
            if items is not None and items[:1] == b"[":
                changes[name] = join_items(show_items(split_items(items), concealment))
        if concealment != Concealment():
            changes |= {name: b"null" for name in TOLD if document.value(name) is not None}
        changed = {name: value for name, value in changes.items() if value != document.value(name)}
        return document.edit(changed) if changed else body
    except (
        msgspec.DecodeError,
        RecursionError,
        UnicodeDecodeError,
        json_splice.JsonSpliceError,
    ) as error:
        raise UnreadableResponseError("the provider's answer is not one response") from error


def show_items(raw: Sequence[bytes], concealment: Concealment) -> list[bytes]:
    """Return the items, oldest first, without hidden ones and without the reasoning
    that led to nothing else.
    """
    views = [read_item(item) for item in raw]
    managed = [view.own_call_id for view in views if _is_managed(view, concealment)]
    hidden = concealment.ids.union(each for each in managed if isinstance(each, str))
    shown: list[bytes] = []
    has_led_to = is_in_vain = False  # What is behind led to something; to nothing that is shown
    for item, view in zip(reversed(raw), reversed(views), strict=True):
        names = (view.id, view.own_call_id, _answered_call(item, view))
        is_hidden = _is_managed(view, concealment) or any(
            isinstance(each, str) and each in hidden for each in names
        )
        if view.kind == REASONING:
            if is_hidden or is_in_vain:
                continue  # and the reasoning right before it goes too
            has_led_to = False
        elif view.speaker not in {"assistant", None}:
            has_led_to = is_in_vain = False
        elif view.is_call or view.is_message:
            is_in_vain = is_hidden and (is_in_vain or not has_led_to)
            has_led_to = True
        if not is_hidden:
            shown.append(item)
    return shown[::-1]


def _is_managed(view: Item, concealment: Concealment) -> bool:
    return (
        view.kind in {FUNCTION, CUSTOM}
        and not view.namespace
        and item_name(view) in concealment.names
    )


def _answered_call(raw: bytes, view: Item) -> Any:
    """Return the id of the call that an item answers; None for an item that answers none."""
    if view.speaker != "tool":
        return None
    answer = _answer_decoder.decode(raw)
    return answer.call_id or answer.approval_request_id or answer.id


def read_page(body: bytes) -> tuple[list[bytes], str]:
    """Return the items of a provider's page, and the id after which the next one
    begins: "" after the last page.

    Raise ``UnreadableResponseError``.
    """
    try:
        json_splice.check_utf8(body)
        page = _page_decoder.decode(body)
        items = [bytes(item) for item in page.data]
        for item in items:
            read_item(item)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableResponseError("the provider's answer is not one page of items") from error
    last = page.last_id if isinstance(page.last_id, str) else ""
    return items, last if page.has_more is True and items else ""


def write_page(items: Sequence[bytes], asked: Mapping[str, str]) -> bytes:
    """Return the page of items (oldest first) that a query asks for.

    Raise ``UnreadableRequestError``.
    """
    size, order = asked.get("limit", str(_DEFAULT_SIZE)), asked.get("order", "desc")
    if not (size.isdecimal() and size.isascii() and 0 < int(size) <= PAGE_SIZE):
        raise UnreadableRequestError(f"'limit' is a whole number from 1 to {PAGE_SIZE}")
    if order not in {"asc", "desc"}:
        raise UnreadableRequestError("'order' is 'asc' or 'desc'")
    ordered = list(items) if order == "asc" else list(items)[::-1]
    ids = [read_item(item).id for item in ordered]
    start, end = 0, len(ordered)
    if after := asked.get("after"):
        start = _place(ids, after, "after") + 1
    if before := asked.get("before"):
        end = _place(ids, before, "before")
    page = ordered[start:end][: int(size)]
    named = ids[start:end][: int(size)]
    first, last = (encode(named[0]), encode(named[-1])) if named else (b"null", b"null")
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
    return next((item for item in items if read_item(item).id == item_id), None)
