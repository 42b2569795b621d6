"""What flows of a reply while it comes, and what is told of it afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mediate.core.live import ReplyGate, until_first_call
from claw_mediate.core.reply_events import EventKind, ReplyEvent

OPENING = ReplyEvent("opening", 0, {"id": "r1"})
END = ReplyEvent("end", 0, {"reason": "stop"})


def text(piece: int, words: str, channel: str = "text") -> ReplyEvent:
    return ReplyEvent("content", piece, {}, channel, words)


def thought(piece: int, words: str) -> ReplyEvent:
    return ReplyEvent("reasoning", piece, {}, "thinking", words)


def event(kind: EventKind, piece: int, channel: str) -> ReplyEvent:
    return ReplyEvent(kind, piece, {"piece": piece, "channel": channel}, channel)


def call(piece: int) -> ReplyEvent:
    return event("call", piece, "start")


def stop(piece: int) -> ReplyEvent:
    return event("closing", piece, "stop")


def shown(gate: ReplyGate, events: Sequence[ReplyEvent]) -> list[ReplyEvent]:
    """Return what flows of these events, which is noted as shown."""
    passing = [each for one in events for each in gate.let_pass([one])]
    for each in passing:
        gate.note_shown(each)
    return passing


@pytest.mark.requirement("live:flows-until-a-call")
def test_text_flows_at_once_and_everything_from_the_first_call_on_waits() -> None:
    gate = ReplyGate(shows=True, reasoning="flows")
    events = [OPENING, text(0, "Let me"), text(0, " see."), stop(0), call(1), text(2, "Well"), END]
    assert shown(gate, events) == [OPENING, text(0, "Let me"), text(0, " see.")]
    assert gate.has_call


@pytest.mark.requirement("live:opening-with-content")
def test_the_opening_is_shown_with_the_first_content_and_not_before() -> None:
    gate = ReplyGate(shows=True, reasoning="flows")
    assert gate.let_pass([OPENING]) == []
    assert not gate.has_shown
    assert gate.let_pass([text(0, "Hi")]) == [OPENING, text(0, "Hi")]


@pytest.mark.requirement("live:opening-with-content")
def test_of_a_reply_that_only_calls_nothing_is_shown() -> None:
    gate = ReplyGate(shows=True, reasoning="flows")
    assert shown(gate, [OPENING, call(0), END]) == []
    assert not gate.has_shown


@pytest.mark.requirement("live:closings-wait")
def test_a_piece_is_closed_right_before_the_next_one_of_its_reply() -> None:
    gate = ReplyGate(shows=True, reasoning="flows")
    assert shown(gate, [text(0, "One."), stop(0)]) == [text(0, "One.")]
    assert shown(gate, [text(1, "Two."), stop(1)]) == [stop(0), text(1, "Two.")]


@pytest.mark.requirement("live:closings-wait")
def test_of_a_dropped_reply_the_last_shown_piece_is_still_to_be_closed() -> None:
    gate = ReplyGate(shows=True, reasoning="flows")
    shown(gate, [text(0, "One."), stop(0), text(1, "Two."), call(2)])
    told = [OPENING, text(0, "One."), stop(0), text(1, "Two."), stop(1), call(2), stop(2), END]
    assert gate.open_closings(told) == [stop(1)]


@pytest.mark.requirement("live:flows-until-a-call")
def test_members_that_sdks_join_over_replies_wait_for_the_verdict() -> None:
    gate = ReplyGate(shows=True, reasoning="flows")
    details = event("object", 0, "annotations")
    assert shown(gate, [text(0, "A"), details, text(0, "B")]) == [text(0, "A"), text(0, "B")]
    told = [OPENING, text(0, "AB"), details, END]
    assert [*gate.rest(told)] == [OPENING, details, END]


@pytest.mark.requirement("live:reasoning-waits")
def test_reasoning_that_waits_comes_right_before_the_next_content() -> None:
    gate = ReplyGate(shows=True, reasoning="waits")
    assert shown(gate, [OPENING, thought(0, "Hm."), stop(0)]) == []
    first = shown(gate, [text(1, "So.")])
    assert first == [OPENING, thought(0, "Hm."), stop(0), text(1, "So.")]


@pytest.mark.requirement("live:reasoning-waits")
def test_reasoning_that_waits_is_not_shown_of_a_reply_that_only_calls() -> None:
    gate = ReplyGate(shows=True, reasoning="waits")
    assert shown(gate, [OPENING, thought(0, "Hm."), stop(0), call(1), text(2, "x")]) == []


@pytest.mark.requirement("live:hidden-preamble")
def test_without_preambles_nothing_flows_and_all_is_told_at_the_verdict() -> None:
    gate = ReplyGate(shows=False, reasoning="flows")
    told = [OPENING, text(0, "Hi."), stop(0), END]
    assert shown(gate, told) == []
    assert [*gate.rest(told)] == told


@pytest.mark.requirement("live:release")
def test_what_was_shown_is_left_out_of_what_is_told_of_the_body() -> None:
    gate = ReplyGate(shows=True, reasoning="flows")
    start = event("content", 0, "start")
    shown(gate, [OPENING, start, text(0, "Let me"), text(0, " see."), stop(0), call(1)])
    told = [OPENING, start, text(0, "Let me see. I"), stop(0), call(1), stop(1), END]
    assert [*gate.rest(told)] == [text(0, " I"), stop(0), call(1), stop(1), END]


@pytest.mark.requirement("live:release")
def test_of_a_recorded_reply_everything_up_to_its_call_may_be_shown() -> None:
    told = [OPENING, text(0, "Hi."), stop(0), call(1), stop(1), text(2, "more"), END]
    assert until_first_call(told) == [OPENING, text(0, "Hi."), stop(0)]


PIECES = st.lists(
    st.tuples(st.sampled_from(["content", "reasoning", "call"]), st.text("abc ", max_size=12)),
    max_size=6,
)


@pytest.mark.requirement("live:release")
@given(PIECES, st.data())
@settings(max_examples=300, deadline=None)
def test_what_flowed_and_the_rest_are_the_whole_reply(
    pieces: list[tuple[EventKind, str]], data: st.DataObject
) -> None:
    came: list[ReplyEvent] = [OPENING]
    told: list[ReplyEvent] = [OPENING]
    for place, (kind, words) in enumerate(pieces):
        begin, close = event(kind, place, "start"), ReplyEvent("closing", place, {}, "stop")
        cut = data.draw(st.integers(0, len(words)))
        parts = [part for part in (words[:cut], words[cut:]) if part]
        came += [begin, *(ReplyEvent(kind, place, {}, "text", part) for part in parts), close]
        whole = [ReplyEvent(kind, place, {}, "text", words)] if words else []
        told += [begin, *whole, close]
    told.append(END)

    gate = ReplyGate(shows=True, reasoning=data.draw(st.sampled_from(["flows", "waits"])))
    flowed = shown(gate, came)
    everything = [*flowed, *gate.rest(told)]
    assert joined(everything) == joined(told)
    assert all(each.kind != "call" for each in flowed)


def joined(events: Sequence[ReplyEvent]) -> dict[tuple[str, int, str], tuple[str, int]]:
    """Return the text and the number of other events of each channel."""
    channels: dict[tuple[str, int, str], tuple[str, int]] = {}
    for each in events:
        words, others = channels.get((each.kind, each.piece, each.channel), ("", 0))
        others += not each.text
        channels[each.kind, each.piece, each.channel] = words + each.text, others
    return channels
