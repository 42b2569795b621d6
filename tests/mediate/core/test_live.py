"""The part of a reply that flows while it comes, and the part that is told afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from claw_mediate.core.live import Reasoning, ReplyGate, until_first_call
from claw_mediate.core.reply_events import CallPart, EventKind, ReplyEvent

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
    passing = [each for one in events for each in gate.let_pass(one)]
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
    assert not gate.let_pass(OPENING)
    assert not gate.has_shown
    assert gate.let_pass(text(0, "Hi")) == [OPENING, text(0, "Hi")]


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


def part(
    piece: int, words: str = "", *, tool: str = "shell", call_id: str = "", number: int = 0
) -> ReplyEvent:
    """Return an event of a call; one with ``words`` is of its arguments."""
    own = CallPart(number, call_id or f"call_{piece}_{number}", tool)
    channel = f"{number}.arguments" if words else f"{number}.start"
    return ReplyEvent("call", piece, {}, channel, words, own)


def end(piece: int) -> ReplyEvent:
    own = CallPart(0, f"call_{piece}_0", "shell", closes=True)
    return ReplyEvent("call", piece, {}, "stop", call=own)


def early() -> ReplyGate:
    return ReplyGate(shows=True, reasoning="flows", early={"shell", "edit"})


@pytest.mark.requirement("live:early-calls")
def test_a_call_flows_where_only_the_runners_tools_can_be_called() -> None:
    gate = early()
    events = [OPENING, text(0, "So."), stop(0), part(1), part(1, '{"cmd":'), part(1, '"ls"}')]
    assert shown(gate, [*events, end(1)]) == events
    assert gate.has_shown_call
    assert not gate.has_call
    # The end of a call waits for what comes next, as that of a text does.
    assert shown(gate, [part(2, tool="edit")]) == [end(1), part(2, tool="edit")]
    assert shown(gate, [text(3, "And"), end(2)]) == [text(3, "And")]


@pytest.mark.requirement("live:early-calls")
@pytest.mark.parametrize(
    "late",
    [
        part(1, tool="desk__trade"),
        part(1, tool="invented"),
        replace(part(1), call=CallPart(0, "", "shell")),
        part(1, call_id="call_0_0"),
        call(1),
    ],
)
def test_a_call_that_is_not_certain_to_be_the_runners_waits_with_all_behind_it(
    late: ReplyEvent,
) -> None:
    gate = early()
    first = [OPENING, part(0), part(0, "{}")]
    assert shown(gate, first) == first
    assert shown(gate, [end(0), late, part(2), text(3, "And.")]) == []
    assert gate.has_call


@pytest.mark.requirement("live:early-calls")
def test_a_call_waits_until_its_name_is_whole() -> None:
    gate = early()
    assert shown(gate, [OPENING, part(0, tool=""), part(0, tool="")]) == []
    first = part(0, "{", tool="shell")
    assert shown(gate, [first]) == [OPENING, part(0, tool=""), part(0, tool=""), first]
    assert shown(gate, [part(0, "}")]) == [part(0, "}")]

    gate = early()
    assert shown(gate, [part(0, tool=""), part(0, "{", tool="shell_of_the_pod")]) == []
    assert gate.has_call


@pytest.mark.requirement("live:early-calls")
def test_parts_of_a_call_behind_the_nameless_beginning_of_another_wait() -> None:
    gate = early()
    shown(gate, [OPENING, part(0), part(0, "{")])
    assert shown(gate, [part(0, tool="", number=1), part(0, "}"), text(1, "x")]) == []
    assert gate.has_call


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

    reasoning: Reasoning = data.draw(st.sampled_from(["flows", "waits"]))
    tools = data.draw(st.sampled_from([(), ("shell",)]))
    gate = ReplyGate(shows=True, reasoning=reasoning, early=tools)
    flowed = shown(gate, [*map(named, came)])
    everything = [*flowed, *gate.rest(told)]
    assert joined(everything) == joined(told)
    for each in flowed:
        assert each.kind != "call" or (tools and each.call and each.call.tool == "shell")


def named(event: ReplyEvent) -> ReplyEvent:
    """Return an event of a call with what its assembler says of it."""
    if event.kind != "call":
        return event
    tool = ("shell", "desk__trade")[event.piece % 2]
    return replace(event, call=CallPart(0, f"call_{event.piece}", tool))


def joined(events: Sequence[ReplyEvent]) -> dict[tuple[str, int, str], tuple[str, int]]:
    """Return the text and the number of other events of each channel."""
    channels: dict[tuple[str, int, str], tuple[str, int]] = {}
    for each in events:
        words, others = channels.get((each.kind, each.piece, each.channel), ("", 0))
        others += not each.text
        channels[each.kind, each.piece, each.channel] = words + each.text, others
    return channels
