"""The memory of live turns: under names of their own, and in part longer than their messages."""

from __future__ import annotations

import asyncio
import json

import pytest

from claw_state.continuity import MAX_TURNS, Anchor
from tests.mediate.live_turns import Anthropic, Chat, ModelReply, Responses, play

TWO = [ModelReply("Let me look.", "first"), ModelReply("And there.", "second")]
LAST = ModelReply("Nothing is there.", "third")
WIRES = pytest.mark.parametrize(
    "wire", [Chat(), Anthropic(), Responses()], ids=lambda wire: type(wire).__name__
)


@WIRES
@pytest.mark.requirement("live:continuity-fleet")
def test_a_process_that_knows_no_live_turns_finds_none(wire: Chat) -> None:
    played = play(wire, TWO, LAST)
    name = wire.dialect.name
    older = [f"{name}:{key}" for key in played.anchor.keys]
    assert asyncio.run(played.store.find("a", older)) == []

    live = [f"{name}+live:{key}" for key in played.anchor.keys]
    (found,) = asyncio.run(played.store.find("a", live))
    assert found.messages == played.record.write()


@WIRES
@pytest.mark.requirement("live:continuity-record")
def test_no_request_has_a_marker(wire: Chat) -> None:
    played = play(wire, TWO, LAST)
    answers = (wire.answer([*TWO, LAST]), wire.answer([LAST]), [])
    for answer in answers:
        body = played.next_body([*wire.asked(), *answer, wire.user("Thanks.")])
        assert b'"claw"' not in body


@pytest.mark.requirement("live:continuity-hides")
@pytest.mark.parametrize("wire", [Anthropic(), Responses()], ids=lambda wire: type(wire).__name__)
def test_reasoning_of_rounds_that_were_evicted_is_not_sent_back(wire: Chat) -> None:
    played = play(wire, TWO, LAST)
    for number in range(MAX_TURNS):
        asyncio.run(played.store.save("a", Anchor(f"t{number}"), "", b"{},{}"))

    messages = [*wire.asked(), *wire.answer([*TWO, LAST]), wire.user("Thanks.")]
    transcript = json.dumps(list(map(json.loads, played.next_request(messages))))
    assert "third" in transcript
    assert "first" not in transcript
    assert "second" not in transcript
    assert all(said.text in transcript for said in (*TWO, LAST))


@WIRES
@pytest.mark.requirement("live:continuity-bytes")
def test_the_event_counts_a_live_turn_like_any_other(wire: Chat) -> None:
    played = play(wire, TWO, LAST)
    played.next_request([*wire.asked(), *wire.answer([*TWO, LAST]), wire.user("Thanks.")])
    kind, numbers = played.events[-1]
    assert kind == "continuity"
    assert (numbers["hits"], numbers["turns"], numbers["shortened"]) == (1, 1, 0)
