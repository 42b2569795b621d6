"""Real peers on loopback: a provider whose model follows a script, and a service of the pod.

Both are real HTTP servers (uvicorn) in threads of the test process, which record what they get.
Only the model is scripted, and every test scripts it in one language, ``Answer``:

    provider.says(text("Hi."))                      a reply, in the protocol of the request
    provider.says(calls(("c1", "desk__balance", {})), text("You have 5 dollars."))
    provider.says(JSONResponse(…, 429))             a response of HTTP, as it is
    provider.says(DelayedAnswer(text("Late.")))     a reply, once the test lets it answer
    provider.says(GatedReply(text("One two.")))     a stream whose events the test releases
    provider.says(count)                            what this function of the request returns
    provider.model = OneCallModel(…)                what answers each request behind the script

Three peers speak below HTTP's messages, and have scripts of bytes: ``tests/raw.py`` fails as no HTTP
server can, ``tests/proxy/wire.py`` compares every byte, and ``tests/proxy/frames.py`` speaks HTTP/2.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Send

from claw_mediate.providers.key_answers import USER_AGENT
from tests.waiting import eventually_async
from tests.wires import Body, MadeCall, Wire, anthropic, openai, responses

type Answer = Response | Reply | Callable[[Request], Awaitable[Answer]]
"""One step of a script."""
_WIRES: tuple[Wire, ...] = (anthropic, responses, openai)


def wire_of(path: str) -> Wire:
    """Return the protocol of a path; OpenAI's chat completions for any other path."""
    for wire in _WIRES:
        if path.endswith(wire.PATH.removeprefix("/v1")):
            return wire
    return openai


@dataclass(frozen=True)
class Reply:
    """A model's reply, which is written in the protocol of its request, as a stream if that asks
    for one.
    """

    text: str = ""
    calls: tuple[MadeCall, ...] = ()
    more: Body = field(default_factory=dict)
    """Further members of the response, in the protocol's own names."""


def model_response(wire: Wire, body: bytes, *, stream: bool) -> Response:
    """Return a model's reply over HTTP, as the provider of this protocol sends it."""
    if stream:
        return _Events(_pieces(wire.streamed(body)), media_type="text/event-stream")
    return Response(body, media_type="application/json")


async def respond(answer: Answer, request: Request) -> Response:
    """Return the response that an answer is to a request."""
    # A Response can be called too, as an ASGI application.
    while not isinstance(answer, Response | Reply):
        answer = await answer(request)
    if isinstance(answer, Response):
        return answer

    body = await request.body()
    asked = json.loads(body) if body.startswith(b"{") else {}
    wire = wire_of(request.url.path)
    written = wire.reply(answer.text, answer.calls, answer.more)
    return model_response(wire, written, stream=asked.get("stream") is True)


