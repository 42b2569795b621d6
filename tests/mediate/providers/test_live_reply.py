"""Live replies of real providers: what is asked again, what is cut, and how far is read ahead."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.core.types import ModelResponse
from claw_mediate.dialects.anthropic.assemble import MessageAssembler
from claw_mediate.dialects.openai.assemble import ChatAssembler
from claw_mediate.dialects.responses.assemble import ResponseAssembler
from claw_mediate.dialects.streams import Assembler
from claw_mediate.providers import live_reply
from claw_mediate.providers.client import CutReply
from claw_mediate.providers.live_reply import FlowLimits, LiveCall
from tests import raw
from tests.mediate.any_reply import DIALECTS, WIRES
from tests.mediate.providers.crossroads import Crossroads, error
from tests.mediate.providers.live import (
    CALL,
    END,
    HELLO,
    OPENING,
    TEXT,
    UNLIMITED,
    Sink,
    ask,
    breaks_off,
    delta,
    event,
    hangs,
    held_at,
    post,
    stream,
)
from tests.peers import bad_key
from tests.waiting import eventually_async
from tests.wires import Made, openai

SHORT = FlowLimits(idle=0.05)
"""A silence that a test need not wait for."""


@pytest.fixture
async def roads(tmp_path: Path) -> AsyncIterator[Crossroads]:
    """Yield a provider with two keys, and one with a single key."""
    made = Crossroads(tmp_path, "openai", {"one": 2, "two": 1})
    yield made
    await made.close()


@pytest.mark.requirement("live:shown-while-it-comes")
async def test_a_reply_is_shown_event_by_event_and_returned_whole(roads: Crossroads) -> None:
    sink = Sink()
    said: list[int] = []

    async def until_shown() -> None:
        await eventually_async(lambda: sink.shown == ["Hel"], "the first words are shown")
        said.append(1)

    roads.peers["one"].says(held_at(2, HELLO, until_shown))
    assert await ask(roads, sink) == "Hello"
    assert (sink.shown, said) == (["Hel", "lo"], [1])
    assert [told.kind for told in sink.attempts[0]] == ["opening", "content", "content", "end"]


@pytest.mark.requirement("live:json-body")
async def test_one_json_body_to_a_request_for_a_stream_is_read_as_ever(roads: Crossroads) -> None:
    roads.peers["one"].says(roads.reply("whole"))
    live = LiveCall(Sink(), FlowLimits())
    result = await post(roads, live)
    assert isinstance(result, ModelResponse)
    assert openai.said(result.body).text == "whole"
    assert not live.was_streamed


@pytest.mark.requirement("live:unshown-is-asked-again")
@pytest.mark.parametrize("answer", [error(503), error(529), error(429)])
async def test_a_status_before_the_stream_fails_over(roads: Crossroads, answer: Response) -> None:
    sink = Sink()
    roads.peers["one"].says(answer, answer)
    roads.peers["two"].says(stream(*HELLO))
    assert await ask(roads, sink) == "Hello"
    assert (sink.shown, len(sink.attempts)) == (["Hel", "lo"], 1)


@pytest.mark.requirement("live:unshown-is-asked-again")
@pytest.mark.parametrize("answer", [error(503), stream(OPENING, ends=breaks_off)])
async def test_what_was_shown_of_an_earlier_round_does_not_keep_this_one_from_failing_over(
    roads: Crossroads, answer: Response
) -> None:
    sink = Sink()
    roads.peers["one"].says(stream(*HELLO), answer, answer)
    roads.peers["two"].says(stream(*HELLO))
    assert await ask(roads, sink) == "Hello"
    assert sink.has_shown
    assert await ask(roads, sink) == "Hello"
    assert roads.times() == [2, 1]


@pytest.mark.requirement("live:error-before-content")
@pytest.mark.parametrize("status", [500, 503, 529])
async def test_an_error_event_before_any_content_counts_as_its_status(
    roads: Crossroads, status: int
) -> None:
    failed = event({"error": {"status": status, "message": "busy"}})
    roads.peers["one"].says(stream(OPENING, failed))
    roads.peers["two"].says(stream(*HELLO))
    sink = Sink()
    assert await ask(roads, sink) == "Hello"
    assert roads.moves() == [f"m-one → m-two: http_{status}"]
    assert len(sink.attempts) == 2


@pytest.mark.requirement("live:error-before-content")
async def test_an_error_event_about_a_key_is_followed_by_the_next_key(roads: Crossroads) -> None:
    told = {"status": 401, "type": "authentication_error", "code": "invalid_api_key"}
    roads.peers["one"].says(
        stream(OPENING, event({"error": {**told, "message": "no such key"}})), stream(*HELLO)
    )
    assert await ask(roads, Sink()) == "Hello"
    assert [sent.split()[-1] for sent in roads.asked()["one"]] == ["sk-one-0", "sk-one-1"]


@pytest.mark.requirement("live:error-before-content")
async def test_an_error_event_of_the_request_itself_is_passed_on(roads: Crossroads) -> None:
    roads.peers["one"].says(
        stream(OPENING, event({"error": {"status": 400, "message": "your fault"}}))
    )
    assert await ask(roads, Sink()) == "400 your fault"
    assert roads.times() == [1, 0]


@pytest.mark.requirement("live:error-before-content")
async def test_where_all_fail_the_runner_gets_the_last_status(roads: Crossroads) -> None:
    roads.peers["one"].says(bad_key(), bad_key())
    roads.peers["two"].says(stream(OPENING, event({"error": {"status": 529, "message": "busy"}})))
    assert await ask(roads, Sink()) == "529 busy"


def cuts(events: Sequence[bytes]) -> list[int]:
    return list(range(len(events)))


@pytest.mark.requirement("live:cut-at-every-event")
@pytest.mark.parametrize("sent", cuts(TEXT + END[:1]))
@pytest.mark.parametrize("ends", [breaks_off, None])
async def test_a_reply_that_breaks_off_is_cut_once_shown_and_asked_again_before(
    roads: Crossroads, sent: int, ends: object
) -> None:
    """``ends`` None: the stream ends cleanly, without the protocol's end."""
    ending = breaks_off if ends else None
    for peer, rest in (("one", ending), ("two", None)):
        events = HELLO if peer == "two" else (TEXT + END)[:sent]
        roads.peers[peer].says(stream(*events, ends=rest))
    sink = Sink()
    outcome = await ask(roads, sink)

    has_shown = sent >= 2
    assert outcome == ("cut provider_broke_off" if has_shown else "Hello")
    assert roads.times() == [1, 0 if has_shown else 1]
    assert "".join(sink.shown) == {2: "Hel", 3: "Hello"}.get(sent, "Hello")


