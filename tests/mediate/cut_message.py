"""A message of Anthropic's API, cut into events in every way in which a provider may cut it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from claw_contract.sse import SseEvent, SseReader

type Event = dict[str, Any]

MAX_EVENT_BYTES = 1 << 20

_GROWING = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
}


def write_events(events: Sequence[Event]) -> bytes:
    """Return events as the API writes them."""
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


def read_events(stream: bytes) -> list[SseEvent]:
    return [*SseReader(MAX_EVENT_BYTES).feed(stream)]


@st.composite
def cut_events(draw: st.DrawFn, message: Event, inputs: Sequence[str]) -> list[Event]:
    """Return the events of a message. ``inputs`` are those of its calls, in their own spelling."""
    spellings = iter(inputs)
    queues = [
        draw(_block_events(index, block, next(spellings) if "input" in block else ""))
        for index, block in enumerate(message["content"])
    ]
    usage = message["usage"]
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    begun["usage"] = {**usage, "output_tokens": 1}
    ends = {name: message[name] for name in ("stop_reason", "stop_sequence")}
    counts = {"output_tokens": usage["output_tokens"], "input_tokens": None}

    return [
        {"type": "message_start", "message": begun},
        *draw(_mix(queues)),
        {"type": "message_delta", "delta": ends, "usage": counts},
        {"type": "message_stop"},
    ]


@st.composite
def _mix(draw: st.DrawFn, queues: list[list[Event]]) -> list[Event]:
    """Return the events of all blocks, which start in order, but may go on beside each other."""
    mixed: list[Event] = []
    started = 0
    waiting = [*queues]
    while any(waiting):
        able = [index for index, queue in enumerate(waiting) if queue and index <= started]
        index = draw(st.sampled_from(able))
        mixed.append(waiting[index].pop(0))
        started = max(started, index + 1)
        if draw(st.integers(0, 9)) == 0:
            mixed.append({"type": "ping"})
    return mixed


@st.composite
def _block_events(draw: st.DrawFn, index: int, block: Event, spelled: str) -> list[Event]:
    started = {**block}
    deltas: list[Event] = []

    if block["type"] in _GROWING:
        member, delta_type, name = _GROWING[block["type"]]
        first, *parts = draw(_parts(block[member]))
        started[member] = first
        deltas = [{"type": delta_type, name: part} for part in parts]

    if block["type"] == "thinking" and draw(st.booleans()):
        started["signature"] = ""
        deltas += [{"type": "signature_delta", "signature": "an earlier one"}]
        deltas += [{"type": "signature_delta", "signature": block["signature"]}]

    if block.get("citations"):
        started["citations"] = draw(st.sampled_from([[], None]))
        place = draw(st.integers(0, len(deltas)))
        deltas[place:place] = [
            {"type": "citations_delta", "citation": citation} for citation in block["citations"]
        ]

    if "input" in block:
        started["input"] = draw(st.sampled_from([{}, None, ""]))
        parts = [] if spelled == "{}" and draw(st.booleans()) else draw(_parts(spelled))
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]

    events = [
        {"type": "content_block_start", "content_block": started},
        *({"type": "content_block_delta", "delta": delta} for delta in deltas),
        {"type": "content_block_stop"},
    ]
    return [{**event, "index": index} for event in events]


@st.composite
def _parts(draw: st.DrawFn, text: str) -> list[str]:
    """Return the parts of a text, some of them empty; the first is often empty."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    if draw(st.booleans()):
        places.insert(0, 0)
    bounds = [0, *places, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(bounds)]


@st.composite
def wire_bytes(draw: st.DrawFn, events: Sequence[Event]) -> list[bytes]:
    """Return the events in chunks, with every form that the SSE standard allows (edge case 31)."""
    line_end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    stream = draw(st.sampled_from(["", "\ufeff"]))
    for event in events:
        indent = draw(st.sampled_from([None, 1]))
        data = json.dumps(event, ensure_ascii=draw(st.booleans()), indent=indent)
        if draw(st.integers(0, 9)) == 0:
            stream += f": a comment{line_end}{line_end}"
        stream += f"event: {event['type']}{line_end}"
        stream += "".join(f"data: {line}{line_end}" for line in data.split("\n")) + line_end

    whole = stream.encode()
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    bounds = [0, *places, len(whole)]
    return [whole[start:end] for start, end in itertools.pairwise(bounds)]
