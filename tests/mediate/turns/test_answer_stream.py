"""The stream of an answer, from the provider's events to the bytes of each runner."""

from __future__ import annotations

import pytest

from claw_contract.sse import SseReader
from tests.mediate.turns.streamed_turn import CALL, WIRES, StreamedTurn, said


@pytest.mark.requirement("live:flows-until-a-call")
async def test_words_are_written_before_the_reply_is_whole(turn: StreamedTurn) -> None:
    reader = turn.stream.readers.attach()
    body = turn.wire.reply("One two three.", (), {})
    assembler = turn.stream.begin()
    written: list[bytes] = []
    for event in SseReader(1 << 20).feed(turn.wire.streamed(body)):
        turn.stream.show(assembler.feed(event))
        written.append(reader.read())
    shown = [b"One" in each or b"two" in each or b"three" in each for each in written]
    assert sum(shown) == 3
    assert turn.wire.said(assembler.body()).text == "One two three."


@pytest.mark.requirement("live:release")
async def test_native_calls_are_written_with_the_verdict(turn: StreamedTurn) -> None:
    reader = turn.stream.readers.attach()
    await turn.comes("Look:", CALL)
    assert b"desk__balance" not in reader.read()

    turn = StreamedTurn(next(name for name, wire in WIRES.items() if wire is turn.wire))
    reader = turn.stream.readers.attach()
    await turn.answers("Look:", CALL)
    assert said(turn, reader.read()).calls == CALL


@pytest.mark.requirement("live:hidden-preamble")
async def test_without_preambles_a_hidden_reply_leaves_nothing(turn: StreamedTurn) -> None:
    name = next(name for name, wire in WIRES.items() if wire is turn.wire)
    turn = StreamedTurn(name, shows=False)
    reader = turn.stream.readers.attach()
    await turn.is_hidden("Let me look.")
    assert reader.read() == b""
    await turn.answers("You have 50.")
    assert said(turn, reader.read()).text == "You have 50."


@pytest.mark.requirement("live:secrets")
async def test_a_secret_in_words_is_never_written(turn: StreamedTurn) -> None:
    name = next(name for name, wire in WIRES.items() if wire is turn.wire)
    turn = StreamedTurn(name, secrets=("open sesame please",))
    reader = turn.stream.readers.attach()
    await turn.answers("The word is open sesame please, and no other.")
    stream = reader.read()
    assert "sesame" not in said(turn, stream).text
    assert said(turn, stream).text.endswith(", and no other.")
