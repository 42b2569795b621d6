"""The reader of the ids that a forwarded stream gives."""

from __future__ import annotations

import json

import pytest

from claw_mediate.core.object_ids import RESPONSE_SHAPE, GivenObject
from claw_mediate.mitm.passthrough import answer_tap
from claw_mediate.mitm.passthrough.answer_notes import AnswerNotes
from claw_mediate.mitm.passthrough.answer_tap import AnswerTap

OPENED = {"type": "code_interpreter_call", "id": "ci_1", "container_id": "cntr_1"}
EVENTS = [
    {"type": "response.output_text.delta", "delta": "Words."},
    {"type": "response.output_item.done", "item": OPENED},
    {"type": "response.output_text.delta", "delta": "More words."},
]


def given(*pieces: bytes, content_type: str = "text/event-stream") -> list[GivenObject]:
    found: list[GivenObject] = []
    tap = AnswerTap(content_type, (), AnswerNotes(shape=RESPONSE_SHAPE, on_given=found.extend))
    for piece in pieces:
        tap(piece)
    tap(b"")
    return found


@pytest.mark.requirement("objects:given")
@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
def test_a_stream_gives_its_ids_wherever_it_is_cut(line_end: bytes) -> None:
    stream = b"".join(b"data: " + json.dumps(event).encode() + 2 * line_end for event in EVENTS)
    expected = [GivenObject("container", "cntr_1")]
    assert given(stream) == expected
    for at in range(1, len(stream)):
        assert given(stream[:at], stream[at:]) == expected
    assert given(*(bytes([byte]) for byte in stream)) == expected


@pytest.mark.requirement("objects:given")
@pytest.mark.parametrize(
    ("content_type", "start", "end"),
    [("text/event-stream", b"data: ", b"\n\n"), ("text/plain", b"", b"\n")],
)
def test_what_is_too_long_gives_nothing_and_the_next_one_does(
    content_type: str, start: bytes, end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_tap, "_MAX_DOCUMENT", 200)
    other = {**OPENED, "container_id": "cntr_2", "code": "x" * 300}
    long = start + json.dumps({"type": "response.output_item.done", "item": other}).encode() + end
    short = start + json.dumps(EVENTS[1]).encode() + end
    for pieces in (
        [long, short],
        [long[:250], long[250:], short],
        [long[:100], long[100:], short],
        [short, long],
    ):
        assert given(*pieces, content_type=content_type) == [GivenObject("container", "cntr_1")]


@pytest.mark.requirement("objects:given")
def test_an_event_of_many_lines_gives_its_ids() -> None:
    lines = json.dumps(EVENTS[1], indent=1).encode().replace(b"\n", b"\ndata: ")
    assert given(b"data: " + lines + b"\n\n") == [GivenObject("container", "cntr_1")]


@pytest.mark.requirement("objects:given")
def test_a_stream_that_breaks_off_has_given_what_was_whole() -> None:
    whole = b"data: " + json.dumps(EVENTS[1]).encode()
    assert given(whole) == [GivenObject("container", "cntr_1")]
    assert given(whole[:-2]) == []
