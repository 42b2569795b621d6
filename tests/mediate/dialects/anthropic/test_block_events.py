"""The events of a block, and the block of its events."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from claw_mediate.dialects.anthropic.block_events import (
    BlockBuilder,
    block_kind,
    delta_event,
    start_events,
    stop_event,
    text_event,
)
from claw_mediate.dialects.members import split_object

CITATION = {"type": "char_location", "cited_text": "c"}

BLOCKS: list[Any] = [
    {"type": "text", "text": ""},
    {"type": "text", "text": "x" * 100, "citations": [CITATION, CITATION], "more": 1},
    {"type": "text", "text": "x", "citations": None},
    {"type": "text", "text": None},
    {"type": "thinking", "thinking": "x" * 100, "signature": "S"},
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "tool_use", "id": "t", "name": "n", "input": {}},
    {"type": "server_tool_use", "id": "t", "name": "n", "input": {"a": [1]}},
    {"type": "mcp_tool_use", "id": "t", "name": "n", "input": "text"},
    {"type": "x_novel", "text": "x", "input": {}},
]


@pytest.mark.parametrize("block", BLOCKS)
def test_the_events_of_a_block_make_it_again(block: Any) -> None:
    raw = json.dumps(block).encode()
    builder = BlockBuilder()
    events = [*start_events(split_object(raw), 2)]
    for event in events:
        assert (event.piece, event.kind) == (2, block_kind(block["type"]))
        builder.add(event)
    assert json.loads(msgspec.json.encode(builder.build())) == block
    assert json.loads(msgspec.json.encode(builder.build())) == block, "it can be built again"


def test_a_deltas_text_is_not_in_its_data() -> None:
    event = text_event("content", 1, "text_delta", "words")
    assert (event.channel, event.text) == ("text", "words")
    assert event.data == {"type": "content_block_delta", "delta": {"type": "text_delta"}}


def test_a_delta_without_text_has_the_channel_of_its_type() -> None:
    channels = [
        delta_event("content", 0, {"type": delta}).channel
        for delta in ("citations_delta", "signature_delta", "x_delta")
    ]
    assert channels == ["citations", "signature", "x_delta"]


def test_the_end_of_a_call_is_a_part_of_it() -> None:
    assert [stop_event(kind, 0).kind for kind in ("call", "reasoning", "content")] == [
        "call",
        "closing",
        "closing",
    ]
