"""The desk's peers: a model and a service that answer from the test's script, and
draw the messages that they get.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
from msgspec.structs import replace

from claw_mediate.agents.directory import Agent
from claw_mediate.core import tool_result
from claw_mediate.core.observer import TurnObserver
from claw_mediate.core.types import ModelResponse, ToolCall, ToolResult
from claw_mediate.dialects.base import FailedResponseError
from claw_mediate.providers.client import (
    ProviderResponse,
    ProviderResult,
    TransportFailure,
    cut_if_shown,
)
from claw_mediate.providers.failover import ModelCall, ModelResult, parse_response
from claw_mediate.providers.live_reply import BROKE_OFF, BrokenReplyError, LiveReply, read_reply
from claw_mediate.providers.routing import Route
from tests.turns.streamed_response import StreamedResponse
from tests.wires import Body, MadeCall, ReplyContent, Wire

if TYPE_CHECKING:
    from tests.turns.desk import Desk

SERVICE = "desk"

type Headers = tuple[tuple[str, str], ...]
type Part = str | Thought | tuple[str, dict[str, Any] | str]


@dataclass(frozen=True)
class Thought:
    """The model's reasoning before its reply."""

    words: str


class BrokenStream(NamedTuple):
    """A reply whose stream ends right behind the event that has a word, or behind so many bytes.

    ``error``: the event that it ends with; without one its connection breaks, or just ``closes``.
    """

    body: bytes
    behind: str | int
    error: bytes = b""
    closes: bool = False

    def stream(self, wire: Wire) -> bytes:
        """Return what comes of the reply."""
        whole = wire.streamed(self.body)
        if isinstance(self.behind, int):
            return whole[: self.behind] + self.error

        events = whole.split(b"\n\n")
        last = next(at for at, event in enumerate(events) if self.behind.encode() in event)
        return b"\n\n".join([*events[: last + 1], b""]) + self.error


class ExactName(str):
    """A name that the model calls exactly so, whatever was offered."""

    __slots__ = ()


