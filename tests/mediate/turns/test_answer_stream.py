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
            self.stream.show(assembler.feed(event))
            await self.stream.wait_for_runner()
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
        turn.stream.show(assembler.feed(event))
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
    between = 2 if turn.dialect.split_rules.joins_text else 0
    assert turn.stream.figures().shown == {1: (12, 0), 2: (12 + between, 0)}


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


class Timed(Turn):
    """The same with a clock that the test sets; an attempt's events come one by one."""

    def __init__(self, name: str, *, shows: bool = True) -> None:
        super().__init__(name, shows=shows)
        self.now = 0.0
        self.first_call: float | None = None
        form = StreamForm(self.dialect, self.view, OwnOpening("own-id", "asked-for", 7))
        self.stream = AnswerStream(form, self.redactor, lambda: self.now, shows=shows)

    async def begins(self, text: str, calls: tuple[Made, ...] = ()) -> bytes:
        """Let each event of a reply come a second after the last one; return its body."""
        self.stream.note_asked()
        assembler = self.stream.begin()
        stream = self.wire.streamed(self.wire.reply(text, calls, {}))
        for event in SseReader(1 << 20).feed(stream):
            told = assembler.feed(event)
            self.now += 1
            if any(each.kind == "call" for each in told) and self.first_call is None:
                self.first_call = self.now
            self.stream.show(told)
        return assembler.body()


@pytest.fixture(params=WIRES)
def timed(request: pytest.FixtureRequest) -> Timed:
    return Timed(request.param)


@pytest.mark.requirement("live:observed")
async def test_the_times_of_a_stream_are_those_of_its_first_content_and_of_what_it_held(
    timed: Timed,
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
async def test_a_reply_that_fails_is_a_round_that_has_shown_something(timed: Timed) -> None:
    await timed.begins("Half of an ans")
    figures = timed.stream.figures()
    assert figures.shown == {1: (len("Half of an ans"), 0)}
    assert figures.held_ms == 0


@pytest.mark.requirement("live:observed")
async def test_a_recorded_reply_says_nothing_of_the_providers_time(timed: Timed) -> None:
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
    timed: Timed,
) -> None:
    await timed.begins("", CALL)
    assert timed.stream.figures().ttft_ms is None
    assert timed.stream.figures().upstream_ttft_ms is not None
    assert timed.stream.figures().shown_rounds == 0

    waiting = Timed(next(name for name, wire in WIRES.items() if wire is timed.wire), shows=False)
    body = await waiting.begins("Done.")
    assert waiting.stream.figures().ttft_ms is None
    waiting.now = 90.0
    waiting.stream.release(body, terminal=False)
    assert waiting.stream.figures().ttft_ms == 90_000
    assert waiting.stream.figures().shown_rounds == 1


@pytest.mark.requirement("live:observed")
async def test_what_is_put_between_two_replies_is_counted_with_the_second(timed: Timed) -> None:
    await timed.is_hidden("Let me look.")
    await timed.is_hidden("And once more.")
    words = [each.text for each in timed.stream.shown_words().values()]
    answer = await timed.answers("You have 50.")
    assert "".join(words) + timed.stream.shown_words()[3].text == timed.wire.said(answer).text
