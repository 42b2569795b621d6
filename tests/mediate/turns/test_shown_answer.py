"""The words that a turn has shown, over all of its replies."""

from __future__ import annotations

import pytest

from tests.mediate.turns.streamed_turn import StreamedTurn, TimedTurn, said


@pytest.mark.requirement("live:one-lifecycle")
async def test_two_hidden_rounds_and_an_answer_are_one_stream(turn: StreamedTurn) -> None:
    reader = turn.stream.readers.attach()
    await turn.is_hidden("Let me look.")
    await turn.is_hidden("And once more.")
    answer = await turn.answers("You have 50.")
    stream = reader.read()

    text = "Let me look.\n\nAnd once more.\n\nYou have 50."
    whole = text if turn.dialect.split_rules.joins_text else text.replace("\n\n", "")
    assert said(turn, stream).text == whole
    assert said(turn, stream).calls == ()
    assert b"desk__balance" not in stream
    assert turn.wire.said(answer).text == whole


@pytest.mark.requirement("live:one-lifecycle")
async def test_the_words_of_each_reply_are_known_apart(turn: StreamedTurn) -> None:
    await turn.is_hidden("Let me look.")
    assert turn.stream.shown.rounds[1].text == "Let me look."
    assert turn.stream.shown.last_words().text == ""
    await turn.answers("You have 50.")
    assert turn.stream.shown.last_words().text == "You have 50."
    between = 2 if turn.dialect.split_rules.joins_text else 0
    assert turn.stream.figures().shown == {1: (12, 0), 2: (12 + between, 0)}


@pytest.mark.requirement("live:observed")
async def test_a_reply_that_fails_is_a_round_that_has_shown_something(timed: TimedTurn) -> None:
    await timed.begins("Half of an ans")
    figures = timed.stream.figures()
    assert figures.shown == {1: (len("Half of an ans"), 0)}
    assert figures.held_ms == 0


@pytest.mark.requirement("live:observed")
async def test_what_is_put_between_two_replies_is_counted_with_the_second(timed: TimedTurn) -> None:
    await timed.is_hidden("Let me look.")
    await timed.is_hidden("And once more.")
    words = [each.text for each in timed.stream.shown.words().values()]
    answer = await timed.answers("You have 50.")
    assert "".join(words) + timed.stream.shown.words()[3].text == timed.wire.said(answer).text
