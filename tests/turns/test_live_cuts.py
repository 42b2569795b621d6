"""A live turn that is cut at any place, in each way, and goes on as each runner does: its write is
made once, its answer is whole, and its transcript is one that the provider accepts
(docs/spec/live.md section 9).
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from claw_mediate.core.http import RunnerResponse
from tests.turns.desk import WIRES, Desk, opened
from tests.turns.scripted import Thought
from tests.wires import Body, MadeCall, ReplyContent, Wire, anthropic, responses
from tests.wires.parts import error_event, text_of

EVERYWHERE = bool(os.environ.get("CLAW_SEARCH"))
"""``make soak`` fails and goes on in each way behind each event, and cuts at every byte."""

type Failure = Literal["breaks", "closes", "errors"]
"""How a provider's stream ends: its connection breaks, or is closed; or it tells an error."""
FAILURES: tuple[Failure, ...] = ("breaks", "closes", "errors")
type Way = Literal["again", "held", "joined", "words"]
"""How a runner goes on: with the same request; with what it holds of the answer, which it may join
with the rest; or with that and new words of the user's.
"""


class Reply(NamedTuple):
    """A reply with a thought, a text and a call."""

    thought: str
    text: str
    call: str
    arguments: Body

    def stream(self, wire: Wire) -> bytes:
        """Return it as it comes from the provider, but for the number of the call."""
        made = MadeCall("call_1", self.call.replace(".", "__"), json.dumps(self.arguments))
        return wire.streamed(wire.reply(self.text, [made], {}, thought=self.thought))

    @property
    def parts(self) -> tuple[Any, ...]:
        """Return it as a desk scripts it."""
        return Thought(self.thought), self.text, (self.call, self.arguments)


REPLIES = (
    Reply("How many? ", "Let me buy one.", "desk.trade", {"n": 1}),
    Reply("Where? ", "Bought. Where is it?", "shell", {"cmd": "ls"}),
)
"""A hidden round, and the answer, which has a call of the runner's own."""


class StreamCut(NamedTuple):
    """The end of a reply's stream, behind so many bytes."""

    reply: int
    size: int
    failure: Failure
    way: Way