class Model:
    """The provider's side: it gives the scripted replies in order, and checks every
    request by the provider's rules.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.script: list[Callable[[], ProviderResult | BrokenStream]] = []
        self.pause: tuple[bytes, asyncio.Event] | None = None
        """The bytes of an event behind which nothing comes until the test says so."""
        self.rewrite: Callable[[bytes], bytes] = lambda stream: stream
        """Changes each stream of a reply, as a server does that streams in its own way."""
        self.bodies: list[Body] = []
        self.raw: list[bytes] = []
        self.known = 0
        self.said: list[ReplyContent] = []
        """The replies of this turn that came as streams."""
        self.fault: Exception | None = None
        self.names: dict[str, str] = {}
        """The name of each call in the picture, by the call's id."""
        self.makers: list[str] = []
        """Provider and model that answer the next calls in place of the first
        candidate, as ``provider/model``.
        """
        self.replies: dict[str, bytes] = {}
        """The reply that contained each call, by the call's id."""
        self.plays: Sequence[Sequence[Part]] = ()
        """The replies behind the script: that with this number of results before it."""
        self.yields_between = False
        """True if others have their turn between two events of a stream."""

    def messages(self, index: int = -1) -> list[Body]:
        """Return the messages of a request: of the last one, or of that index."""
        sent: list[Body] = self.bodies[index][self.desk.wire.TRANSCRIPT]
        return sent

    def says(self, parts: Sequence[Part], *, cut: bool, takes: float, more: Body) -> None:
        self.script.append(partial(self._said, parts, cut=cut, takes=takes, more=more))

    def answers(self, status: int, body: bytes, headers: Headers = ()) -> None:
        self.script.append(partial(ProviderResponse, status, "application/json", body, "", headers))

    def fails(self, code: str) -> None:
        self.script.append(partial(TransportFailure, code, "the provider can't be reached"))

    def breaks_off(
        self, parts: Sequence[Part], behind: str | int, error: bytes = b"", *, closes: bool = False
    ) -> None:
        def reply() -> BrokenStream:
            said = self._said(parts, cut=False, takes=0.0, more={})
            assert isinstance(said, ProviderResponse)
            return BrokenStream(said.body, behind, error, closes)

        self.script.append(reply)

    async def post(self, route: Route, call: ModelCall) -> ModelResult:
        maker = self.makers.pop(0) if self.makers else route.candidate.maker
        body = call.body_for(maker)
        request = json.loads(body)
        self.raw.append(body)
        self.bodies.append(request)
        try:
            self.desk.wire.check(request, self.replies)
            self.desk.draw("cllama → model", self._news(request))
            answer = self._next()
            self.desk.draw("model  → cllama", self._words(answer))
            answer = await self._stream(answer, call, request)
        except Exception as fault:
            self.fault = fault  # the turn takes it for an error of its own; the test must see it
            raise
        parsed = parse_response(answer, call.read)
        return replace(parsed, maker=maker) if isinstance(parsed, ModelResponse) else parsed

    async def close(self) -> None:
        return

    def _next(self) -> ProviderResult | BrokenStream:
        """Return the next reply of the script, or of the play behind it."""
        if self.script or not self.plays:
            return self.script.pop(0)()

        messages = self.bodies[-1][self.desk.wire.TRANSCRIPT]
        parts = self.plays[len(self.desk.wire.answers(messages))]
        return self._said(parts, cut=False, takes=0.0, more={})

    async def _break_off(self, answer: BrokenStream, live: LiveReply) -> ProviderResult:
        """Stream the beginning of a reply; return what the proxy makes of that.

        A beginning may be all that a reply must have.
        """
        breaks = not (answer.error or answer.closes)
        streamed = StreamedResponse(answer.stream(self.desk.wire), breaks=breaks)
        live.was_streamed = True
        failed: ProviderResponse | TransportFailure
        try:
            body = await read_reply(streamed, live)  # type: ignore[arg-type]
        except FailedResponseError as error:
            failed = ProviderResponse(error.status, "application/json", error.body)
        except (BrokenReplyError, httpx2.ReadError):
            failed = TransportFailure(BROKE_OFF, "it broke off")
        else:
            said = self.desk.wire.said(body)
            self.said.append(said)
            self.replies |= {call.id: body for call in said.calls}
            return ProviderResponse(HTTPStatus.OK, "application/json", body)
        return cut_if_shown(live, failed)

    async def _stream(
        self, answer: ProviderResult | BrokenStream, call: ModelCall, request: Body
    ) -> ProviderResult:
        """Return an answer as the proxy puts it together that is told of it while it comes."""
        if isinstance(answer, BrokenStream):
            assert call.live is not None
            return await self._break_off(answer, call.live)
        if call.live is None:
            assert request.get("stream") is not True
            return answer
        assert self.desk.live
        assert self.desk.stream
        assert request.get("stream") is True
        if not isinstance(answer, ProviderResponse) or answer.status != HTTPStatus.OK:
            return answer

        try:
            stream = self.rewrite(self.desk.wire.streamed(answer.body))
            streamed = StreamedResponse(
                stream, yields_between=self.yields_between, pause=self.pause
            )
        except (ValueError, LookupError, TypeError, AttributeError):
            return answer  # No reply of a model: it comes as one body

        call.live.was_streamed = True
        call.live.on_head(answer.headers)
        try:
            body = await read_reply(streamed, call.live)  # type: ignore[arg-type]
        except BrokenReplyError as error:
            return cut_if_shown(call.live, TransportFailure(error.code, "the reply has no end"))
        self.said.append(self.desk.wire.said(body))
        return replace(answer, body=body)

    def _said(
        self, parts: Sequence[Part], *, cut: bool, takes: float, more: Body
    ) -> ProviderResult:
        """Return a reply, built only now: the model calls a tool by the name under
        which it was offered.
        """
        self.desk.clock += takes
        words = "".join(part for part in parts if isinstance(part, str))
        thought = "".join(part.words for part in parts if isinstance(part, Thought))
        calls = [self._call(*part) for part in parts if isinstance(part, tuple)]
        body = self.desk.wire.reply(words, calls, more, thought=thought, cut=cut)
        return ProviderResponse(200, "application/json", body)

    def _call(self, name: str, arguments: dict[str, Any] | str) -> MadeCall:
        call_id = f"call_{len(self.names) + 1}"
        self.names[call_id] = name
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return MadeCall(
            call_id, str(name) if isinstance(name, ExactName) else self._offered(name), text
        )

    def _offered(self, name: str) -> str:
        description = self.desk.granted.get(name)
        offered = self.desk.wire.tools(self.bodies[-1])
        return next(
            (alias for alias, text in offered.items() if text == description),
            name.replace(".", "__"),
        )

    def _canonical(self, name: str) -> str:
        text = self.desk.wire.tools(self.bodies[-1]).get(name)
        return next(
            (canonical for canonical, known in self.desk.granted.items() if known == text), name
        )

    def _words(self, answer: ProviderResult | BrokenStream) -> str:
        if isinstance(answer, BrokenStream):
            return f"{self.desk.words(self.desk.wire.said(answer.body))}, cut: {answer.behind}"
        if not isinstance(answer, ProviderResponse):
            return f"unreachable: {answer.code}"
        if answer.status != 200:
            return f"status {answer.status}"
        try:
            said = self.desk.wire.said(answer.body)
        except (ValueError, LookupError, TypeError, AttributeError):
            return "no completion"
        for call in said.calls:
            self.replies[call.id] = answer.body
            self.names.setdefault(call.id, self._canonical(call.name))
        return self.desk.words(said)

    def _news(self, request: Body) -> str:
        wire, messages = self.desk.wire, request.get(self.desk.wire.TRANSCRIPT, [])
        fresh, first = messages[self.known :], self.known == 0
        self.known = len(messages)
        forbidden = " [tools forbidden]" if wire.chosen(request)[0] == "none" else ""
        if first:
            hidden = len(wire.parts(messages)) - len(wire.parts(self.desk.messages))
            return (
                "the runner's request"
                + (f" + {hidden} hidden messages" if hidden else "")
                + forbidden
            )
        results = [
            f"{self.names.get(call_id, call_id)} = {_short(json.loads(content))}"
            for call_id, content in wire.answers(fresh)
        ]
        return ", ".join(results) + forbidden


