"""Conversations of one agent, run at a desk and compared with a simple oracle.

The oracle keeps a conversation as pieces: the messages that the runner sees of a step, and the
calls hidden before them. In every case the model must get all pieces of that conversation, in
order, with the same bytes as before, and no other piece.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.http import Request, RunnerResponse
from tests.turns.desk import Desk
from tests.wires import Body, Wire, openai

type Header = tuple[str, str]
RETRIES: Header = ("x-stainless-retry-count", "1")


@dataclass(frozen=True)
class Piece:
    """One step of a runner's transcript: its messages, their keys for the oracle,
    and the ids of the calls hidden before.
    """

    messages: tuple[Body, ...]
    shown: tuple[str, ...]
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Talk:
    """A conversation at rest: the user speaks next."""

    wire: Wire
    session: str
    stream: bool
    pieces: tuple[Piece, ...] = ()
    asked: tuple[Piece, ...] | None = None
    """The pieces that the last answer answered, if the runner still has it."""

    def then(self, *pieces: Piece) -> Talk:
        return replace(self, pieces=(*self.pieces, *pieces))

    def says(self, words: str) -> Talk:
        return self.then(Piece((self.wire.user(words),), (words,)))

    @property
    def messages(self) -> list[Body]:
        return [message for piece in self.pieces for message in piece.messages]

    @property
    def told(self) -> list[str]:
        return [token for piece in self.pieces for token in (*piece.hidden, *piece.shown)]

    @property
    def questions(self) -> list[int]:
        """Return the places of the user's messages."""
        return [
            at
            for at, piece in enumerate(self.pieces)
            if piece.messages and piece.messages[0]["role"] == "user"
        ]


@dataclass(frozen=True)
class FailedTurn:
    """A turn that failed: the request, the calls that were made in it, and the
    state and words before it.
    """

    asked: Talk
    made: tuple[str, ...]
    before: Talk
    words: str


class _SentBody(msgspec.Struct):
    messages: list[msgspec.Raw]


def _tokens(wire: Wire, message: Body) -> list[str]:
    """Return the oracle's keys of a message in a request: the ids of the calls that
    it answers, or its text.
    """
    if given := wire.answers([message]):
        return [call_id for call_id, _ in given]
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(block["text"] for block in content if block["type"] == "text")
    return [content] if content else []


