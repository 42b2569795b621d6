"""Streamed replies of a provider on a real socket, and a sink that shows them or keeps them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from claw_contract.sse import SseEvent
from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.core.types import ModelResponse
from claw_mediate.dialects.base import FailedResponseError, UnreadableResponseError
from claw_mediate.providers.client import CutReply, ProviderResponse, TransportFailure
from claw_mediate.providers.failover import ModelCall
from claw_mediate.providers.live_reply import FlowLimits, LiveReply
from tests.mediate.providers.crossroads import Crossroads
from tests.peers import Answer
from tests.wires import MadeCall, openai


def event(data: Any) -> bytes:
    return b"data: %b\n\n" % (data if isinstance(data, bytes) else json.dumps(data).encode())


def delta(**members: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": members}]})


OPENING = delta(role="assistant")
USAGE = {"prompt_tokens": 7, "completion_tokens": 2}
TEXT = [OPENING, delta(content="Hel"), delta(content="lo")]
CALL = [OPENING, delta(tool_calls=[{"name": "desk__get", "arguments": "{}"}])]
END = [
    event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    event({"choices": [], "usage": USAGE}),
    event(b"[DONE]"),
]
HELLO = [*TEXT, *END]


class ChatAssembler:
    """Puts a reply of the events above together."""

    def __init__(self) -> None:
        self.is_whole = self.is_over = False
        self.error: FailedResponseError | None = None
        self.text = ""
        self.calls: list[MadeCall] = []
        self._usage: bytes | None = None

    def feed(self, event: SseEvent) -> Sequence[ReplyEvent]:
        if event.data == b"[DONE]":
            self.is_over = self.is_whole
            return ()
        try:
            said = json.loads(event.data)
        except ValueError:
            raise UnreadableResponseError("an event is no JSON") from None
        if "error" in said:
            self.error = FailedResponseError(said["error"]["status"], event.data)
            return ()
        if "usage" in said:
            self._usage = json.dumps(said["usage"]).encode()
        return [told for choice in said["choices"] for told in self._choice(choice)]

    def _choice(self, choice: dict[str, Any]) -> list[ReplyEvent]:
        if "finish_reason" in choice:
            self.is_whole = True
            return [ReplyEvent("end", 0, {})]
        told: list[ReplyEvent] = []
        for name, value in choice["delta"].items():
            if name == "content":
                self.text += value
                told.append(ReplyEvent("content", 0, {}, name, value))
            elif name == "tool_calls":
                self.calls += [MadeCall(f"c{n}", **call) for n, call in enumerate(value)]
                told += [
                    ReplyEvent("call", 0, {}, f"call {n}", call["arguments"])
                    for n, call in enumerate(value)
                ]
            else:
                told.append(ReplyEvent("opening", 0, {}))
        return told

    def body(self) -> bytes:
        return openai.reply(self.text, self.calls, {"usage": USAGE})

    def usage(self) -> bytes | None:
        return self._usage


UNLIMITED = FlowLimits()


class Sink:
    """Shows the text of each reply up to its first call, or none of it."""

    def __init__(self, *, shows: bool = True) -> None:
        self.shows = shows
        self.has_shown = False
        self.attempts: list[list[ReplyEvent]] = []
        """The events of each attempt at a reply."""
        self.shown: list[str] = []
        self.fast = asyncio.Event()
        """While it is not set, the runner takes nothing."""
        self.fast.set()

    def begin(self) -> ChatAssembler:
        self.has_shown = False
        self.attempts.append([])
        return ChatAssembler()

    def show(self, events: Sequence[ReplyEvent]) -> None:
        for told in events:
            self.attempts[-1].append(told)
            has_call = any(past.kind == "call" for past in self.attempts[-1])
            if told.kind == "content" and self.shows and not has_call:
                self.has_shown = True
                self.shown.append(told.text)

    @property
    def is_far_ahead(self) -> bool:
        return self.has_shown and not self.fast.is_set()

    async def wait_for_runner(self) -> None:
        await self.fast.wait()


async def ask(
    roads: Crossroads, sink: Sink, limits: FlowLimits = UNLIMITED, *, seconds: float = 30.0
) -> str:
    """Make one live model call; return its outcome in a word or two."""
    match await post(roads, LiveReply(sink, limits), seconds=seconds):
        case ModelResponse(body):
            return openai.said(body).text
        case ProviderResponse(status, _, body):
            return f"{status} {json.loads(body)['error']['message']}"
        case TransportFailure(code, _, status):
            return f"{status} {code}"
        case CutReply(code, is_cut=is_cut):
            return f"{'cut' if is_cut else 'error'} {code}"


async def post(
    roads: Crossroads, live: LiveReply, *, seconds: float = 30.0
) -> ModelResponse | ProviderResponse | TransportFailure | CutReply:
    until = asyncio.get_running_loop().time() + seconds
    call = ModelCall(roads.body.encode(), roads.read, lambda: False, until, live=live)
    return await roads.upstream.post(roads.route, call)


def stream(*chunks: bytes, ends: Callable[[], Awaitable[None]] | None = None) -> Response:
    """Return a stream of events, each in a chunk of its own.

    ``ends`` is awaited before its clean end.
    """

    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk
        if ends is not None:
            await ends()

    return StreamingResponse(body(), media_type="text/event-stream")


async def breaks_off() -> None:
    raise ConnectionResetError("the provider is gone")


async def hangs() -> None:
    await asyncio.Event().wait()


def held_at(place: int, chunks: Sequence[bytes], go: Callable[[], Awaitable[object]]) -> Answer:
    """Return a stream that waits for ``go`` before the chunk at this place."""

    async def answer(_request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            for number, chunk in enumerate(chunks):
                if number == place:
                    await go()
                yield chunk

        return StreamingResponse(body(), media_type="text/event-stream")

    return answer


def point_at(roads: Crossroads, port: int) -> None:
    """Let the first provider be the one at this port, alone."""
    candidate = roads.route.candidates[0]
    moved = replace(candidate.provider, base_url=f"http://127.0.0.1:{port}")
    roads.route.candidates = [replace(candidate, provider=moved)]