def cuts(wire: Wire) -> Iterator[StreamCut]:
    """Yield a cut at each event, in turn behind it in each failure, within it, and where what a
    runner holds grows, with each way to go on; behind the end in all of them.
    """
    for number, reply in enumerate(REPLIES):
        stream, end, held = reply.stream(wire), 0, None
        for place, event in enumerate(stream.split(b"\n\n")[:-1]):
            start, end = end, end + len(event) + 2
            inside = range(start + 1, end) if EVERYWHERE else [(start + end) // 2]
            here = [
                *(StreamCut(number, end, failure, "again") for failure in FAILURES),
                *(StreamCut(number, size, "breaks", "again") for size in inside),
            ]
            if held != (held := text_of(stream[:end])) or end == len(stream):
                here += [StreamCut(number, end, "breaks", way) for way in ways(wire)]
            is_whole = EVERYWHERE or end == len(stream)
            yield from here if is_whole else [here[place % len(here)]]


def ways(wire: Wire) -> tuple[Way, ...]:
    """Return the ways in which a runner goes on with what it holds."""
    if wire is responses:
        return "held", "words"  # Items stay items
    if wire is anthropic:
        return "joined", "words"  # It takes no two messages of the model's in a row
    return "held", "joined", "words"


@pytest.mark.long
@pytest.mark.requirement("live:cut-anywhere")
@pytest.mark.parametrize("name", ["openai", "anthropic", "responses"])
async def test_a_turn_that_is_cut_anywhere_goes_on_and_its_write_is_made_once(
    tmp_path: Path, name: str
) -> None:
    async with opened(Desk(tmp_path, WIRES[name], stream=True, live=True)) as desk:
        for number, cut in enumerate(cuts(WIRES[name])):
            begin_anew(desk, f"analyst-{number}")
            try:
                await buy(desk, cut)
            except BaseException as error:
                error.add_note(f"{cut}\n{desk.lines}")
                raise


@pytest.mark.requirement("live:left-anywhere")
@pytest.mark.parametrize("name", ["openai", "anthropic", "responses"])
async def test_a_runner_that_leaves_anywhere_and_asks_again_gets_it_all_and_nothing_runs_twice(
    tmp_path: Path, name: str
) -> None:
    async with opened(Desk(tmp_path, WIRES[name], stream=True, live=True)) as desk:
        desk.model.yields_between = True
        is_over = False
        for chunks in itertools.count(1):
            begin_anew(desk, f"analyst-{chunks}")
            is_over = await leave(desk, chunks)
            await desk.turn()
            assert_bought(desk, REPLIES)
            if is_over:
                break
        assert chunks > len("".join(reply.text for reply in REPLIES).split())


def begin_anew(desk: Desk, agent: str) -> None:
    """Let an agent without a past ask from now on."""
    desk.admits(agent)
    desk.messages, desk.native = [desk.wire.user("Buy one")], ["shell"]
    desk.more = {"store": False} if desk.wire is responses else {}
    desk.answer, desk.raw = ReplyContent(), b""
    desk.service_answers("trade", {"order": 1}, {"order": 2})
    desk.model.plays = [reply.parts for reply in REPLIES] + [["There."]]
    for known in (desk.model.names, desk.model.replies, desk.services.calls):
        known.clear()


async def buy(desk: Desk, cut: StreamCut) -> None:
    """Run a turn that is cut, what its runner does then, and the turn behind it."""
    for reply in REPLIES[: cut.reply]:
        desk.model_says(*reply.parts)
    error = error_event(desk.wire) if cut.failure == "errors" else b""
    closes = cut.failure == "closes"
    desk.model.breaks_off(REPLIES[cut.reply].parts, cut.size, error, closes=closes)
    await desk.turn()

    shown = REPLIES
    if not desk.answer.calls:
        shown = await go_on(desk, cut)
    assert_bought(desk, shown)

    if cut.way == "joined" and len(desk.messages) > 2:
        desk.messages[-2:] = [joined(*desk.messages[-2:])]
    await desk.runs_native("a file")
    ids = [call_id for call_id, _ in desk.wire.answers(desk.model.messages())]
    assert [desk.model.names[call_id] for call_id in ids] == ["desk.trade", "shell"]
    assert desk.services.calls == ["desk.trade"]


async def go_on(desk: Desk, cut: StreamCut) -> tuple[Reply, ...]:
    """Go on in the runner's way; return the replies that it must be shown."""
    held = text_of(desk.raw)
    goes_on = held and cut.way != "again"
    if goes_on:
        desk.messages.append(message(desk.wire, held))
    if cut.way == "words":
        desk.messages.append(desk.wire.user("It was cut off. Go on."))
    await desk.turn()
    return REPLIES[cut.reply :] if goes_on else REPLIES


async def leave(desk: Desk, chunks: int) -> bool:
    """Ask, and leave with so many chunks of the answer; return whether that is all of it."""
    exchange = await desk.mediator.exchange(desk.admitted(), desk.request())
    assert isinstance(exchange, RunnerResponse)
    taken = 0
    async for _ in exchange.chunks:
        taken += 1
        if taken == chunks:
            await exchange.chunks.aclose()
            return False
    return True


def assert_bought(desk: Desk, shown: Sequence[Reply]) -> None:
    """Check that the runner was shown these replies, and that one share is bought."""
    assert words(desk.shown.text) == words("".join(reply.text for reply in shown))
    assert [call.name for call in desk.shown.calls] == ["shell"]
    assert desk.services.calls == ["desk.trade"]


def message(wire: Wire, text: str) -> Body:
    """Return an assistant's message that a runner makes of what it was shown."""
    if wire is responses:
        return responses.message(text, "msg_held")
    return {"role": "assistant", "content": text}


def joined(held: Body, rest: Body) -> Body:
    """Return one message of the model's, made of what the runner held and the rest."""
    if isinstance(rest["content"], str):
        return rest | {"content": f"{held['content']}\n\n{rest['content']}"}
    return rest | {"content": [{"type": "text", "text": held["content"]}, *rest["content"]]}


def words(text: str) -> str:
    return "".join(text.split())