class ConversationDesk:
    """The desk of one agent, with its state in a file."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.loop = asyncio.Runner()
        self.desk = Desk(self.home, openai, stream=False)
        self.desk.remembers()
        self.writes = 0
        self._bytes: dict[tuple[str, ...], bytes] = {}
        """Each hidden message as it was first sent, by the ids of the calls that it answers."""
        self._answers: dict[tuple[str, bytes], str] = {}
        self._numbers: Iterator[int] = iter(range(1_000_000))

    def close(self) -> None:
        self.loop.run(self.desk.close())
        self.loop.close()
        shutil.rmtree(self.home)

    def words(self, kind: str) -> str:
        """Return words that nobody has said before."""
        return f"{kind} {next(self._numbers)}"

    def restarts(self, *, gracefully: bool) -> None:
        if gracefully:
            self.loop.run(self.desk.mediators.pop().close(1))
        self.desk.open()

    def asks(
        self,
        talk: Talk,
        words: str,
        calls: Sequence[str],
        answer: str,
        *headers: Header,
        played: tuple[str, ...] = (),
    ) -> Talk:
        """Run a successful turn: hidden calls, then an answer.

        ``played``: calls that an earlier attempt has made.
        """
        asked = talk.says(words)
        return replace(self.turn(asked, calls, answer, *headers, played=played), asked=asked.pieces)

    def turn(
        self,
        talk: Talk,
        calls: Sequence[str],
        answer: str,
        *headers: Header,
        played: tuple[str, ...] = (),
    ) -> Talk:
        """Run a turn with each call in a round of its own, then an answer.

        A runner keeps no message for an empty answer.
        """
        made = self._scripted(calls)
        self.desk.model_says(answer)
        body = self._sends(talk, *headers)
        self._checked(talk, (*played, *made), played)
        assert talk.wire.said(body.encode()).text == answer
        self._answers[self._known_by(talk)] = body
        kept = (talk.wire.kept(body.encode()),) if answer else ()
        return talk.then(Piece(kept, (answer,) if answer else (), (*played, *made)))

    def hands(self, talk: Talk, calls: Sequence[str], native: int) -> Talk:
        """Run a turn of hidden calls, then calls of native tools, which the runner answers."""
        made = self._scripted(calls)
        self.desk.model_says(*(("shell", {"n": number}) for number in range(native)))
        body = self._sends(talk)
        self._checked(talk, made)
        ids = [call.id for call in talk.wire.said(body.encode()).calls]
        results = talk.wire.results([(call_id, "ok") for call_id in ids])
        return talk.then(Piece((talk.wire.kept(body.encode()), *results), tuple(ids), made))

    def fails(
        self, before: Talk, words: str, calls: Sequence[str], *, steps: int = 0
    ) -> FailedTurn:
        """Run a turn that fails after its hidden calls; ``steps``: and after so
        many native ones.
        """
        asked = before.says(words)
        for _ in range(steps):
            asked = self.hands(asked, [], 1)
        made = self._scripted(calls)
        self.desk.model_refuses(400, "bad_request")
        assert self._sends(asked, answered=False) == ""
        self._checked(asked, made)
        return FailedTurn(asked, made, before, words)

    def fails_again(self, failed: FailedTurn) -> None:
        self.desk.model.script.clear()
        self.desk.model_refuses(400, "bad_request")
        assert self._sends(failed.asked, answered=False) == ""
        self._checked(failed.asked, failed.made, failed.made)

    def hears_again(self, talk: Talk) -> None:
        """Request the answer of a finished turn again, and check that it is the same."""
        assert talk.asked is not None
        again = replace(talk, pieces=talk.asked)
        self.desk.model.script.clear()
        assert self._sends(again, RETRIES) == self._answers[self._known_by(again)]
        self._checked(again, (), asked=False)

    def _known_by(self, talk: Talk) -> tuple[str, bytes]:
        return talk.session, self._request(talk).body

    def _scripted(self, calls: Sequence[str]) -> tuple[str, ...]:
        """Script the calls; return the ids that they will have."""
        self.desk.model.script.clear()
        first = len(self.desk.model.names) + 1
        for name in calls:
            self.desk.model_says((name, {"n": next(self._numbers)}))
        self.writes += list(calls).count("desk.trade")
        return tuple(f"call_{first + place}" for place in range(len(calls)))

    def _checked(
        self, talk: Talk, made: tuple[str, ...], played: tuple[str, ...] = (), *, asked: bool = True
    ) -> None:
        """Check the model's requests: each has the whole conversation, and the
        calls of this turn so far.
        """
        assert not self.desk.model.script, "the model was asked as often as was to be expected"
        heard = self.desk.model.raw[self._heard :]
        assert len(heard) == (len(made) - len(played) + 1 if asked else 0)
        shown = {token for piece in talk.pieces for token in piece.shown}
        for number, raw in enumerate(heard, len(played)):
            told = []
            for message in msgspec.json.decode(raw, type=_SentBody).messages:
                tokens = _tokens(talk.wire, json.loads(bytes(message)))
                told += tokens
                if set(tokens) - shown:
                    assert self._bytes.setdefault(tuple(tokens), bytes(message)) == bytes(
                        message
                    ), "the same bytes"
            assert told == [*talk.told, *made[:number]]

    def _request(self, talk: Talk) -> Request:
        body = talk.wire.request(talk.messages, ["shell"], stream=talk.stream, more={})
        headers = [
            ("authorization", f"Bearer {self.desk.token}"),
            ("content-type", "application/json"),
        ]
        named = [("x-claude-code-session-id", talk.session)] if talk.session else []
        return Request("POST", talk.wire.PATH, [*headers, *named], json.dumps(body).encode())

    def _sends(self, talk: Talk, *headers: Header, answered: bool = True) -> str:
        """Send the conversation; return the response as one body, or "" if it is an error."""
        desk = self.desk
        desk.wire = talk.wire
        desk.messages = talk.messages
        desk.native = ["shell"]
        desk.lines = []
        desk.model.known = 0
        self._heard = len(desk.model.raw)

        request = self._request(talk)
        request = replace(request, headers=[*request.headers, *headers])
        exchange, body = self.loop.run(self._exchanged(request))

        told_error = exchange.streaming and talk.wire.stream_error(body) is not None
        failed = exchange.status != 200 or told_error
        assert failed is not answered, body
        if failed:
            return ""
        return (talk.wire.assembled(body) if exchange.streaming else body).decode()

    async def _exchanged(self, request: Request) -> tuple[RunnerResponse, bytes]:
        admitted: Any = self.desk.mediator.admit(request)
        assert isinstance(admitted, Identity)
        exchange = await self.desk.mediator.exchange(admitted, request)
        assert isinstance(exchange, RunnerResponse)
        body = b"".join([chunk async for chunk in exchange.chunks])
        if self.desk.model.fault is not None:
            raise self.desk.model.fault
        if exchange.on_delivered is not None:
            await exchange.on_delivered()
        return exchange, body
