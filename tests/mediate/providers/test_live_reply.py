"""Live replies of real providers: what is asked again, what is cut, and how far is read ahead."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.core.types import ModelResponse
from claw_mediate.providers.client import CutReply
from claw_mediate.providers.live_reply import FlowLimits, LiveReply
from tests import raw
from tests.mediate.providers.crossroads import Crossroads, error
from tests.mediate.providers.live import (
    CALL,
    END,
    HELLO,
    OPENING,
    TEXT,
    Sink,
    ask,
    breaks_off,
    delta,
    event,
    hangs,
    held_at,
    point_at,
    post,
    stream,
)
from tests.peers import bad_key
from tests.waiting import eventually_async
from tests.wires import openai


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
    live = LiveReply(Sink(), FlowLimits())
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


@pytest.mark.requirement("live:shown-while-it-comes", "live:error-behind-content")
@pytest.mark.parametrize(
    ("failing", "outcome"),
    [
        (event({"error": {"status": 503, "message": "busy"}}), "error provider_http_503"),
        (b"data: {\n\n", "error provider_bad_response"),
    ],
)
async def test_what_came_with_an_error_in_one_piece_is_shown_before_it(
    roads: Crossroads, failing: bytes, outcome: str
) -> None:
    head = raw.head(200, "content-type: text/event-stream", "transfer-encoding: chunked")
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in [*TEXT, failing])
    provider = raw.Peer([raw.bytes_only(head + chunks)])
    await provider.start()
    try:
        point_at(roads, provider.port)
        sink = Sink()
        assert await ask(roads, sink) == outcome
        assert sink.shown == ["Hel", "lo"]
    finally:
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
    result = await post(roads, LiveReply(Sink(), FlowLimits()))
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
        live = LiveReply(sink, FlowLimits())
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
