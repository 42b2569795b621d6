"""The stream of an answer, from the provider's events to the bytes of each runner."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_contract.sse import SseReader
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import Round
from claw_mediate.dialects.base import Dialect
from claw_mediate.dialects.streams import OwnOpening
from claw_mediate.turns.answer_stream import AnswerStream, StreamForm
from tests.mediate.any_reply import DIALECTS
from tests.wires import Made, Wire, anthropic, openai, responses

WIRES: dict[str, Wire] = {"openai": openai, "anthropic": anthropic, "responses": responses}
CATALOG = ToolCatalog.build((), (), 100)
CALL = (Made("call_1", "desk__balance", '{"of": "me"}'),)


class Turn:
    """An answer's stream of one dialect, fed with the replies of a test."""

    def __init__(self, name: str, *, shows: bool = True, secrets: tuple[str, ...] = ()) -> None:
        self.wire: Wire = WIRES[name]
        self.dialect: Dialect = DIALECTS[name]
        asked = self.wire.request([self.wire.user("Go")], (), stream=True, more={})
        view = replace(self.dialect.read_request(json.dumps(asked).encode()), is_live=True)
        own = OwnOpening("own-id", "asked-for", 7)
        clock: Iterator[int] = itertools.count()
        self.redactor = Redactor([Secret(each) for each in secrets])
        self.stream = AnswerStream(
            StreamForm(self.dialect, view, own),
            self.redactor,
            lambda: float(next(clock)),
            shows=shows,
        )
        self.view = view
        self.rounds: tuple[Round, ...] = ()

    async def comes(self, text: str, calls: tuple[Made, ...] = ()) -> bytes:
        """Let a reply come from the provider; return its body."""
        body = self.wire.reply(text, calls, {})
        assembler = self.stream.begin()
        for event in SseReader(1 << 20).feed(self.wire.streamed(body)):
            await self.stream.show(assembler.feed(event))
        return self.redactor.document(assembler.body())

    async def is_hidden(self, text: str) -> None:
        """Let a reply with a managed call come, which the proxy answers."""
        response = self.dialect.read_response(await self.comes(text, CALL), CATALOG)
        self.rounds = (*self.rounds, Round(len(self.rounds) + 1, response, ()))
        self.stream.drop(self.rounds)

    async def answers(self, text: str, calls: tuple[Made, ...] = ()) -> bytes:
        """Let the answer come; return its body with all that was shown."""
        response = self.dialect.read_response(await self.comes(text, calls), CATALOG)
        body = self.dialect.write_response(response, self.view, response.usage, terminal=False)
        self.stream.release(body, terminal=False)
        self.stream.finish()
        return self.stream.answer(body)


@pytest.fixture(params=WIRES)
async def turn(request: pytest.FixtureRequest) -> Turn:
    return Turn(request.param)


def said(turn: Turn, stream: bytes) -> Any:
    return turn.wire.said(turn.wire.assembled(stream))


@pytest.mark.requirement("live:flows-until-a-call")
async def test_words_are_written_before_the_reply_is_whole(turn: Turn) -> None:
    reader = turn.stream.attach()
    body = turn.wire.reply("One two three.", (), {})
    assembler = turn.stream.begin()
    written: list[bytes] = []
    for event in SseReader(1 << 20).feed(turn.wire.streamed(body)):
        await turn.stream.show(assembler.feed(event))
        written.append(reader.read())
    shown = [b"One" in each or b"two" in each or b"three" in each for each in written]
    assert sum(shown) == 3
    assert turn.wire.said(assembler.body()).text == "One two three."


@pytest.mark.requirement("live:one-lifecycle")
async def test_two_hidden_rounds_and_an_answer_are_one_stream(turn: Turn) -> None:
    reader = turn.stream.attach()
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
async def test_the_words_of_each_reply_are_known_apart(turn: Turn) -> None:
    await turn.is_hidden("Let me look.")
    assert turn.stream.shown_rounds[1].text == "Let me look."
    assert turn.stream.last_words().text == ""
    await turn.answers("You have 50.")
    assert turn.stream.last_words().text == "You have 50."
    assert turn.stream.figures().shown == (12, 12)


@pytest.mark.requirement("live:release")
async def test_native_calls_are_written_with_the_verdict(turn: Turn) -> None:
    reader = turn.stream.attach()
    await turn.comes("Look:", CALL)
    assert b"desk__balance" not in reader.read()

    turn = Turn(next(name for name, wire in WIRES.items() if wire is turn.wire))
    reader = turn.stream.attach()
    await turn.answers("Look:", CALL)
    assert said(turn, reader.read()).calls == CALL


@pytest.mark.requirement("live:joiner")
async def test_a_runner_that_joins_gets_the_same_stream(turn: Turn) -> None:
    first = turn.stream.attach()
    await turn.is_hidden("Let me look.")
    early = first.read()
    second = turn.stream.attach()
    await turn.answers("You have 50.")
    first_stream, second_stream = early + first.read(), second.read()
    assert said(turn, first_stream) == said(turn, second_stream)
    ids = [
        json.loads(turn.wire.assembled(each)).get("id") for each in (first_stream, second_stream)
    ]
    assert ids[0] == ids[1]


@pytest.mark.requirement("live:hidden-preamble")
async def test_without_preambles_a_hidden_reply_leaves_nothing(turn: Turn) -> None:
    name = next(name for name, wire in WIRES.items() if wire is turn.wire)
    turn = Turn(name, shows=False)
    reader = turn.stream.attach()
    await turn.is_hidden("Let me look.")
    assert reader.read() == b""
    await turn.answers("You have 50.")
    assert said(turn, reader.read()).text == "You have 50."


@pytest.mark.requirement("live:secrets")
async def test_a_secret_in_words_is_never_written(turn: Turn) -> None:
    name = next(name for name, wire in WIRES.items() if wire is turn.wire)
    turn = Turn(name, secrets=("open sesame please",))
    reader = turn.stream.attach()
    await turn.answers("The word is open sesame please, and no other.")
    stream = reader.read()
    assert "sesame" not in said(turn, stream).text
    assert said(turn, stream).text.endswith(", and no other.")


@pytest.mark.requirement("live:back-pressure")
async def test_a_reply_is_read_only_so_far_ahead_of_its_runner(
    turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claw_mediate.turns.answer_stream.MAX_AHEAD", 4096)
    reader = turn.stream.attach()
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
async def test_a_keepalive_that_comes_first_gives_every_runner_the_same_id(turn: Turn) -> None:
    first, second = turn.stream.attach(), turn.stream.attach()
    beat = first.beat("claw round=1 waiting=model", "native")
    await turn.answers("Hello.")
    streams = [beat + first.read(), second.read()]
    frames = re.findall(rb"^data: ({.*)$", b"".join(streams), re.MULTILINE)
    ids = {id_in(json.loads(frame)) for frame in frames} - {None}
    assert ids == {turn.stream.id}


def id_in(event: dict[str, Any]) -> str | None:
    """Return the id of the answer in an event of a stream; None if it has none."""
    answer = event.get("response") or event.get("message") or event
    found: str | None = answer.get("id")
    return found
