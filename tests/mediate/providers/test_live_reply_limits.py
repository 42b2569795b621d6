"""The limits of a live reply: of its silence, its time and its size, and how far it is read ahead."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from starlette.responses import StreamingResponse

from claw_mediate.core.types import ModelResponse
from claw_mediate.providers import live_reply
from claw_mediate.providers.client import CutReply
from claw_mediate.providers.live_reply import FlowLimits, LiveReply
from tests import raw
from tests.mediate.providers.crossroads import Crossroads
from tests.mediate.providers.live import (
    CALL,
    END,
    HELLO,
    OPENING,
    TEXT,
    Sink,
    ask,
    delta,
    hangs,
    held_at,
    point_at,
    post,
    stream,
)
from tests.waiting import eventually_async

SHORT = FlowLimits(idle=0.05)
"""A silence that a test need not wait for."""


@pytest.mark.requirement("live:idle")
@pytest.mark.parametrize(
    ("sent", "outcome"), [(TEXT, "cut provider_idle"), (CALL, "Hello"), (HELLO, "Hello")]
)
async def test_a_reply_that_falls_silent_is_cut_or_asked_again_or_whole(
    roads: Crossroads, sent: list[bytes], outcome: str
) -> None:
    roads.peers["one"].says(stream(*sent, ends=hangs))
    roads.peers["two"].says(stream(*HELLO))
    assert await ask(roads, Sink(), SHORT) == outcome
    assert roads.times() == [1, int(sent is CALL)]


@pytest.mark.requirement("live:idle")
async def test_silence_before_any_content_is_thinking(roads: Crossroads) -> None:
    go = threading.Event()
    sink = Sink()
    started = asyncio.get_running_loop().time()

    async def until_long_after() -> None:
        await eventually_async(go.is_set, "more time than that of a silence is over")

    roads.peers["one"].says(held_at(1, HELLO, until_long_after))
    asking = asyncio.ensure_future(ask(roads, sink, SHORT))
    await eventually_async(lambda: bool(sink.attempts and sink.attempts[0]), "it has begun")
    loop = asyncio.get_running_loop()
    await eventually_async(lambda: loop.time() > started + 3 * SHORT.idle, "time goes by")
    go.set()
    assert await asking == "Hello"


@pytest.mark.requirement("live:idle")
async def test_a_slow_runner_is_no_silence_of_the_provider(roads: Crossroads) -> None:
    sink = Sink()
    sink.fast.clear()
    roads.peers["one"].says(stream(*HELLO))
    asking = asyncio.ensure_future(ask(roads, sink, SHORT))
    await eventually_async(lambda: bool(sink.shown), "something is shown")
    loop = asyncio.get_running_loop()
    shown_at = loop.time()
    await eventually_async(lambda: loop.time() > shown_at + 3 * SHORT.idle, "time goes by")
    sink.fast.set()
    assert await asking == "Hello"


@pytest.mark.requirement("live:max")
async def test_a_reply_that_flows_for_too_long_is_cut(roads: Crossroads) -> None:
    roads.peers["one"].says(StreamingResponse(endless(), media_type="text/event-stream"))
    assert await ask(roads, Sink(), FlowLimits(total=0.1)) == "cut live_max_exceeded"


@pytest.mark.requirement("live:max")
@pytest.mark.parametrize("ends", [True, False])
async def test_the_time_that_a_slow_runner_takes_is_none_in_which_the_reply_flows(
    roads: Crossroads, *, ends: bool
) -> None:
    """``ends``: the reply; otherwise it flows for too long once the runner reads."""
    body = stream(*HELLO) if ends else StreamingResponse(endless(), media_type="text/event-stream")
    roads.peers["one"].says(body)
    limits = FlowLimits(total=0.1)
    loop = asyncio.get_running_loop()
    shown_at: list[float] = []
    sink = Sink()
    sink.fast.clear()
    live = LiveReply(sink, limits, on_shown=lambda: shown_at.append(loop.time()))

    asking = asyncio.ensure_future(post(roads, live))
    await eventually_async(lambda: bool(shown_at), "the turn knows that something was shown")
    await eventually_async(lambda: loop.time() > shown_at[0] + 3 * limits.total, "time goes by")
    assert not asking.done()
    sink.fast.set()
    result = await asking
    if ends:
        assert isinstance(result, ModelResponse)
        assert live.flow_seconds < 3 * limits.total
    else:
        assert isinstance(result, CutReply)
        assert (result.code, result.is_cut) == ("live_max_exceeded", True)
        assert live.flow_seconds >= limits.total


@pytest.mark.requirement("live:unread")
async def test_a_runner_that_takes_nothing_is_not_waited_for_forever(roads: Crossroads) -> None:
    sink = Sink()
    sink.fast.clear()
    roads.peers["one"].says(StreamingResponse(endless(), media_type="text/event-stream"))
    assert await ask(roads, sink, FlowLimits(unread=0.1)) == "cut runner_not_reading"


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield delta(content="more")
        await asyncio.sleep(0.005)


@pytest.mark.requirement("live:first-event-ends-candidate")
async def test_a_candidate_that_has_begun_is_not_failed_over_for_its_time(
    roads: Crossroads,
) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    go = threading.Event()

    async def until_its_time_is_over() -> None:
        await eventually_async(go.is_set, "the candidate's time is over")

    roads.peers["one"].says(held_at(1, HELLO, until_its_time_is_over))
    sink = Sink()
    asking = asyncio.ensure_future(ask(roads, sink, seconds=1.0))
    await eventually_async(lambda: loop.time() > started + 0.7, "more than half of the time")
    go.set()
    assert await asking == "Hello"
    assert roads.times() == [1, 0]


@pytest.mark.requirement("live:first-event-ends-candidate")
async def test_a_candidate_without_any_event_has_half_of_the_time(roads: Crossroads) -> None:
    roads.peers["one"].says(stream(b": ping\n\n", ends=hangs))
    roads.peers["two"].says(stream(*HELLO))
    assert await ask(roads, Sink(), seconds=1.0) == "Hello"
    assert roads.moves() == ["m-one → m-two: provider_timeout"]


@pytest.mark.requirement("live:too-large")
@pytest.mark.parametrize(
    ("limit", "events"),
    [
        ("MAX_REPLY_BYTES", [OPENING, *[delta(content="x" * 300)] * 5]),
        ("MAX_HELD_BYTES", [*CALL, *[delta(content="x" * 300)] * 5]),
    ],
)
async def test_a_reply_above_its_limits_is_too_large(
    roads: Crossroads, monkeypatch: pytest.MonkeyPatch, limit: str, events: list[bytes]
) -> None:
    monkeypatch.setattr(live_reply, limit, 1000)
    for peer in roads.peers.values():
        peer.says(stream(*events, *END))
    assert await ask(roads, Sink(shows=False)) == "502 provider_response_too_large"
    for peer in roads.peers.values():
        peer.says(stream(*events, *END))
    outcome = await ask(roads, Sink())
    assert outcome == (
        "error provider_response_too_large"
        if limit == "MAX_REPLY_BYTES"
        else "502 provider_response_too_large"
    )


@pytest.mark.requirement("live:read-ahead")
async def test_a_provider_is_read_no_further_while_the_runner_is_slow(roads: Crossroads) -> None:
    whole = 64 << 20
    written = 0
    chunk = delta(content="x" * 1000) * 64

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(raw.head(200, "content-type: text/event-stream"))
        while written < whole:
            writer.write(chunk)
            await writer.drain()
            written += len(chunk)

    provider = raw.Peer([serve])
    await provider.start()
    try:
        point_at(roads, provider.port)
        sink = Sink()
        sink.fast.clear()
        asking = asyncio.ensure_future(ask(roads, sink))
        counts: list[int] = []

        def is_stuck() -> bool:
            counts.append(written)
            return len(counts) > 20 and counts[-1] == counts[-20] > 0

        await eventually_async(is_stuck, "the provider can write no more")
        assert written < whole
        assert len(sink.attempts[0]) <= 256 * 1024 // len(delta(content="x" * 1000)) + 1
        asking.cancel()
        await asyncio.wait([asking])
    finally:
        await provider.stop()
