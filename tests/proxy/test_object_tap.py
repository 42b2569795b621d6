"""The reader of the ids that a forwarded stream gives."""

from __future__ import annotations

import json

import pytest

from claw_mediate.core.object_ids import RESPONSE_SHAPE, GivenObject
from claw_mediate.mitm.passthrough import object_tap
from claw_mediate.mitm.passthrough.object_tap import ObjectTap

OPENED = {"type": "code_interpreter_call", "id": "ci_1", "container_id": "cntr_1"}
EVENTS = [
    {"type": "response.output_text.delta", "delta": "Words."},
    {"type": "response.output_item.done", "item": OPENED},
    {"type": "response.output_text.delta", "delta": "More words."},
]


def given(*pieces: bytes) -> list[GivenObject]:
    found: list[GivenObject] = []
    tap = ObjectTap("text/event-stream", (), RESPONSE_SHAPE, found.extend)
    for piece in pieces:
        tap.read(piece)
    tap.read(b"")
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
def test_a_line_that_is_too_long_gives_nothing_and_the_next_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_tap, "_MAX_DOCUMENT", 200)
    other = {**OPENED, "container_id": "cntr_2", "code": "x" * 300}
    long = b"data: " + json.dumps({"type": "response.output_item.done", "item": other}).encode() + b"\n"
    short = b"data: " + json.dumps(EVENTS[1]).encode() + b"\n"
    for pieces in ([long, short], [long[:250], long[250:] + short], [long[:100], long[100:] + short]):
        assert given(*pieces) == [GivenObject("container", "cntr_1")]