class Services:
    """The service's side: for each tool, answers as (status, JSON) in order; the
    last one is repeated.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.script: dict[str, list[tuple[int, Any]]] = {}
        self.takes: dict[str, float] = {}
        """Seconds of the desk's clock, by tool."""
        self.gates: dict[str, asyncio.Event] = {}
        """Events that a tool's answer waits for, by tool."""
        self.lags: dict[str, int] = {}
        """Turns of the event loop by which a tool's answer is later than others, by tool."""
        self.running = 0
        self.most_at_once = 0
        self.keys: list[str] = []
        self.calls: list[str] = []
        self.answered: list[str] = []

    async def call(
        self, agent: Agent, _observer: TurnObserver, call: ToolCall, key: str, seconds: float
    ) -> ToolResult:
        self.desk.draw("cllama → service", f"{call.canonical} {call.arguments.values}")  # type: ignore[union-attr]
        gate = self.gates.get(call.canonical)
        self.keys.append(key)
        self.calls.append(call.canonical)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        for _ in range(1 + self.lags.get(call.canonical, 0)):
            await asyncio.sleep(0)
        if gate is not None:
            await gate.wait()
        self.running -= 1
        self.answered.append(call.canonical)
        return self._answer(agent, call, seconds)

    def _answer(self, agent: Agent, call: ToolCall, seconds: float) -> ToolResult:
        taken = self.takes.get(call.canonical, 0.0)
        self.desk.clock += min(taken, seconds)
        if taken > seconds:
            return tool_result.timeout(call, seconds)
        answers = self.script.get(call.canonical, [(200, {})])
        status, data = answers.pop(0) if len(answers) > 1 else answers[0]
        body = json.dumps(data).encode()
        return tool_result.read_http_response(
            call, status, body, len(body), agent.limits.result_bytes
        )

    def release(self, agent_id: str) -> None:
        """An agent's files have changed: it has no session here."""

    async def close(self) -> None:
        return


def _short(envelope: dict[str, Any]) -> str:
    """Return the part of a result that the picture shows: its data, or its error's code."""
    if envelope["ok"]:
        return str(envelope.get("data", "done")) + (
            " (truncated)" if envelope.get("truncated") else ""
        )
    return f"! {envelope['error']['code']}"
