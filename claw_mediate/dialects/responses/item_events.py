"""The events of one item of a response, told of the item as it is when it is done.

docs/spec/responses.md section 7. The channels of the events are those of ``channels``.
What we do not know is told whole, by ``added`` and ``done``.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from claw_mediate.core.reply_events import EventKind, ReplyEvent
from claw_mediate.dialects.members import (
    Members,
    as_raw,
    split_array,
    split_object,
    string_member,
)
from claw_mediate.dialects.responses.channels import ADDED, DONE, ITEM_ADDED, ITEM_DONE, is_closing
from claw_mediate.dialects.responses.items import REASONING, Item, read_item

type _Event = tuple[str, dict[str, Any], str]
"""The channel, the members and the text of an event."""


def item_kind(item: Item) -> EventKind:
    """Return the kind of an item's events, besides the closing ones."""
    if item.is_call:
        return "call"
    return "reasoning" if item.kind == REASONING else "content"


def tell_item(piece: int, raw: bytes) -> Iterator[ReplyEvent]:
    """Yield the events of an item, each text as a whole.

    Everything of a call has the kind ``call``.
    """
    kind = item_kind(read_item(raw))
    for channel, data, text in _events(split_object(raw)):
        closes = is_closing(channel) and kind != "call"
        yield ReplyEvent("closing" if closes else kind, piece, data, channel, text)


def _events(item: Members) -> Iterator[_Event]:
    empty: dict[str, Any] = {}
    parts: Iterator[_Event] = iter(())
    match string_member(item, "type"):
        case "message" if _is_array(item, "content"):
            empty = {"content": []}
            parts = _content_events(item)
        case "reasoning":
            empty = _emptied(item, "summary", "content")
            parts = _reasoning_events(item)
        case "function_call" if string_member(item, "arguments") is not None:
            empty = {"arguments": ""}
            name = {"name": msgspec.Raw(item["name"])} if "name" in item else {}
            parts = _text_events(item, "response.function_call_arguments", "arguments", name)
        case "custom_tool_call" if string_member(item, "input") is not None:
            empty = {"input": ""}
            parts = _text_events(item, "response.custom_tool_call_input", "input", {})

    started: dict[str, Any] = {**as_raw(item), **empty}
    if "status" in item:
        started["status"] = "in_progress"
    yield ADDED, {"type": ITEM_ADDED, "item": _raw(started)}, ""
    yield from parts
    yield DONE, {"type": ITEM_DONE, "item": _raw(as_raw(item))}, ""


def _text_events(item: Members, kind: str, member: str, more: dict[str, Any]) -> Iterator[_Event]:
    """Yield the events of a text. ``more``: members of the last one."""
    text = string_member(item, member) or ""
    if text:
        yield member, {"type": f"{kind}.delta"}, text
    yield f"{member}.done", {"type": f"{kind}.done", member: text, **more}, ""


def _content_events(item: Members) -> Iterator[_Event]:
    """Yield the events of a message's parts."""
    for index, raw in enumerate(split_array(item["content"])):
        part = split_object(raw)
        channel = f"part.{index}"
        place = {"content_index": index}
        kind = string_member(part, "type")
        text = string_member(part, "text")
        refusal = string_member(part, "refusal")

        if kind == "refusal" and refusal is not None:
            yield _part_added(channel, place, {**as_raw(part), "refusal": ""})
            if refusal:
                yield f"{channel}.refusal", {"type": "response.refusal.delta", **place}, refusal
            done = {"type": "response.refusal.done", **place, "refusal": refusal}
            yield f"{channel}.refusal.done", done, ""
        elif kind == "output_text" and text is not None:
            empty = {"text": "", **_emptied(part, "annotations")}
            yield _part_added(channel, place, {**as_raw(part), **empty})
            yield from _output_text_events(channel, place, part, text)
        else:
            yield _part_added(channel, place, as_raw(part))

        yield _part_done(channel, place, part)


def _output_text_events(
    channel: str, place: dict[str, Any], part: Members, text: str
) -> Iterator[_Event]:
    if text:
        delta = {"type": "response.output_text.delta", "logprobs": [], **place}
        yield f"{channel}.text", delta, text

    for index, annotation in enumerate(_array_member(part, "annotations")):
        added = {
            "type": "response.output_text.annotation.added",
            "annotation_index": index,
            "annotation": msgspec.Raw(annotation),
            **place,
        }
        yield f"{channel}.annotation", added, ""

    done = {"type": "response.output_text.done", "text": text, "logprobs": [], **place}
    yield f"{channel}.text.done", done, ""


def _reasoning_events(item: Members) -> Iterator[_Event]:
    """Yield the events of the parts of reasoning: of its summary, then of its content."""
    for index, raw in enumerate(_array_member(item, "summary")):
        part = split_object(raw)
        channel = f"summary.{index}"
        place = {"summary_index": index}
        text = string_member(part, "text") or ""

        added = {
            "type": "response.reasoning_summary_part.added",
            **place,
            "part": _raw({**as_raw(part), "text": ""}),
        }
        yield f"{channel}.added", added, ""
        yield from _thought_events(channel, "response.reasoning_summary_text", place, text)
        done = {
            "type": "response.reasoning_summary_part.done",
            **place,
            "part": _raw(as_raw(part)),
        }
        yield f"{channel}.done", done, ""

    for index, raw in enumerate(_array_member(item, "content")):
        part = split_object(raw)
        channel = f"part.{index}"
        place = {"content_index": index}
        text = string_member(part, "text") or ""

        yield _part_added(channel, place, {**as_raw(part), "text": ""})
        yield from _thought_events(channel, "response.reasoning_text", place, text)
        yield _part_done(channel, place, part)


def _thought_events(channel: str, kind: str, place: dict[str, Any], text: str) -> Iterator[_Event]:
    if text:
        yield f"{channel}.text", {"type": f"{kind}.delta", **place}, text
    yield f"{channel}.text.done", {"type": f"{kind}.done", **place, "text": text}, ""


def _part_added(channel: str, place: dict[str, Any], part: dict[str, Any]) -> _Event:
    data = {"type": "response.content_part.added", **place, "part": _raw(part)}
    return f"{channel}.added", data, ""


def _part_done(channel: str, place: dict[str, Any], part: Members) -> _Event:
    data = {"type": "response.content_part.done", **place, "part": _raw(as_raw(part))}
    return f"{channel}.done", data, ""


def _raw(members: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(members))


def _emptied(item: Members, *names: str) -> dict[str, Any]:
    """Return those of the members that are arrays, empty."""
    return {name: [] for name in names if _is_array(item, name)}


def _is_array(members: Members, name: str) -> bool:
    return members.get(name, b"")[:1] == b"["


def _array_member(members: Members, name: str) -> list[bytes]:
    """Return the elements of a member; [] if it is no array."""
    return split_array(members[name]) if _is_array(members, name) else []
