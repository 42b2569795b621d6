"""The streams of providers of the Responses API: OpenAI's, and those of servers that leave
events out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from claw_contract.sse import SseEvent
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects.responses.assemble import ResponseAssembler
from tests.mediate.any_reply import spoilt
from tests.mediate.items import NEW, SEARCH
from tests.wires import Body
from tests.wires.responses import function_call, message, reasoning, response

type Cut = Callable[[str], Sequence[str]]
"""Cuts a text into its deltas."""

LEFT_OUT = ("opening", "part", "text.done", "delta", "index", "added", "done", "output")
"""Parts that a server may leave out: events, the index of items, or items of the last event."""

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def by(size: int) -> Cut:
    """Return a cut into deltas of this many characters."""
    return lambda text: [text[start : start + size] for start in range(0, len(text), size)]


def _note() -> Body:
    return {"type": "url_citation", "url": "https://x.example", "start_index": 0, "end_index": 1}


def _message(number: int, texts: list[str], *, cited: bool, refuses: bool) -> Body:
    content: list[Body] = [
        {"type": "output_text", "text": text, "annotations": [_note()] * cited} for text in texts
    ]
    if refuses:
        content.append({"type": "refusal", "refusal": "I can't."})
    return {**message("", f"msg_{number}"), "content": content}


def _reasoning(number: int, thoughts: list[str], contents: list[str]) -> Body:
    item = {**reasoning(""), "id": f"rs_{number}"}
    item["summary"] = [{"type": "summary_text", "text": thought} for thought in thoughts]
    if contents:
        item["content"] = [{"type": "reasoning_text", "text": text} for text in contents]
    return item


def _custom(number: int, text: str) -> Body:
    call = {"type": "custom_tool_call", "id": f"ctc_{number}", "call_id": f"call_p{number}"}
    return {**call, "status": "completed", "name": "apply_patch", "input": text}


_NUMBERS = st.integers(0, 10**6)
_ITEMS: st.SearchStrategy[Body] = st.one_of(
    st.builds(
        _message,
        _NUMBERS,
        st.lists(_TEXTS, min_size=1, max_size=2),
        cited=st.booleans(),
        refuses=st.booleans(),
    ),
    st.builds(_reasoning, _NUMBERS, st.lists(_TEXTS, max_size=2), st.lists(_TEXTS, max_size=2)),
    st.builds(
        lambda number, name, arguments: function_call(f"call_{number}", name, arguments),
        _NUMBERS,
        st.sampled_from(["shell", "desk__get", "invented"]),
        st.sampled_from(["{}", '{"a":1}', '{"a":"é🎉"}', '{"a":']),
    ),
    st.builds(_custom, _NUMBERS, _TEXTS),
    st.builds(lambda number: {**SEARCH, "id": f"ws_{number}"}, _NUMBERS),
    st.builds(lambda number: {**NEW, "id": f"ho_{number}"}, _NUMBERS),
)
REPLIES: st.SearchStrategy[Body] = st.builds(
    lambda items: response(*items), st.lists(_ITEMS, max_size=5, unique_by=lambda item: item["id"])
)
"""Responses, each item with an id of its own."""


def provider_events(
    reply: Body, cut: Cut, *, left_out: frozenset[str] = frozenset(), keeps_open: bool = False
) -> Iterator[Body]:
    """Yield the events of a response. ``keeps_open``: items end behind the beginning of the next."""
    started = {**reply, "output": [], "status": "in_progress", "usage": None}
    opening = [
        {"type": "response.created", "response": started},
        {"type": "response.in_progress", "response": started},
    ]
    output = [] if "output" in left_out else reply["output"]
    last = {"type": f"response.{reply['status']}", "response": {**reply, "output": output}}

    events = [
        *(() if "opening" in left_out else opening),
        *_items(reply["output"], cut, left_out, keeps_open=keeps_open),
        last,
    ]
    for number, event in enumerate(events):
        yield {**event, "sequence_number": number}


def _items(
    items: Sequence[Body], cut: Cut, left_out: frozenset[str], *, keeps_open: bool
) -> Iterator[Body]:
    late: list[Body] = []  # The end of the item before
    for index, item in enumerate(items):
        place = {} if "index" in left_out else {"output_index": index}
        added, *events, done = [{**event, **place} for event in _item_events(item, cut, left_out)]
        is_told = "added" not in left_out
        yield from [added] * is_told
        yield from late
        yield from events * is_told

        late = [] if "done" in left_out else [done]
        if not keeps_open:
            yield from late
            late = []
    yield from late


def _item_events(item: Body, cut: Cut, left_out: frozenset[str]) -> Iterator[Body]:
    started = {**item, **({"status": "in_progress"} if "status" in item else {})}
    empty = {"content": [], "summary": [], "arguments": "", "input": ""}
    started |= {name: value for name, value in empty.items() if name in item}
    yield {"type": "response.output_item.added", "item": started}

    for event in _inner_events(item, cut, left_out):
        yield {**event, "item_id": item["id"]}

    yield {"type": "response.output_item.done", "item": item}


def _inner_events(item: Body, cut: Cut, left_out: frozenset[str]) -> Iterator[Body]:
    match item["type"]:
        case "function_call":
            name = "response.function_call_arguments"
            yield from _text_events(name, "arguments", item["arguments"], cut, left_out)
        case "custom_tool_call":
            name = "response.custom_tool_call_input"
            yield from _text_events(name, "input", item["input"], cut, left_out)
        case "web_search_call":
            for state in ("in_progress", "searching", "completed"):
                yield {"type": f"response.web_search_call.{state}"}

    for index, part in enumerate(item.get("summary", ())):
        names = ("reasoning_summary_part", "reasoning_summary_text")
        for event in _part_events(part, *names, cut, left_out):
            yield {**event, "summary_index": index}

    for index, part in enumerate(item.get("content", ())):
        for event in _part_events(part, "content_part", part["type"], cut, left_out):
            yield {**event, "content_index": index}


def _part_events(
    part: Body, kind: str, text_kind: str, cut: Cut, left_out: frozenset[str]
) -> Iterator[Body]:
    member = "refusal" if text_kind == "refusal" else "text"
    started = {**part, member: ""}
    if "annotations" in part:
        started["annotations"] = []
    if "part" not in left_out:
        yield {"type": f"response.{kind}.added", "part": started}

    *deltas, done = _text_events(f"response.{text_kind}", member, part[member], cut, frozenset())
    if "delta" not in left_out:
        yield from deltas
    for index, note in enumerate(part.get("annotations", ())):
        name = "response.output_text.annotation.added"
        yield {"type": name, "annotation_index": index, "annotation": note}
    if "text.done" not in left_out:
        yield done

    if "part" not in left_out:
        yield {"type": f"response.{kind}.done", "part": part}


def _text_events(
    kind: str, member: str, text: str, cut: Cut, left_out: frozenset[str]
) -> Iterator[Body]:
    for delta in () if "delta" in left_out else cut(text):
        more: Body = {"logprobs": []} if kind == "response.output_text" else {}
        yield {"type": f"{kind}.delta", "delta": delta, **more}
    if "text.done" not in left_out:
        yield {"type": f"{kind}.done", member: text}


@st.composite
def damaged_streams(draw: st.DrawFn) -> list[Any]:
    """Return the events of a response, some of them spoilt, lost, repeated or moved."""
    cut = by(draw(st.integers(1, 9)))
    left_out = draw(st.sets(st.sampled_from(LEFT_OUT), max_size=2))
    events: list[Any] = [*provider_events(draw(REPLIES), cut, left_out=frozenset(left_out))]
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(events) - 1))
        event = events.pop(place) if len(events) > 1 else events[0]
        match draw(st.sampled_from(["spoilt", "lost", "repeated", "moved"])):
            case "spoilt":
                spoils = isinstance(event, dict) and event
                events.insert(place, draw(spoilt(event)) if spoils else event)
            case "repeated":
                events.insert(place, event)
                events.insert(draw(st.integers(0, len(events))), event)
            case "moved":
                events.insert(draw(st.integers(0, len(events))), event)
    return events


def sse(event: Any) -> SseEvent:
    """Return an event, as a provider's stream gives it."""
    return SseEvent(json.dumps(event, ensure_ascii=False).encode())