@pytest.mark.requirement("live:cut-at-every-event")
@pytest.mark.parametrize("sent", cuts(CALL + END[:1]))
async def test_a_reply_of_which_only_calls_came_is_asked_again(
    roads: Crossroads, sent: int
) -> None:
    roads.peers["one"].says(stream(*(CALL + END)[:sent], ends=breaks_off))
    roads.peers["two"].says(stream(*HELLO))
    assert await ask(roads, Sink()) == "Hello"
    assert roads.moves() == ["m-one → m-two: response_read_error"]


@pytest.mark.requirement("live:cut-at-every-event")
@pytest.mark.parametrize("sent", cuts(HELLO))
async def test_a_sink_that_shows_nothing_never_cuts(roads: Crossroads, sent: int) -> None:
    roads.peers["one"].says(stream(*HELLO[:sent], ends=breaks_off))
    roads.peers["two"].says(stream(*HELLO))
    assert await ask(roads, Sink(shows=False)) == "Hello"


ASSEMBLERS: dict[str, Callable[[], Assembler]] = {
    "openai": ChatAssembler,
    "anthropic": MessageAssembler,
    "responses": ResponseAssembler,
}


class RealSink(Sink):
    """A sink of a real protocol."""

    def __init__(self, name: str, *, shows: bool) -> None:
        super().__init__(shows=shows)
        self.name = name

    def begin(self) -> Assembler:  # type: ignore[override]
        super().begin()
        return ASSEMBLERS[self.name]()


def speaking(tmp_path: Path, name: str) -> Crossroads:
    """Return two providers of a protocol."""
    made = Crossroads(
        tmp_path, "anthropic" if name == "anthropic" else "openai", {"one": 1, "two": 1}
    )
    made.wire, made.dialect = WIRES[name], DIALECTS[name]
    body = made.wire.request([made.wire.user("Hi")], [], stream=True, more={"model": "m-one"})
    made.body = json.dumps(body)
    made.turn()
    return made


