"""The log's members about a turn's stream, and history's text of one that failed."""

from __future__ import annotations

import pytest

from tests.turns.desk import Desk, with_tools

STREAM_MEMBERS = ("stream_mode", "ttft_ms", "upstream_ttft_ms", "held_ms", "shown_rounds")


@pytest.mark.buffered
@pytest.mark.requirement("live:observed")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_buffered_turn_says_so_where_its_runner_asked_for_a_stream(
    desk: Desk, stream: bool
) -> None:
    desk.stream = stream
    desk.model_says(("desk.balance", {}))
    desk.model_says("Done.")
    await desk.asks("Go")
    (ended,) = desk.told("response")
    told = {name: ended[name] for name in STREAM_MEMBERS if name in ended}
    assert told == ({"stream_mode": "buffered"} if stream else {})
    assert "shown" not in desk.history()[-1]["tool_trace"][0]


@with_tools
@pytest.mark.requirement("live:observed")
async def test_a_live_turn_tells_its_times_and_what_each_round_showed(desk: Desk) -> None:
    streams_live(desk)
    desk.model_says(("desk.balance", {}))
    desk.model_says("I look it up.", ("desk.quote", {}))
    desk.model_says("Done.")
    await desk.asks("Go")
    (ended,) = desk.told("response")
    assert (ended["stream_mode"], ended["shown_rounds"]) == ("live", 2)
    assert 0 <= ended["upstream_ttft_ms"] <= ended["ttft_ms"]
    assert ended["held_ms"] >= 0
    shown = [past.get("shown") for past in desk.history()[-1]["tool_trace"]]
    assert shown == [None, len("I look it up.")]


@with_tools
@pytest.mark.requirement("live:observed")
async def test_a_live_turn_that_fails_keeps_the_text_that_it_showed(desk: Desk) -> None:
    streams_live(desk)
    desk.model_says("Let me look.", ("desk.balance", {}))
    desk.model_fails("provider_broke_off")
    await desk.asks("Go")
    line = desk.history()[-1]
    assert line["response"]["shown"] == "Let me look."
    assert line["tool_trace"][0]["shown"] == len("Let me look.")
    (ended,) = [event for event in desk.told("error") if "stream_mode" in event]
    assert (ended["stream_mode"], ended["shown_rounds"]) == ("live", 1)
    assert ended["ttft_ms"] >= 0


def streams_live(desk: Desk) -> None:
    desk.stream = True
    desk.live = True
    desk.grant(*desk.tools)
