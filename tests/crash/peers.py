"""A model and a service that serve all conversations at once, and check everything
that they receive.

A user's words name a turn and say what the model does in it, so the model needs no memory: ``a.1
[["write"], ["read"]]`` is two rounds of one call each. Like any model, it never repeats itself:
each of its calls has a new number. A call's ``order`` is its place in the conversation, the same
however often the model is asked.
"""

from __future__ import annotations

import json
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.kept_responses import KeptResponses
from tests.peers import Service, model_response, wire_of
from tests.wires import Body, MadeCall, Wire, responses

TOOLS = {"write": "desk__trade", "read": "desk__balance"}
NUMBER = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "number": {"type": "integer"}},
}


class Effect(NamedTuple):
    """A service's execution of an order: the idempotency key and the turn of the call."""

    key: str
    turn: str


class ToldResult(NamedTuple):
    """A call's id and result, as the model is sent them."""

    call_id: str
    content: str


def orders(words: str, rounds: int | None = None) -> list[str]:
    """Return the orders of a turn, or of its first rounds."""
    name, plan = words.split(" ", 1)
    return [
        f"{name}.{at}.{place}"
        for at, made in enumerate(json.loads(plan)[:rounds], 1)
        for place, _ in enumerate(made)
    ]


def preamble(number: int) -> str:
    """Return what the model says before the calls of a round whose reply is streamed."""
    return f"Step {number}. "


def answer_text(words: str, *, is_live: bool) -> str:
    """Return the whole answer of a turn: of a live one it begins with what the model said before
    its calls.
    """
    name, plan = words.split(" ", 1)
    rounds = len(json.loads(plan)) if is_live else 0
    return "".join(map(preamble, range(1, rounds + 1))) + f"{name} is over"


def assistant_texts(transcript: Sequence[Body]) -> list[str]:
    """Return what the assistant said before each message of the user's, and behind the last one,
    without white space.
    """
    texts = [""]
    for one in transcript:
        content = one.get("content")
        if one.get("role") == "user" and isinstance(content, str):
            texts.append("")
        elif one.get("role") == "assistant":
            parts = [{"text": content}] if isinstance(content, str) else content or []
            said = "".join(part.get("text", "") for part in parts)
            texts[-1] += "".join(said.split())
    return texts


