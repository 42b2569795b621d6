"""Messages between workers and their supervisor, in whatever pieces a socket gives them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.workers.frames import FrameReader, Message, write_frame

pytestmark = pytest.mark.requirement("workers:frames")

MESSAGES = [
    Message("up", 4000),
    Message("ask", 1, "feed", body=b"\xff\0 prices"),
    Message("question", 2, "alive"),
    Message("reply", 2, "metrics", {1: b"x" * 70_000}),
    Message("answer", 1, "ready", {0: b"", 1: b"no history", 2: b""}),
]
WIRE = b"".join(map(write_frame, MESSAGES))


@given(st.lists(st.integers(0, len(WIRE)), max_size=8))
def test_messages_are_whole_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    reader = FrameReader()
    ends = [*sorted(cuts), len(WIRE)]
    read: list[Message] = []
    start = 0
    for end in ends:
        read += reader.read(WIRE[start:end])
        start = end
    assert read == MESSAGES


def test_half_a_message_is_none_yet() -> None:
    reader = FrameReader()
    frame = write_frame(MESSAGES[1])
    assert list(reader.read(frame[:-1])) == []
    assert list(reader.read(frame[-1:])) == [MESSAGES[1]]


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91\xa3bad"])
def test_bytes_that_are_no_message_are_an_error_and_not_skipped(body: bytes) -> None:
    frame = len(body).to_bytes(4, "big") + body
    with pytest.raises(msgspec.DecodeError):
        list(FrameReader().read(frame))
