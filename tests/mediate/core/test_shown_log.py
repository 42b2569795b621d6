"""The log of what was shown, as each runner reads it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.core.shown_log import NEXT_REPLY, Cursor, Entry, ShownLog, ShownText


def text(words: str, piece: int = 0) -> ReplyEvent:
    return ReplyEvent("content", piece, {}, "text", words)


def start(piece: int) -> ReplyEvent:
    return ReplyEvent("content", piece, {"start": piece}, "start")


def said(entries: list[Entry]) -> list[str]:
    """Return the texts that were read, those of one piece joined, and a mark for all else."""
    words: list[str] = []
    is_text = False
    for each in entries:
        assert not isinstance(each, ShownText)
        if isinstance(each, ReplyEvent) and each.text:
            if is_text:
                words[-1] += each.text
            else:
                words.append(each.text)
            is_text = True
        else:
            words.append("|")
            is_text = False
    return words


@pytest.mark.requirement("live:joiner")
def test_a_runner_that_joins_reads_everything_from_the_beginning() -> None:
    log = ShownLog()
    first = Cursor()
    log.add(start(0))
    log.add(text("One "))
    assert [*log.read(first)] == [start(0), text("One ")]
    log.add(text("two "))
    assert [*log.read(first)] == [text("two ")]
    log.begin_reply()
    log.add(text("three"))
    assert [*log.read(first)] == [NEXT_REPLY, text("three")]
    assert [*log.read(Cursor())] == [
        start(0),
        text("One "),
        text("two "),
        NEXT_REPLY,
        text("three"),
    ]


@pytest.mark.requirement("live:stored-once")
def test_a_text_is_stored_once_however_many_parts_it_came_in() -> None:
    log = ShownLog()
    for _ in range(100_000):
        log.add(text("word "))
    assert len(log) == 1
    read = [*log.read(Cursor())]
    assert "".join(each.text for each in read if isinstance(each, ReplyEvent)) == "word " * 100_000
    assert len(read) < 1_000


@pytest.mark.requirement("live:parts-stay")
@pytest.mark.parametrize("parts", [1, 100, 255, 256, 511, 512, 700])
def test_a_runner_that_is_not_far_behind_gets_the_parts_as_they_came(parts: int) -> None:
    log = ShownLog()
    cursor = Cursor()
    words = [f"{number} " for number in range(3 * parts)]
    read: list[str] = []
    for begin in range(0, len(words), 200):
        for word in words[begin : begin + 200]:
            log.add(text(word))
        read += [each.text for each in log.read(cursor) if isinstance(each, ReplyEvent)]
    assert read == words


@pytest.mark.requirement("live:release")
def test_the_parts_of_a_text_that_is_told_stay_as_they_are_told() -> None:
    log = ShownLog()
    log.add(text("came "))
    log.add_told(text("told "))
    log.add_told(text("in parts"))
    assert [*log.read(Cursor())] == [text("came "), text("told "), text("in parts")]
    assert log.words(0).text == "came told in parts"


@pytest.mark.requirement("live:back-pressure")
def test_a_cursor_knows_how_far_behind_it_is() -> None:
    log = ShownLog()
    cursor = Cursor()
    log.add(text("12345"))
    assert log.size - cursor.size == 5
    reading = log.read(cursor)
    next(reading)
    assert log.size == cursor.size


@pytest.mark.requirement("live:joiner")
@given(
    st.lists(
        st.one_of(st.text("ab", min_size=1, max_size=20), st.integers(0, 1), st.none()),
        max_size=40,
    ),
    st.lists(st.booleans(), max_size=40),
)
@settings(max_examples=200, deadline=None)
def test_every_runner_reads_the_same_whenever_it_looks(
    added: list[str | int | None], looks: list[bool]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("claw_mediate.core.shown_log._BLOCK_PARTS", 3)
        read_at_any_time(added, looks)


def read_at_any_time(added: list[str | int | None], looks: list[bool]) -> None:
    log = ShownLog()
    early = Cursor()
    read: list[Entry] = []
    for place, each in enumerate(added):
        match each:
            case str():
                log.add(text(each))
            case int():
                log.add(start(each))
            case None:
                log.begin_reply()
        if place < len(looks) and looks[place]:
            read += log.read(early)
    read += log.read(early)

    late = Cursor()
    assert said([*log.read(late)]) == said(read)
    assert early.size == late.size == log.size
    assert [*log.read(early)] == []
