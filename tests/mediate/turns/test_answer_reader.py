"""The runners that read one answer, each in its own time."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from tests.mediate.turns.streamed_turn import StreamedTurn, said


@pytest.mark.requirement("live:joiner")
async def test_a_runner_that_joins_gets_the_same_stream(turn: StreamedTurn) -> None:
    first = turn.stream.readers.attach()
    await turn.is_hidden("Let me look.")
    early = first.read()
    second = turn.stream.readers.attach()
    await turn.answers("You have 50.")
    first_stream, second_stream = early + first.read(), second.read()
    assert said(turn, first_stream) == said(turn, second_stream)
    ids = [
        json.loads(turn.wire.assembled(each)).get("id") for each in (first_stream, second_stream)
    ]
    assert ids[0] == ids[1]


@pytest.mark.requirement("live:back-pressure")
async def test_a_reply_is_read_only_so_far_ahead_of_its_runner(
    turn: StreamedTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claw_mediate.turns.answer_reader.MAX_AHEAD", 4096)
    reader = turn.stream.readers.attach()
    coming = asyncio.ensure_future(turn.comes("word " * 2000))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not coming.done()

    read = 0
    while not coming.done():
        chunk = reader.read()
        read += len(chunk)
        await asyncio.sleep(0)
    assert read > 4096


@pytest.mark.requirement("live:one-id")
async def test_a_keepalive_that_comes_first_gives_every_runner_the_same_id(
    turn: StreamedTurn,
) -> None:
    first, second = turn.stream.readers.attach(), turn.stream.readers.attach()
    beat = first.beat("claw round=1 waiting=model", "native")
    await turn.answers("Hello.")
    streams = [beat + first.read(), second.read()]
    frames = re.findall(rb"^data: ({.*)$", b"".join(streams), re.MULTILINE)
    ids = {id_in(json.loads(frame)) for frame in frames} - {None}
    assert ids == {turn.stream.shown.id}


def id_in(event: dict[str, Any]) -> str | None:
    """Return the id of the answer in an event of a stream; None if it has none."""
    answer = event.get("response") or event.get("message") or event
    found: str | None = answer.get("id")
    return found
