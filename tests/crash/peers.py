"""A model and a service that serve all conversations at once, and check everything that they receive.

A user's words name a turn and say what the model does in it, so the model needs no memory: ``a.1 [["write"], ["read"]]`` is
two rounds of one call each. Like any model, it never repeats itself: each of its calls has a new number. A call's
``order`` is its place in the conversation, the same however often the model is asked.
"""

from __future__ import annotations

import json
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import Provider, Service
from tests.wires import Body, Made, Wire, anthropic, openai

TOOLS = {"write": "desk__trade", "read": "desk__balance"}
NUMBER = {"type": "object", "properties": {"order": {"type": "string"}, "number": {"type": "integer"}}}


class Effect(NamedTuple):
    """A service's execution of an order: the idempotency key and the turn of the call."""

    key: str
    turn: str


class Told(NamedTuple):
    """A call's id and result, as the model is sent them."""

    call_id: str
    content: str


def orders(words: str, rounds: int | None = None) -> list[str]:
    """Return the orders of a turn, or of its first rounds."""
    name, plan = words.split(" ", 1)
    return [f"{name}.{at}.{place}" for at, made in enumerate(json.loads(plan)[:rounds], 1) for place, _ in enumerate(made)]


@dataclass
class Books:
    """The record of all conversations."""

    writes: dict[str, list[Effect]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[str, list[Effect]] = field(default_factory=lambda: defaultdict(list))
    told: dict[str, Told] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Errors, by conversation."""
    listeners: dict[str, Callable[[str], None]] = field(default_factory=dict)
    """Callbacks by conversation: each is told that a point was passed, and may kill its proxy there."""

    def passes(self, order: str, point: str) -> None:
        self.listeners[order.partition(".")[0]](point)


@dataclass
class Model(Provider):
    """A model that makes the calls in the user's words, and checks the hidden rounds of all turns so far in every request."""

    books: Books = field(default_factory=Books)
    made: dict[str, str] = field(default_factory=dict)
    """The order of each call, by its id."""
    replies: dict[str, bytes] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    async def answer(self, request: Request) -> Response:
        wire: Wire = anthropic if request.url.path.endswith("/messages") else openai
        body = await request.json()
        said = [one["content"] for one in body["messages"] if one["role"] == "user" and isinstance(one["content"], str)]
        self.books.passes(said[-1], "the model hears")
        try:
            return Response(self._reply(wire, body, said), media_type="application/json")
        except Exception:  # noqa: BLE001 - recorded for the test, which itself gets only an error response
            self.books.faults[said[-1].partition(".")[0]].append(traceback.format_exc())
            return JSONResponse(wire.error("fault", "see the books"), status_code=400)

    def _reply(self, wire: Wire, body: Body, said: Sequence[str]) -> bytes:
        wire.check(body, self.replies)
        parts = wire.parts(body["messages"])
        rounds = parts[len(parts) - parts[::-1].index("user") :].count("assistant")
        self._check_told(wire, body, [*(one for words in said[:-1] for one in orders(words)), *orders(said[-1], rounds)])
        name, plan = said[-1].split(" ", 1)
        wanted = json.loads(plan)
        if rounds == len(wanted):
            return wire.reply(f"{name} is over", [], {})
        calls = [self._call(kind, f"{name}.{rounds + 1}.{place}") for place, kind in enumerate(wanted[rounds])]
        reply = wire.reply("", calls, {})
        self.replies |= {call.id: reply for call in calls}
        return reply

    def _check_told(self, wire: Wire, body: Body, expected: list[str]) -> None:
        """Check that the request has every hidden call of the conversation in order, with the same bytes as before."""
        told = [(self.made[call_id], Told(call_id, content)) for call_id, content in wire.answers(body["messages"])]
        assert [order for order, _ in told] == expected
        for order, how in told:
            assert self.books.told.setdefault(order, how) == how

    def _call(self, kind: str, order: str) -> Made:
        with self._lock:
            number = next(self._numbers)
        self.made[f"call_{number}"] = order
        return Made(f"call_{number}", TOOLS[kind], json.dumps({"order": order, "number": number}))


@dataclass
class Counting(Service):
    """A service that runs and records every call. It ignores idempotency keys: a second call is a second effect."""

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
                result: Any = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}}
                headers = {"mcp-session-id": f"session-{next(self._sessions)}"}
                return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)
            case "tools/list":
                result = {"tools": [{"name": name, "inputSchema": NUMBER} for name in ("balance", "trade")]}
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
