"""The times that the log tells of a turn's stream."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from claw_mediate.core.types import Round
from tests.mediate.turns.streamed_turn import CALL, CATALOG, WIRES, TimedTurn


@pytest.mark.requirement("live:observed")
async def test_the_times_of_a_stream_are_those_of_its_first_content_and_of_what_it_held(
    timed: TimedTurn,
) -> None:
    timed.now = 10.0  # Until then, the request was read and admitted
    body = await timed.begins("Look:", CALL)
    timed.now = 60.0
    assert timed.first_call is not None
    timed.stream.note_verdict()
    response = timed.dialect.read_response(body, CATALOG)
    timed.now = 70.0  # Its tool has run
    timed.stream.drop([Round(1, response, ())])

    first = timed.stream.figures()
    assert first.ttft_ms is not None
    assert 10_000 < first.ttft_ms < timed.first_call * 1000
    assert first.upstream_ttft_ms == first.ttft_ms - 10_000
    assert first.held_ms == 60_000 - timed.first_call * 1000
    assert (first.shown, first.shown_rounds) == ({1: (len("Look:"), 0)}, 1)

    await timed.begins("Done.")
    later = timed.stream.figures()
    assert replace(later, shown={}) == replace(first, shown={})
    assert later.shown_rounds == 2


@pytest.mark.requirement("live:observed")
async def test_a_recorded_reply_says_nothing_of_the_providers_time(timed: TimedTurn) -> None:
    timed.now = 5.0
    recorded = timed.wire.reply("Look:", CALL, {})
    timed.stream.replay(recorded)
    figures = timed.stream.figures()
    assert (figures.ttft_ms, figures.upstream_ttft_ms, figures.held_ms) == (5000, None, 0)

    timed.stream.drop([Round(1, timed.dialect.read_response(recorded, CATALOG), ())])
    timed.now = 8.0
    await timed.begins("Done.")
    figures = timed.stream.figures()
    assert figures.ttft_ms == 5000
    assert figures.upstream_ttft_ms is not None
    assert 1000 <= figures.upstream_ttft_ms <= (timed.now - 8) * 1000
    assert figures.shown_rounds == 2


@pytest.mark.requirement("live:observed")
async def test_a_reply_without_words_shows_nothing_and_one_that_waits_shows_it_later(
    timed: TimedTurn,
) -> None:
    await timed.begins("", CALL)
    assert timed.stream.figures().ttft_ms is None
    assert timed.stream.figures().upstream_ttft_ms is not None
    assert timed.stream.figures().shown_rounds == 0

    waiting = TimedTurn(
        next(name for name, wire in WIRES.items() if wire is timed.wire), shows=False
    )
    body = await waiting.begins("Done.")
    assert waiting.stream.figures().ttft_ms is None
    waiting.now = 90.0
    waiting.stream.release(body, terminal=False)
    assert waiting.stream.figures().ttft_ms == 90_000
    assert waiting.stream.figures().shown_rounds == 1