class DelayedAnswer:
    """An answer that is sent only when the test lets it; ``asked`` is set by the request."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked, self.go, self.finished = threading.Event(), threading.Event(), threading.Event()

    async def __call__(self, _request: Request) -> Answer:
        self.asked.set()
        await eventually_async(self.go.is_set, "the test lets it answer")
        self.finished.set()
        return self.answer


class GatedReply:
    """A reply whose stream goes on only when the test releases its next events.

    ``cut``: the connection breaks off in place of the end. ``events`` are those that the stream
    has, known when it was asked for. ``left`` is set when the client leaves before the end.
    """

    def __init__(self, reply: Reply, *, cut: bool = False) -> None:
        self.reply = reply
        self.cut = cut
        self.asked, self.finished = threading.Event(), threading.Event()
        self.left = threading.Event()
        self.events: list[bytes] = []
        self._released = threading.Semaphore(0)

    def release(self, events: int = 1) -> None:
        """Let the stream send so many events more."""
        self._released.release(events)

    def release_all(self) -> None:
        self._released.release(10_000)

    async def __call__(self, request: Request) -> Answer:
        wire = wire_of(request.url.path)
        body = wire.reply(self.reply.text, self.reply.calls, self.reply.more)
        self.events = [event + b"\n\n" for event in wire.streamed(body).split(b"\n\n")[:-1]]
        self.asked.set()
        return StreamingResponse(self._chunks(), media_type="text/event-stream")

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            for event in self.events:
                await eventually_async(
                    lambda: self._released.acquire(blocking=False), "the test releases an event"
                )
                yield event
        except (asyncio.CancelledError, GeneratorExit):
            self.left.set()
            raise
        if self.cut:
            raise ConnectionResetError
        self.finished.set()


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Server(uvicorn.Server):
    """A server that ends at once.

    uvicorn's own looks ten times a second whether it is to end, and then gives its clients as much
    time.
    """

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        await self.on_tick(0)
        if not self.should_exit:
            await self._over.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Not ``self._loop``: a server that is ended while it starts has none.
        loop = asyncio.get_running_loop()

        # No more clients are accepted from here on. asyncio leaves one behind, half made, that it
        # accepts in the step before its server is closed.
        for server in self.servers:
            for accepting in server.sockets:
                loop.remove_reader(accepting.fileno())

        # A client that has just been accepted becomes a connection some steps later.
        for _ in range(10):
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)  # The connections learn of it

        for listening in (*self.servers, *(sockets or ())):
            listening.close()

    def end(self) -> None:
        self.should_exit = True
        if hasattr(self, "_over"):
            with contextlib.suppress(RuntimeError):  # The loop has ended
                self._loop.call_soon_threadsafe(self._over.set)


@dataclass
class Peer(ABC):
    """A server that records its requests."""

    received: list[ReceivedRequest] = field(default_factory=list)
    questions: list[ReceivedRequest] = field(default_factory=list)
    """The proxy's own questions about keys, which are not among the received requests."""
    verdict: Answer = field(default_factory=lambda: JSONResponse({"data": []}))
    """The answer to such a question."""
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when a client left while its answer was being made."""
    host: str = "127.0.0.1"
    port: int = 0
    _server: _Server | None = None
    _thread: threading.Thread | None = None

    @abstractmethod
    async def answer(self, request: Request) -> Response:
        """Return the answer to a request."""

    def start(self, *listeners: socket.socket, certificate: Path | None = None) -> None:
        """Listen on a free port of loopback, or on these listeners;
        ``certificate``: a file with its key, for TLS.
        """
        listeners = listeners or (listening("127.0.0.1", 0),)
        self.host, self.port = listeners[0].getsockname()[:2]
        methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
        app = Starlette(routes=[Route("/{path:path}", self._receive, methods=methods)])
        self._server = _Server(
            uvicorn.Config(
                app,
                loop="asyncio",  # Not "auto", which looks for packages that are not installed
                http="h11",
                ws="none",
                log_level="critical",
                lifespan="off",
                access_log=False,
                ssl_certfile=certificate,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, args=(list(listeners),), daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        assert self._server is not None
        assert self._thread is not None
        self._server.end()
        self._thread.join(timeout=10)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def _receive(self, request: Request) -> Response:
        body = await request.body()
        headers = {name.lower(): value for name, value in request.headers.items()}
        path = request.scope["raw_path"].decode()
        if request.url.query:
            path += f"?{request.url.query}"
        received = ReceivedRequest(request.method, path, headers, body)
        if headers.get("user-agent") == USER_AGENT:
            self.questions.append(received)
            return await respond(self.verdict, request)
        self.received.append(received)
        answering = asyncio.ensure_future(self.answer(request))
        leaving = asyncio.ensure_future(_left(request))
        await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            self.gone.set()
            answering.cancel()
            return Response(status_code=499)
        leaving.cancel()
        return answering.result()


def listening(host: str, port: int) -> socket.socket:
    """Return a listener, where clients wait until a server runs.

    TCP is named so that asyncio sends small answers at once.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(
        socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
    )  # for the next listener at this address
    listener.bind((host, port))
    listener.listen()
    return listener


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _say_script_is_over(_request: Request) -> Response:
    error = {"message": "the script of this test is over"}
    return JSONResponse({"error": error}, status_code=418)


@dataclass
class Provider(Peer):
    """A provider: it gives the scripted answers, one for each request, in order, and after them
    those of its model.
    """

    script: list[Answer] = field(default_factory=list)
    model: Answer = _say_script_is_over

    def says(self, *answers: Answer) -> None:
        self.script += answers

    def forget_script(self) -> None:
        self.script.clear()
        self.model = _say_script_is_over

    async def answer(self, request: Request) -> Response:
        return await respond(self.script.pop(0) if self.script else self.model, request)


@dataclass
class Service(Peer):
    """A service of the pod: it answers by method and path, otherwise with 404."""

    routes: dict[tuple[str, str], Answer] = field(default_factory=dict)

    async def answer(self, request: Request) -> Response:
        said = self.routes.get((request.method, request.url.path))
        if said is None:
            return JSONResponse({"error": "no such path"}, status_code=404)
        return await respond(said, request)


def bad_key(status: int = 401, message: str = "no such key") -> JSONResponse:
    """Return the refusal of a bad key, with the codes of both OpenAI and Anthropic."""
    codes = {"type": "authentication_error", "code": "invalid_api_key", "message": message}
    return JSONResponse({"type": "error", "error": codes}, status)


def text(words: str, **more: Any) -> Reply:
    """Return a model's words; ``more``: further members of the response."""
    return Reply(words, more=more)


def calls(*made: tuple[str, str, Any], words: str = "", **more: Any) -> Reply:
    """Return a model's calls as (id, name, arguments), behind its words.

    Arguments that are a text are sent as they are, also where they are no JSON.
    """
    spelled = [
        MadeCall(call_id, name, arguments if isinstance(arguments, str) else json.dumps(arguments))
        for call_id, name, arguments in made
    ]
    return Reply(words, tuple(spelled), more)


def events(*chunks: Body) -> StreamingResponse:
    """Return a provider's own stream, as a runner gets it without mediation."""
    stream = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks)
    return _Events(_pieces(stream + b"data: [DONE]\n\n"), media_type="text/event-stream")


async def _pieces(stream: bytes) -> AsyncIterator[bytes]:
    for event in stream.split(b"\n\n")[:-1]:
        yield event + b"\n\n"


class _Events(StreamingResponse):
    """A stream whose end comes in one piece with its last event.

    The SDKs leave at that event. If the end came later, they might leave before it, and the proxy
    would count a broken stream.
    """

    async def stream_response(self, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        held = b""
        async for event in self.body_iterator:
            if held:
                await send({"type": "http.response.body", "body": held, "more_body": True})
            held = bytes(event)
        await send({"type": "http.response.body", "body": held})
