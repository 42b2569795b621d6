"""The answer of a turn as its runner gets it: whole, or as a stream that is kept alive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from claw_mediate.core.http import RunnerResponse
from claw_mediate.settings import KeepaliveKind, Pace
from claw_mediate.turns.response import Beats, ClientStream
from tests.turns.desk import Desk


def keeps_alive(desk: Desk) -> None:
    """Let the desk's streams begin, and be kept alive, while a tool runs."""
    desk.settings = replace(
        desk.settings,
        keepalive=0.01,
        keepalive_first=0.01,
        keepalive_openai="comment",
        keepalive_anthropic="comment",
        keepalive_responses="comment",
    )
    desk.open()
    desk.stream = True
    desk.messages = [desk.wire.user("How much?")]


async def begun(desk: Desk) -> RunnerResponse:
    exchange = await desk.mediator.exchange(desk.admitted(), desk.request())
    assert isinstance(exchange, RunnerResponse)
    return exchange


@pytest.mark.requirement("live:beats")
def test_of_the_keepalives_of_a_silent_stream_one_is_an_event_after_30_s_and_then_every_15_s() -> (
    None
):
    beats = Beats(Pace(10.0, 5.0, "auto", names_tools=True), 0.0)
    kinds = {now: beats.take(float(now)) for now in range(70)}
    natives = [now for now, kind in kinds.items() if kind == "native"]
    assert [now for now, kind in kinds.items() if kind is not None] == [*range(0, 70, 5)]
    assert natives == [30, 45, 60]

    beats.note_sent(72.0)
    assert beats.seconds_left(72.0) == 5.0
    kinds = {now: beats.take(float(now)) for now in range(73, 125)}
    assert [now for now, kind in kinds.items() if kind == "native"] == [102, 117]


@pytest.mark.requirement("live:beats")
@pytest.mark.parametrize("kind", ["comment", "native", "off"])
def test_a_kind_that_was_set_is_that_of_every_keepalive(kind: KeepaliveKind) -> None:
    beats = Beats(Pace(10.0, 5.0, kind, names_tools=True), 0.0)
    kinds = [beats.take(float(now)) for now in range(0, 100, 5)]
    assert kinds == [None if kind == "off" else kind] * 20
    assert (beats.seconds_left(96.0) is None) is (kind == "off")


@pytest.mark.requirement("stream:keepalive")
async def test_a_stream_is_kept_alive_while_a_tool_runs_and_then_has_the_answer(
    desk: Desk,
) -> None:
    keeps_alive(desk)
    gate = desk.services.gates["desk.balance"] = asyncio.Event()
    desk.model_says(("desk.balance", {}))
    desk.model_says("Fifty.")
    response = await begun(desk)
    assert (response.status, response.streaming) == (200, True)

    chunks: list[bytes] = []
    async for chunk in response.chunks:
        chunks.append(chunk)
        if len(chunks) == 3:
            assert all(each.startswith(b":") for each in chunks)
            gate.set()
    answer = b"".join(chunk for chunk in chunks if not chunk.startswith(b":"))
    assert desk.wire.said(desk.wire.assembled(answer)).text == "Fifty."


@pytest.mark.requirement("live:keepalive-names")
@pytest.mark.parametrize(("names", "waiting"), [(True, b"desk.balance"), (False, b"tool")])
async def test_a_keepalive_names_the_tool_only_if_the_setting_says_so(
    desk: Desk, names: bool, waiting: bytes
) -> None:
    keeps_alive(desk)
    desk.settings = replace(desk.settings, keepalive_names=names)
    desk.open()
    gate = desk.services.gates["desk.balance"] = asyncio.Event()
    desk.model_says(("desk.balance", {}))
    desk.model_says("Fifty.")
    response = await begun(desk)

    notes: set[bytes] = set()
    async for chunk in response.chunks:
        if chunk.startswith(b":"):
            notes.add(chunk)
            gate.set()
    assert any(b"round=1 waiting=" + waiting + b"\n" in note for note in notes)
    assert names or not any(b"balance" in note for note in notes)


@pytest.mark.requirement("stream:error-event")
async def test_an_error_behind_the_beginning_of_a_stream_is_its_last_event(desk: Desk) -> None:
    keeps_alive(desk)
    gate = desk.services.gates["desk.balance"] = asyncio.Event()
    desk.model_says(("desk.balance", {}))
    desk.model_refuses(400, "invalid_request")
    response = await begun(desk)
    assert response.status == 200

    chunks: list[bytes] = []
    async for chunk in response.chunks:
        chunks.append(chunk)
        gate.set()
    assert b"error" in chunks[-1]
    assert not any(b"error" in chunk for chunk in chunks[:-1])


@pytest.mark.requirement("stream:status-until-it-goes-on")
async def test_an_error_before_a_stream_begins_is_json_with_its_own_status(desk: Desk) -> None:
    desk.stream = True
    desk.messages = [desk.wire.user("How much?")]
    desk.model_refuses(400, "invalid_request")
    response = await begun(desk)
    assert (response.status, response.streaming) == (400, False)
    assert "error" in json.loads(b"".join([chunk async for chunk in response.chunks]))


async def three() -> AsyncGenerator[bytes]:
    for chunk in (b"1", b"2", b"3"):
        yield chunk


@pytest.mark.requirement("runner:leaves-before-the-first-chunk")
@pytest.mark.parametrize("read", [0, 1, 3])
async def test_a_runner_that_leaves_a_stream_is_told_of_once_however_much_it_read(
    read: int,
) -> None:
    left: list[None] = []
    stream = ClientStream(three(), lambda: left.append(None))
    for _ in range(read):
        await anext(stream)
    assert left == []
    await stream.aclose()
    await stream.aclose()
    assert len(left) == 1


@pytest.mark.requirement("runner:leaves-before-the-first-chunk")
async def test_a_stream_that_is_read_to_its_end_is_left() -> None:
    left: list[None] = []
    stream = ClientStream(three(), lambda: left.append(None))
    assert [chunk async for chunk in stream] == [b"1", b"2", b"3"]
    assert len(left) == 1
