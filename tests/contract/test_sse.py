"""The reader of server-sent events."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_contract.sse import EventTooLongError, SseEvent, SseReader, write_event

STREAM = b'\xef\xbb\xbf: hello\nid: 7\nevent: message\ndata: {"a":1}\ndata: {"b":2}\n\ndata\n\nretry: 5\n\ndata:x\n\ndata: half'
EVENTS = [
    SseEvent(b'{"a":1}\n{"b":2}', b"message", b"7"),
    SseEvent(b"", b"message", b"7"),
    SseEvent(b"x", b"message", b"7"),
]


@pytest.mark.requirement("mcp:sse-reader")
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@settings(max_examples=50)
@given(cuts=st.lists(st.integers(0, len(STREAM) * 2), max_size=8))
def test_events_are_the_same_wherever_the_stream_is_cut(line_end: bytes, cuts: list[int]) -> None:
    stream = STREAM.replace(b"\n", line_end)
    reader = SseReader(1000)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    found = [event for start, end in pairwise(places) for event in reader.feed(stream[start:end])]
    assert found == EVENTS


@pytest.mark.requirement("mcp:sse-reader")
@pytest.mark.parametrize(
    "stream", [b"data: " + b"x" * 200, b"data: x\n" * 40, b": " + b"c" * 200, b"x" * 200 + b"\n"]
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_event_above_the_limit_ends_the_stream(stream: bytes, size: int) -> None:
    reader = SseReader(100)
    pieces = (stream[start : start + size] for start in range(0, len(stream), size))
    with pytest.raises(EventTooLongError):
        print([event for piece in pieces for event in reader.feed(piece)])


@pytest.mark.requirement("mcp:sse-reader")
def test_many_events_are_not_one_long_one() -> None:
    assert len(list(SseReader(100).feed(b"data: x\n\n" * 1000))) == 1000


@pytest.mark.requirement("mcp:sse-reader")
def test_what_is_written_is_read() -> None:
    (event,) = SseReader(100).feed(write_event(b'{\n"a":1}', "e1"))
    assert (json.loads(event.data), event.id) == ({"a": 1}, b"e1")