@pytest.mark.requirement("live:cut-at-every-event")
@pytest.mark.parametrize("name", ASSEMBLERS)
@pytest.mark.parametrize("shows", [True, False])
async def test_in_each_protocol_a_reply_is_cut_or_asked_again_at_every_event(
    tmp_path: Path, name: str, *, shows: bool
) -> None:
    roads = speaking(tmp_path, name)
    calls = [Made("call_1", "desk__get", '{"a": "b"}')]
    whole = [
        told + b"\n\n"
        for told in roads.wire.streamed(roads.wire.reply("Hello", calls, {})).split(b"\n\n")[:-1]
    ]
    kinds: list[str] = []
    for sent in range(len(whole) + 1):
        roads.turn()
        for peer in roads.peers.values():
            peer.forget_script()
            peer.received.clear()
        roads.peers["one"].says(stream(*whole[:sent], ends=breaks_off))
        roads.peers["two"].says(stream(*whole))
        sink = RealSink(name, shows=shows)
        result = await post(roads, LiveCall(sink, UNLIMITED))

        if isinstance(result, CutReply):
            assert (result.code, result.is_cut) == ("provider_broke_off", True)
            # A block or an item is shown when it begins.
            assert "".join(sink.shown) in {"", "Hello"}
            assert sink.shown
            assert roads.times() == [1, 0]
        else:
            assert isinstance(result, ModelResponse), result
            said = roads.wire.said(result.body)
            assert (said.text, [call.name for call in said.calls]) == ("Hello", ["desk__get"])
        kinds.append("cut" if isinstance(result, CutReply) else str(roads.times()))

    first, last = kinds[0], kinds[-1]
    assert (first, last) == ("[1, 1]", "[1, 0]"), "a reply that is over is whole"
    assert sorted(set(kinds)) == sorted({"[1, 1]", "[1, 0]", *(["cut"] if shows else [])})
    assert kinds == sorted(kinds, key=["[1, 1]", "cut", "[1, 0]"].index), "in this order"
    await roads.close()


@pytest.mark.requirement("live:too-large")
@pytest.mark.parametrize("name", ASSEMBLERS)
async def test_a_text_of_5_mb_flows_however_often_its_protocol_says_it_again(
    tmp_path: Path, name: str
) -> None:
    roads = speaking(tmp_path, name)
    text = ("word" * 1024 + " ") * 1280
    streamed = roads.wire.streamed(roads.wire.reply(text, [], {}))
    roads.peers["one"].says(stream(streamed))
    result = await post(roads, LiveCall(RealSink(name, shows=True), UNLIMITED))
    assert isinstance(result, ModelResponse), result
    assert roads.wire.said(result.body).text == text
    await roads.close()


@pytest.mark.requirement("live:shares-the-loop")
async def test_a_reply_that_is_there_at_once_leaves_others_their_turn(roads: Crossroads) -> None:
    events = [OPENING, *(delta(content="w") for _ in range(600)), *END]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in events)
    head = raw.head(200, "content-type: text/event-stream", "transfer-encoding: chunked")
    provider = raw.Peer([raw.bytes_only(head + chunks + b"0\r\n\r\n")])
    await provider.start()

    turns = 0
    shown_by_turn: Counter[int] = Counter()

    class CountingSink(Sink):
        def show(self, events: Sequence[ReplyEvent]) -> None:
            shown_by_turn[turns] += len(events)
            super().show(events)

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.ensure_future(take_turns())
    try:
        point_at(roads, provider.port)
        assert await ask(roads, CountingSink()) == "w" * 600
        assert max(shown_by_turn.values()) < 100
    finally:
        others.cancel()
        await provider.stop()


@pytest.mark.requirement("live:cut-at-every-event")
async def test_a_reply_that_is_over_does_not_wait_for_the_end_of_its_stream(
    roads: Crossroads,
) -> None:
    roads.peers["one"].says(stream(*HELLO, ends=hangs))
    assert await ask(roads, Sink()) == "Hello"


