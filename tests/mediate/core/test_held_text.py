"""The part of an answer that a runner holds, left out of its stream."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.core.held_text import (
    MAX_SHOWN_BYTES,
    HeldText,
    ShownRecord,
    UnheldLog,
    compact,
    may_be_beginning,
    read_shown,
    visible_text,
    write_shown,
)
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.core.shown_log import Cursor, NextReply, ShownLog

OPENING = ReplyEvent("opening", 0, {})


def text(words: str, piece: int = 0) -> ReplyEvent:
    return ReplyEvent("content", piece, {}, "text", words)


def start(piece: int) -> ReplyEvent:
    return ReplyEvent("content", piece, {"start": piece}, "start")


def closing(piece: int) -> ReplyEvent:
    return ReplyEvent("closing", piece, {}, "stop")


def passed(held: HeldText, *events: ReplyEvent) -> list[ReplyEvent]:
    return [each for event in events for each in held.pass_on(event, is_known=True)]


@pytest.mark.requirement("live:continuation")
def test_a_piece_that_is_held_leaves_whole_and_the_next_one_stays() -> None:
    held = HeldText("One two.")
    first = (OPENING, start(0), text("One  two."), closing(0))
    second = (start(1), text("Three.", 1), closing(1))
    assert passed(held, *first, *second) == [OPENING, *second]


@pytest.mark.requirement("live:continuation")
def test_of_a_piece_that_is_held_in_part_the_rest_is_left_or_all_of_it() -> None:
    piece = (start(0), text("One two."), closing(0))
    assert passed(HeldText("One"), *piece) == [start(0), text(" two."), closing(0)]
    assert passed(HeldText("One", whole_pieces=True), *piece) == [*piece]


@pytest.mark.requirement("live:continuation")
def test_words_of_an_unfinished_reply_between_two_rounds_are_passed_over() -> None:
    held = HeldText("First. It was Second.")
    assert passed(held, text("First.")) == []
    held.begin_reply()
    assert passed(held, text("Second.")) == []
    held.begin_reply()
    assert passed(held, text("Third.")) == [text("Third.")]


@pytest.mark.requirement("live:continuation")
def test_a_new_reply_is_shown_whole_though_it_begins_with_the_same_words() -> None:
    held = HeldText("First. It was")
    assert passed(held, text("First.")) == []
    held.begin_reply()
    assert [*held.pass_on(text("It was so."), is_known=False)] == [text("It was so.")]


@pytest.mark.requirement("live:continuation")
def test_calls_and_the_end_are_nobodys_to_hold() -> None:
    call, end = ReplyEvent("call", 0, {}, "call"), ReplyEvent("end", 0, {}, "end")
    assert passed(HeldText("One"), text("One"), call, end) == [call, end]


@pytest.mark.requirement("live:continuation")
@given(st.text("ab \n", max_size=30), st.integers(0, 30), st.lists(st.integers(0, 30)))
def test_any_beginning_and_its_rest_are_the_text(whole: str, end: int, cuts: list[int]) -> None:
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    log = ShownLog()
    for begin, stop in itertools.pairwise(places):
        log.add(text(whole[begin:stop]))

    held = whole[:end]
    unheld = UnheldLog(log, HeldText(held), lambda: len(log))
    rest = [event for event in unheld.read(Cursor()) if not isinstance(event, NextReply)]
    assert compact(held + visible_text(rest)) == compact(whole)


@pytest.mark.requirement("live:shown-record")
def test_the_record_of_a_long_text_is_its_beginning_and_says_so() -> None:
    assert read_shown(write_shown("One \n two")) == ShownRecord("Onetwo", is_whole=True)
    long = "\N{EURO SIGN}" * MAX_SHOWN_BYTES
    record = read_shown(write_shown(long))
    assert not record.is_whole
    assert long.startswith(record.text)
    assert may_be_beginning(long, record)


@pytest.mark.requirement("live:settled-after-a-kill")
def test_of_a_record_in_part_either_text_begins_the_other_over_20_characters() -> None:
    recorded = ShownRecord("Letmebuy.", is_whole=False)
    assert may_be_beginning("Let me", recorded)
    assert may_be_beginning("Let me buy. It was bought.", recorded)
    assert not may_be_beginning("Let me buy. It", recorded)
    assert may_be_beginning("Let me buy. It", recorded, is_session_named=True)
    assert not may_be_beginning("Let me sell. It was sold to all.", recorded)
    assert not may_be_beginning(" ", recorded, is_session_named=True)
    assert not may_be_beginning("Let me buy. It was bought.", recorded._replace(is_whole=True))
