"""Server-sent events that we write: their frame, and their deltas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.sse import SseReader
from claw_mediate.dialects import sse
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from claw_mediate.dialects.streams import OwnOpening

OPENING = OwnOpening("chatcmplturn", "asked-for", 7)
ASKED = OPENAI_CHAT.read_request(b'{"messages":[]}')
WORDS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.requirement("stream:keepalive-is-skipped")
@given(WORDS)
def test_a_keepalive_is_a_comment_that_the_sdk_skips(note: str) -> None:
    alive = OPENAI_CHAT.writer(ASKED, OPENING).beat(note, "comment")
    assert alive.startswith(b": ")
    assert alive.endswith(b"\n\n")
    assert alive.count(b"\n") == 2
    assert b"\r" not in alive


@pytest.mark.requirement("stream:keepalive-is-skipped")
@given(WORDS)
def test_a_reader_finds_the_events_and_no_comment(note: str) -> None:
    stream = sse.comment(note) + sse.event(b"{}", "ping") + sse.comment(note) + sse.event(b"[1]")
    events = list(SseReader(1 << 20).feed(stream))
    assert [(event.name, event.data) for event in events] == [
        (b"ping", b"{}"),
        (b"message", b"[1]"),
    ]


@pytest.mark.parametrize("data", [b"{\n}", b"{\r}"])
def test_data_with_a_line_break_is_no_event(data: bytes) -> None:
    with pytest.raises(AssertionError):
        sse.event(data)


@pytest.mark.requirement("stream:same-as-json")
@given(st.integers(1, 200_000), st.sampled_from(["x", "é", "😀"]))
def test_a_text_is_cut_between_characters_into_a_bounded_number_of_deltas(
    length: int, character: str
) -> None:
    text = character * length
    parts = list(sse.split_text(text))
    assert "".join(parts) == text
    assert len(parts) <= 1000
    assert all(len(part) >= sse.DELTA_LENGTH for part in parts[:-1])