def assemble(events: Iterator[Body]) -> tuple[ResponseAssembler, list[ReplyEvent]]:
    """Return the assembler of these events, and all that it told."""
    assembler = ResponseAssembler()
    told = [reply_event for event in events for reply_event in assembler.feed(sse(event))]
    return assembler, told


def told_by_channel(events: Sequence[ReplyEvent]) -> dict[tuple[int, str], tuple[str, int]]:
    """Return the text, and the number of other events, of each channel of each piece.

    Those that no body has are left out.
    """
    channels: dict[tuple[int, str], tuple[str, int]] = {}
    for event in events:
        if event.kind in {"opening", "end"} or event.channel.startswith("other."):
            continue
        text, others = channels.get((event.piece, event.channel), ("", 0))
        said = (text + event.text, others + (not event.text))
        channels[event.piece, event.channel] = said
    return channels


def told_texts(events: Sequence[ReplyEvent]) -> list[list[tuple[str, str]]]:
    """Return the channels of each piece in order, each with its text; without what no body has."""
    pieces: dict[int, list[tuple[str, str]]] = {}
    for event in events:
        if event.kind in {"opening", "end"} or event.channel.startswith("other."):
            continue
        channels = pieces.setdefault(event.piece, [])
        if event.text and channels and channels[-1][0] == event.channel:
            channels[-1] = (event.channel, channels[-1][1] + event.text)
        else:
            channels.append((event.channel, event.text))
    return [pieces[piece] for piece in sorted(pieces)]