@dataclass
class Books:
    """The record of all conversations."""

    writes: dict[str, list[Effect]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[str, list[Effect]] = field(default_factory=lambda: defaultdict(list))
    told: dict[str, ToldResult] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    """The text of each answer that a runner has, by the name of its turn."""
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Errors, by conversation."""
    listeners: dict[str, Callable[[str], None]] = field(default_factory=dict)
    """Callbacks by conversation: each is told that a point was passed, and may kill
    its proxy there.
    """

    def passes(self, order: str, point: str) -> None:
        self.listeners[order.partition(".")[0]](point)


class LastExchange(NamedTuple):
    """The last exchange of a conversation; ``port``: of the proxy's connection."""

    sent: list[Body]
    items: int
    port: int


@dataclass
class AppendingResponses(KeptResponses):
    """What the provider keeps; it has every conversation that is named."""

    _last: dict[str, LastExchange] = field(default_factory=dict)

    def earlier(self, request: Body) -> list[Body]:
        if name := request.get("conversation"):
            self.conversations.setdefault(name, [])
        return super().earlier(request)

    def take_back(self, request: Body, port: int) -> None:
        """Take back the last exchange of a conversation if nobody heard its answer.

        A provider appends nothing for a client that is gone. So an exchange is taken back if the
        same items come over another connection: the proxy that sent them has died. One that lives
        uses its connection again.
        """
        name = request.get("conversation") or ""
        last = self._last.get(name)
        if last is not None and last.sent == request["input"] and last.port != port:
            self.conversations[name] = self.conversations[name][: -last.items]
            del self._last[name]

    def append(self, request: Body, read: list[Body], response: Body, port: int) -> None:
        self.keep(request, read, response)
        if name := request.get("conversation"):
            items = len(request["input"]) + len(response["output"])
            self._last[name] = LastExchange(request["input"], items, port)


def _keep_nothing() -> None:
    """Do nothing: only Responses are kept."""


@dataclass
class PlanModel:
    """The model of a ``Provider``: it makes the calls in the user's words, and checks the hidden
    rounds of all turns so far in every request.
    """

    books: Books = field(default_factory=Books)
    made: dict[str, str] = field(default_factory=dict)
    """The order of each call, by its id."""
    replies: dict[str, bytes] = field(default_factory=dict)
    kept: AppendingResponses = field(default_factory=AppendingResponses)
    _numbers: count[int] = field(default_factory=count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    async def __call__(self, request: Request) -> Response:
        wire = wire_of(request.url.path)
        body = await request.json()
        said = self._said(wire, body)
        conversation = said[-1].partition(".")[0]
        self.books.passes(said[-1], "the model hears")
        try:
            port = request.client.port if request.client else 0
            made, keep = self._answer(wire, body, port)
            keep()
            return model_response(wire, made, stream=body.get("stream") is True)
        except Exception:  # noqa: BLE001 - recorded for the test, which itself gets only an error response
            self.books.faults[conversation].append(traceback.format_exc())
            return JSONResponse(wire.error("fault", "see the books"), status_code=400)

    def _said(self, wire: Wire, body: Body) -> list[str]:
        """Return the users' words; those of a conversation may be at the provider alone."""
        transcript = self.kept.read(body) if wire is responses else body[wire.TRANSCRIPT]
        return [
            one["content"]
            for one in transcript
            if one.get("role") == "user" and isinstance(one["content"], str)
        ]

    def _answer(self, wire: Wire, body: Body, port: int) -> tuple[bytes, Callable[[], None]]:
        """Return the reply to a request, and what keeps it for later requests."""
        if wire is not responses:
            return self._reply(wire, body, self._said(wire, body)), _keep_nothing
        with self._lock:
            self.kept.take_back(body, port)
            transcript = self.kept.read(body)
        whole = {
            name: value
            for name, value in body.items()
            if name not in {"previous_response_id", "conversation"}
        }
        whole["input"] = transcript
        made = self._reply(wire, whole, self._said(wire, whole))
        return made, partial(self.kept.append, body, transcript, json.loads(made), port)

    def _reply(self, wire: Wire, body: Body, said: Sequence[str]) -> bytes:
        wire.check(body, self.replies)
        transcript = body[wire.TRANSCRIPT]
        parts = wire.parts(transcript)
        rounds = parts[len(parts) - parts[::-1].index("user") :].count("assistant")
        self._check_told(
            wire,
            transcript,
            [*(one for words in said[:-1] for one in orders(words)), *orders(said[-1], rounds)],
        )
        self._check_texts(transcript, said)
        name, plan = said[-1].split(" ", 1)
        wanted = json.loads(plan)
        is_over = rounds == len(wanted)
        calls = (
            []
            if is_over
            else [
                self._call(kind, f"{name}.{rounds + 1}.{at}")
                for at, kind in enumerate(wanted[rounds])
            ]
        )
        # Only of a live turn is the proxy's request a stream, and is text before a call shown.
        before = preamble(rounds + 1) if body.get("stream") is True else ""
        made = self._write(wire, f"{name} is over" if is_over else before, calls, body)
        self.replies |= {call.id: made for call in calls}
        return made

    def _write(self, wire: Wire, text: str, calls: list[MadeCall], body: Body) -> bytes:
        if wire is not responses:
            return wire.reply(text, calls, {})
        number = next(self._numbers)
        output = [responses.message(text, f"msg_{number}")] if text else []
        output += [responses.function_call(call.id, call.name, call.arguments) for call in calls]
        is_stored = body.get("store") is not False
        response = responses.response(*output, id=f"resp_{number}", store=is_stored)
        return json.dumps(response).encode()

    def _check_told(self, wire: Wire, transcript: Sequence[Body], expected: list[str]) -> None:
        """Check that the request has every hidden call of the conversation in
        order, with the same bytes as before.
        """
        told = [
            (self.made[call_id], ToldResult(call_id, content))
            for call_id, content in wire.answers(transcript)
        ]
        assert [order for order, _ in told] == expected
        for order, how in told:
            before = self.books.told.setdefault(order, how)
            assert before == how, f"{order} was told as {before}, and then as {how}"

    def _check_texts(self, transcript: Sequence[Body], said: Sequence[str]) -> None:
        """Check that the request has each word of earlier answers once."""
        names = [words.split(" ", 1)[0] for words in said]
        answers = [self.books.answers.get(name, "") for name in names[:-1]]
        expected = ["".join(answer.split()) for answer in answers]
        assert assistant_texts(transcript)[1:-1] == expected

    def _call(self, kind: str, order: str) -> MadeCall:
        with self._lock:
            number = next(self._numbers)
        self.made[f"call_{number}"] = order
        return MadeCall(
            f"call_{number}", TOOLS[kind], json.dumps({"order": order, "number": number})
        )


@dataclass
class RecordingService(Service):
    """A service that runs and records every call.

    It ignores idempotency keys: a second call is a second effect.
    """

    books: Books = field(default_factory=Books)
    _sessions: count[int] = field(default_factory=count)

    async def answer(self, request: Request) -> Response:
        if request.url.path == "/mcp":
            return await self._answer_mcp(request)
        writes = request.method == "POST"
        order: Any = (await request.json() if writes else request.query_params)["order"]
        self._do(order, request, writes=writes)
        return JSONResponse({"order": order})

    async def _answer_mcp(self, request: Request) -> Response:
        """As an MCP server with sessions."""
        message = await request.json() if request.method == "POST" else {}
        match message.get("method"):
            case "initialize":
                result: Any = {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                }
                headers = {"mcp-session-id": f"session-{next(self._sessions)}"}
                return JSONResponse(
                    {"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers
                )
            case "tools/list":
                result = {
                    "tools": [
                        {"name": name, "inputSchema": NUMBER} for name in ("balance", "trade")
                    ]
                }
            case "tools/call":
                order = message["params"]["arguments"]["order"]
                self._do(order, request, writes=message["params"]["name"] == "trade")
                result = {"content": [], "structuredContent": {"order": order}}
            case _:
                return Response(status_code=202)
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _do(self, order: str, request: Request, *, writes: bool) -> None:
        self.books.passes(order, "the service hears")
        effect = Effect(request.headers.get("idempotency-key", ""), request.headers["x-claw-turn"])
        (self.books.writes if writes else self.books.reads)[order].append(effect)
        self.books.passes(order, "the service has done it")