@pytest.mark.requirement("live:shown-while-it-comes")
async def test_the_connection_of_a_reply_that_has_ended_is_used_again(roads: Crossroads) -> None:
    provider = roads.peers["one"]
    ports: list[int] = []

    async def answer(request: Request) -> Response:
        assert request.client is not None
        ports.append(request.client.port)
        return stream(*HELLO)

    provider.says(answer, answer)
    assert [await ask(roads, Sink()) for _ in range(2)] == ["Hello", "Hello"]
    assert len(set(ports)) == 1


@pytest.mark.requirement("live:error-behind-content")
async def test_an_error_event_behind_shown_text_is_final_and_has_the_usage(
    roads: Crossroads,
) -> None:
    failed = event({"error": {"status": 529, "message": "busy"}})
    roads.peers["one"].says(stream(*TEXT, END[1], failed))
    result = await post(roads, LiveCall(Sink(), FlowLimits()))
    assert isinstance(result, CutReply)
    assert (result.code, result.status, result.is_cut) == ("provider_http_529", 529, False)
    assert b"busy" in (result.error or b"")
    assert result.usage == b'{"prompt_tokens": 7, "completion_tokens": 2}'
    assert roads.times() == [1, 0]


@pytest.mark.requirement("live:unreadable")
@pytest.mark.parametrize(("before", "outcome"), [(1, "Hello"), (2, "error provider_bad_response")])
async def test_an_unreadable_event_is_asked_again_or_ends_the_turn(
    roads: Crossroads, before: int, outcome: str
) -> None:
    roads.peers["one"].says(stream(*TEXT[:before], event(b"{")))
    roads.peers["two"].says(stream(*HELLO))
    assert await ask(roads, Sink()) == outcome


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
    live = LiveCall(sink, limits, on_shown=lambda: shown_at.append(loop.time()))

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


@pytest.mark.requirement("live:identity")
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_compressed_stream_is_shown_while_it_comes(roads: Crossroads, coding: str) -> None:
    sink = Sink()
    packer = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    parts = [packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH) for part in HELLO]
    parts.append(packer.flush())

    async def packed() -> AsyncIterator[bytes]:
        for number, part in enumerate(parts):
            if number == 2:
                await eventually_async(lambda: sink.shown == ["Hel"], "the first words are shown")
            yield part

    headers = {"content-encoding": coding}
    roads.peers["one"].says(
        StreamingResponse(packed(), headers=headers, media_type="text/event-stream")
    )
    assert await ask(roads, sink) == "Hello"


@pytest.mark.requirement("live:identity")
async def test_a_damaged_compressed_stream_is_a_broken_one(roads: Crossroads) -> None:
    damaged = gzip.compress(b"".join(HELLO))[:-12] + b"\xff" * 12
    headers = {"content-encoding": "gzip", "content-type": "text/event-stream"}
    roads.peers["one"].says(Response(damaged, headers=headers))
    roads.peers["two"].says(stream(*HELLO))
    assert await ask(roads, Sink(shows=False)) == "Hello"


@pytest.mark.requirement("live:runner-leaves")
async def test_a_runner_that_leaves_closes_the_connection_and_leaves_the_usage(
    roads: Crossroads,
) -> None:
    gone = asyncio.Event()
    sent = b"".join([*TEXT, END[1]])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw.head(200, "content-type: text/event-stream") + sent)
        await reader.read()
        gone.set()

    provider = raw.Peer([serve])
    await provider.start()
    try:
        point_at(roads, provider.port)
        sink = Sink()
        live = LiveCall(sink, FlowLimits())
        asking = asyncio.ensure_future(post(roads, live))
        await eventually_async(lambda: len(sink.shown) == 2, "the text is shown")
        asking.cancel()
        async with asyncio.timeout(10):
            await gone.wait()
        await asyncio.wait([asking])
        assert asking.cancelled()
        assert live.usage == b'{"prompt_tokens": 7, "completion_tokens": 2}'
    finally:
        await provider.stop()


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


def point_at(roads: Crossroads, port: int) -> None:
    """Let the first provider be the one at this port, alone."""
    candidate = roads.route.candidates[0]
    moved = replace(candidate.provider, base_url=f"http://127.0.0.1:{port}")
    roads.route.candidates = [replace(candidate, provider=moved)]
