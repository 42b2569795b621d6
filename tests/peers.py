"""Real peers on loopback: a provider that answers from a script over the real wire, and a service
that records its calls.

Only the model is scripted. Both are real HTTP servers (uvicorn) in threads of the test process.
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
from tests.wires.openai import completion

type Answer = Response | Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Received:
    """A request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Server(uvicorn.Server):
    """A server that ends at once. uvicorn's own checks for it ten times a second,
    and then gives clients as much time.
    """

    async def main_loop(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        await self.on_tick(0)
        if not self.should_exit:
            await self._over.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # asyncio leaves a client behind, half made, that is accepted in the step before its server
        # is closed.
        loop = asyncio.get_running_loop()  # a server that is ended while it starts has no main loop
        for accepting in (each for server in self.servers for each in server.sockets):
            loop.remove_reader(accepting.fileno())
        for _ in range(
            10
        ):  # a client that has just been accepted becomes a connection some steps later
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)  # let them see it
        for listening in (*self.servers, *(sockets or ())):
            listening.close()

    def end(self) -> None:
        self.should_exit = True
        if hasattr(self, "_over"):
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._over.set)


@dataclass
class Peer(ABC):
    """A server that records its requests."""

    received: list[Received] = field(default_factory=list)
    questions: list[Received] = field(default_factory=list)
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
        received = Received(request.method, path, headers, body)
        if headers.get("user-agent") == USER_AGENT:
            self.questions.append(received)
            return (
                self.verdict if isinstance(self.verdict, Response) else await self.verdict(request)
            )
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


@dataclass
class Provider(Peer):
    """A provider that gives the scripted answers, one for each request, in order."""

    script: list[Answer] = field(default_factory=list)

    def says(self, *answers: Answer) -> None:
        self.script += answers

    async def answer(self, request: Request) -> Response:
        if not self.script:
            return JSONResponse(
                {"error": {"message": "the script of this test is over"}}, status_code=418
            )
        said = self.script.pop(0)
        return said if isinstance(said, Response) else await said(request)


@dataclass
class Service(Peer):
    """A service of the pod: it answers by method and path, otherwise with 404."""

    routes: dict[tuple[str, str], Answer] = field(default_factory=dict)

    async def answer(self, request: Request) -> Response:
        said = self.routes.get((request.method, request.url.path))
        if said is None:
            return JSONResponse({"error": "no such path"}, status_code=404)
        return said if isinstance(said, Response) else await said(request)


def bad_key(status: int = 401, message: str = "no such key") -> JSONResponse:
    """Return the refusal of a bad key, with the codes of both OpenAI and Anthropic."""
    codes = {"type": "authentication_error", "code": "invalid_api_key", "message": message}
    return JSONResponse({"type": "error", "error": codes}, status)


def text(words: str, **more: Any) -> JSONResponse:
    return JSONResponse(completion(words, **more))


def calls(*made: tuple[str, str, Any], words: str | None = None) -> JSONResponse:
    return JSONResponse(completion(words, calls=list(made)))


def events(*chunks: dict[str, Any]) -> StreamingResponse:
    """Return a provider's own stream, as a runner gets it without mediation."""

    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield b"data: " + json.dumps(chunk).encode() + b"\n\n"

    return _Events(stream(), media_type="text/event-stream")


class _Events(StreamingResponse):
    """A stream whose end comes in one piece with its last event.

    The SDKs leave at that event. If the end came later, they might leave before it, and the proxy
    would count a broken stream.
    """

    async def stream_response(self, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        async for event in self.body_iterator:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
