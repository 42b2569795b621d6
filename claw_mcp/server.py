"""The server side of streamable HTTP, for both protocol eras and any HTTP library.

Specification: docs/spec/mcp.md.

Rules. A request of a host or origin that is not allowed is refused before its body is read. A
handshake session is found by its id and belongs to its principal. An answer is JSON; it is a stream
of events if something is sent before it, or if it takes long. A client that leaves cancels its
request in the stateless era only: in the other one ``notifications/cancelled`` does.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec

from claw_contract.sse import write_event
from claw_mcp import stateless
from claw_mcp.protocol import (
    HANDSHAKE_VERSIONS,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    JSON_TYPE,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    SERVER_ERROR,
    SESSION_ID,
    SSE_TYPE,
    STATELESS_VERSION,
    MessageError,
    RpcError,
    RpcMessage,
    read_messages,
    read_object,
    write_error,
    write_notification,
    write_result,
)
from claw_mcp.sessions import Answer, ClientRequest, ListeningStreams, Outbox, Session, SessionTable

MAX_BODY: Final = 4 << 20
MAX_SESSIONS: Final = 1_000
IDLE_SECONDS: Final = 1_800.0
# An answer that takes longer becomes a stream, and a stream that is silent longer gets a comment
_SILENT_SECONDS = 15.0
_MAX_REQUESTS = 256  # Requests that run at once in a session
_MAX_STREAMS = 128  # Streams of a principal on which it only listens; one more ends the oldest
_EVENT_HEADERS: Final = [
    ("content-type", SSE_TYPE),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request whose body has arrived.

    ``body`` may be longer than what is allowed, by at least one byte.
    """

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response.

    Whoever writes it reads ``chunks`` to the end, or closes it when the client leaves.
    """

    status: int
    headers: list[tuple[str, str]]
    chunks: AsyncIterator[bytes]


class Backend(Protocol):
    """The answers of a server. ``answer`` is cancelled when the client cancels the request."""

    async def describe(self, request: ClientRequest) -> Mapping[str, Any]:
        """Return ``capabilities``, ``serverInfo`` and, if there are any, ``instructions``.

        The values are JSON data or ``msgspec.Raw``.
        """

    async def answer(self, request: ClientRequest) -> bytes:
        """Return the result, a JSON object. Raise ``RpcError``."""

    def end_session(self, session: Session) -> None:
        """Forget what belongs to a session that has ended."""


class Refusal(Exception):  # noqa: N818 - an answer, and no fault of ours
    """A request that gets an HTTP status of its own, with a JSON-RPC error."""

    def __init__(
        self, status: int, error: RpcError, request_id: bytes = b"", **headers: str
    ) -> None:
        """Answer with ``headers`` besides those of every response."""
        super().__init__(error.message)
        self.status = status
        self.error = error
        self.request_id = request_id
        self.headers = headers

    def response(self) -> HttpResponse:
        return _respond(self.status, write_error(self.request_id, self.error), **self.headers)


class StreamableHttpServer:
    """An MCP server over HTTP: it finds sessions, and a ``Backend`` answers."""

    def __init__(
        self,
        backend: Backend,
        *,
        is_allowed_host: Callable[[str], bool],
        is_allowed_origin: Callable[[str], bool],
        max_body: int = MAX_BODY,
        max_sessions: int = MAX_SESSIONS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """Serve ``backend``.

        ``max_sessions`` is for each principal; ``idle_seconds`` ends a session in which nothing
        runs.
        """
        self._backend = backend
        self._is_allowed_host = is_allowed_host
        self._is_allowed_origin = is_allowed_origin
        self.max_body = max_body
        self.sessions = SessionTable(max_sessions, idle_seconds, backend.end_session)
        self._stateless: dict[str, Session] = {}  # By principal
        self._listening = ListeningStreams(_MAX_STREAMS)

    async def handle(self, request: HttpRequest, principal: str = "") -> HttpResponse:
        """Answer one HTTP request. Cancel it when the client leaves."""
        try:
            return await self._dispatch(request, _fold(request.headers), principal)
        except Refusal as refusal:
            return refusal.response()

    def refuse(self, headers: list[tuple[str, str]]) -> HttpResponse | None:
        """Return the refusal of a request by its host or origin; None if both are allowed.

        The body of a refused request need not be read.
        """
        try:
            self._check_source(_fold(headers))
        except Refusal as refusal:
            return refusal.response()
        return None

    def broadcast(self, method: str, params: bytes = b"", principal: str | None = None) -> None:
        """Send a notification to every session of a principal, or with None of all.

        Each session gets it on one stream, if it has one.
        """
        message = write_notification(method, params)
        for session in self.sessions:
            if principal in {None, session.principal}:
                session.send(message)

        for session in self._stateless.values():
            if principal not in {None, session.principal}:
                continue
            for request in session.requests:
                if method in request.subscriptions:
                    own_params = stateless.with_subscription(request, params)
                    request.send(write_notification(method, own_params))

    def listening(self) -> set[str]:
        """Return the principals of which a client waits for notifications."""
        return self._listening.principals

    def end_streams(self) -> None:
        """End the streams on which clients only listen."""
        self._listening.end_all()

    async def close(self) -> None:
        """End all sessions and streams; requests that run are answered with an error."""
        ending = [*self.sessions, *self._stateless.values()]
        tasks = [
            request.task
            for session in ending
            for request in session.requests
            if request.task is not None
        ]

        for session in ending:
            session.end()
            self.sessions.end(session)

        if tasks:
            await asyncio.wait(tasks, timeout=1)

    async def _dispatch(
        self, request: HttpRequest, headers: Mapping[str, str], principal: str
    ) -> HttpResponse:
        self._check_source(headers)
        if len(request.body) > self.max_body:
            error = RpcError(INVALID_REQUEST, f"the body is longer than {self.max_body} bytes")
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, error)
        if request.method == "POST":
            return await self._post(headers, request.body, principal)

        is_stateless = stateless.is_stateless(headers)
        if request.method not in {"GET", "DELETE"} or is_stateless:
            allowed = "POST" if is_stateless else "GET, POST, DELETE"
            error = RpcError(INVALID_REQUEST, f"the method is one of {allowed}")
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, error, allow=allowed)

        session = self._session(headers, principal)
        if request.method == "GET":
            return await self._listen(session, headers)
        self.sessions.end(session)
        return _respond(HTTPStatus.OK)

    def _check_source(self, headers: Mapping[str, str]) -> None:
        if not self._is_allowed_host(headers.get("host", "")):
            raise Refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                RpcError(INVALID_REQUEST, "this host is not allowed"),
            )
        if "origin" in headers and not self._is_allowed_origin(headers["origin"]):
            raise Refusal(
                HTTPStatus.FORBIDDEN, RpcError(INVALID_REQUEST, "this origin is not allowed")
            )

    def _session(self, headers: Mapping[str, str], principal: str) -> Session:
        if SESSION_ID not in headers:
            raise Refusal(HTTPStatus.BAD_REQUEST, RpcError(INVALID_REQUEST, "Missing session ID"))
        session = self.sessions.find(headers[SESSION_ID], principal)
        if session is None:
            raise Refusal(HTTPStatus.NOT_FOUND, RpcError(INVALID_REQUEST, "Session not found"))
        return session

    async def _post(self, headers: Mapping[str, str], body: bytes, principal: str) -> HttpResponse:
        """Answer one message: of the stateless era, the opening of a session, or in a session."""
        accepts_json, accepts_stream = _accepted(headers)
        if not (accepts_json or accepts_stream):
            raise Refusal(
                HTTPStatus.NOT_ACCEPTABLE,
                RpcError(INVALID_REQUEST, f"accept {JSON_TYPE} and {SSE_TYPE}"),
            )

        message = _read_body(headers, body)
        is_opening = message.is_request and message.method == "initialize"
        if stateless.is_stateless(headers, message):
            error = stateless.find_error(headers, message)
            if error is not None:
                raise Refusal(HTTPStatus.BAD_REQUEST, error, bytes(message.id))

            # All stateless requests of a principal share one session, which has no id.
            new_session = Session(principal, version=STATELESS_VERSION)
            session = self._stateless.setdefault(principal, new_session)
        elif is_opening:
            request = ClientRequest(Session(principal), message, accepts_stream)
            return await self._open(request, accepts_json)
        else:
            session = self._session(headers, principal)

        if message.is_request:
            request = ClientRequest(session, message, accepts_stream)
            return await self._answer(request, accepts_json)

        # All stateless clients of a principal share a session, so an id may be of several requests.
        # They cancel by closing the connection.
        is_shared = not session.id
        if message.method == "notifications/cancelled" and not is_shared:
            session.cancel(stateless.members(message.params).get("requestId", b""))
        return _respond(HTTPStatus.ACCEPTED)

    async def _open(self, request: ClientRequest, accepts_json: bool) -> HttpResponse:
        """Answer ``initialize``, and keep the session if the backend can be described."""
        session = request.session
        requested = read_object(request.message.params).get("protocolVersion")
        session.version = requested if requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[0]
        request_id = bytes(request.message.id)
        try:
            result = {"protocolVersion": session.version, **await self._backend.describe(request)}
        except RpcError as error:
            return _respond(HTTPStatus.OK, write_error(request_id, error))
        if not self.sessions.add(session):
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                RpcError(SERVER_ERROR, "there are too many sessions"),
                request_id,
            )

        answer = write_result(request_id, msgspec.json.encode(result))
        if accepts_json:
            response = _respond(HTTPStatus.OK, answer)
        else:
            response = HttpResponse(HTTPStatus.OK, [*_EVENT_HEADERS], _once(write_event(answer)))
        headers = [*response.headers, (SESSION_ID, session.id)]
        return HttpResponse(response.status, headers, response.chunks)

    async def _answer(self, request: ClientRequest, accepts_json: bool) -> HttpResponse:
        session = request.session
        if len(session.requests) >= _MAX_REQUESTS:
            error = RpcError(SERVER_ERROR, "too many requests run at once")
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, error, bytes(request.message.id))

        session.requests[request] = None

        # Started at once: a task that is cancelled before it starts would not clean up.
        loop = asyncio.get_running_loop()
        task = asyncio.Task(self._run(request), loop=loop, eager_start=True)
        request.task = task

        try:
            if request.accepts_stream:
                await request.outbox.wait(_SILENT_SECONDS)
            else:
                await asyncio.wait([task])
        except asyncio.CancelledError:
            _leave(request)
            raise

        # An answer that comes soon, and with nothing before it, needs no stream.
        if task.done() and accepts_json and not request.outbox:
            answer = task.result()
            return _respond(answer.status, answer.message)
        return HttpResponse(HTTPStatus.OK, [*_EVENT_HEADERS], await _begin(_events(request, task)))

    async def _run(self, request: ClientRequest) -> Answer:
        """Return the answer to a request, whatever becomes of it."""
        request_id = bytes(request.message.id)
        try:
            return Answer(write_result(request_id, await self._result(request)))
        except RpcError as rpc_error:
            error = rpc_error
        except asyncio.CancelledError:
            error = RpcError(REQUEST_CANCELLED, "the request was cancelled")
        except Exception:  # noqa: BLE001 - the client gets an answer, and the operator the traceback
            _log.exception("a request for %s failed", request.method)
            error = RpcError(INTERNAL_ERROR, "the server failed")
        finally:
            request.session.requests.pop(request, None)
            request.outbox.close()

        status = HTTPStatus.OK if request.session.id else stateless.status_of(error)
        return Answer(write_error(request_id, error), status)

    async def _result(self, request: ClientRequest) -> bytes:
        if request.session.id:
            if request.method == "ping":
                return b"{}"
            return await self._backend.answer(request)

        stateless.check_method(request.method)
        if request.method == stateless.SUBSCRIBE:
            with self._listening.open(request.session.principal, request.cancel):
                return await stateless.subscribe(request)
        if request.method == "server/discover":
            return stateless.describe(await self._backend.describe(request))
        return stateless.complete(request.method, await self._backend.answer(request))

    async def _listen(self, session: Session, headers: Mapping[str, str]) -> HttpResponse:
        """Open the session's own stream; an older one ends."""
        _, accepts_stream = _accepted(headers)
        if not accepts_stream:
            raise Refusal(
                HTTPStatus.NOT_ACCEPTABLE, RpcError(INVALID_REQUEST, f"accept {SSE_TYPE}")
            )

        if session.listener is not None:
            session.listener.close()
        session.listener = Outbox()
        stream = await _begin(self._notifications(session, session.listener))
        return HttpResponse(HTTPStatus.OK, [*_EVENT_HEADERS], stream)

    async def _notifications(self, session: Session, outbox: Outbox) -> AsyncGenerator[bytes]:
        """Yield the session's own stream. Its first chunk is empty, as ``_begin`` needs it."""

        def end() -> None:
            outbox.close()
            if session.listener is outbox:
                session.listener = None

        try:
            with self._listening.open(session.principal, end):
                yield b""
                yield b": open\n\n"
                while not outbox.is_closed or outbox:
                    if not await outbox.wait(_SILENT_SECONDS):
                        yield b": ping\n\n"
                    while outbox:
                        yield write_event(outbox.take())
        finally:
            end()


async def _begin(chunks: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    """Return a stream after its first chunk, which is empty.

    A generator that has not begun would not run its ``finally`` when it is closed.
    """
    await anext(chunks)
    return chunks


async def _events(request: ClientRequest, task: asyncio.Task[Answer]) -> AsyncGenerator[bytes]:
    """Yield what is sent before an answer, and the answer. The first chunk is empty."""
    try:
        yield b""
        while True:
            while request.outbox:
                yield write_event(request.outbox.take())
            if task.done():
                yield write_event(task.result().message)
                return

            if request.outbox.is_closed:
                await asyncio.wait([task])
            elif not await request.outbox.wait(_SILENT_SECONDS):
                yield b": ping\n\n"
    finally:
        _leave(request)


def _leave(request: ClientRequest) -> None:
    """Send a client that has left no more; in the stateless era, cancel its request."""
    request.outbox.close()
    if not request.session.id:
        request.cancel()


async def _once(chunk: bytes) -> AsyncIterator[bytes]:
    yield chunk


def _respond(status: int, body: bytes = b"", **headers: str) -> HttpResponse:
    fields = [("content-length", str(len(body))), *headers.items()]
    if body:
        fields.append(("content-type", JSON_TYPE))
    return HttpResponse(status, fields, _once(body))


def _fold(headers: list[tuple[str, str]]) -> dict[str, str]:
    """Return the headers by their names in lower case.

    A header that is there twice has both values, so that it fits nothing that is expected.
    """
    folded: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        folded[key] = f"{folded[key]}, {value}" if key in folded else value
    return folded


def _accepted(headers: Mapping[str, str]) -> tuple[bool, bool]:
    """Return (whether the client accepts JSON, whether it accepts a stream of events)."""
    entries = headers.get("accept", "*/*").split(",")
    types = {entry.partition(";")[0].strip().lower() for entry in entries}
    accepts_json = not types.isdisjoint({JSON_TYPE, "application/*", "*/*"})
    accepts_stream = not types.isdisjoint({SSE_TYPE, "text/*", "*/*"})
    return accepts_json, accepts_stream


def _read_body(headers: Mapping[str, str], body: bytes) -> RpcMessage:
    """Return the message of a POST. Raise ``Refusal``."""
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON_TYPE:
        raise Refusal(
            HTTPStatus.BAD_REQUEST, RpcError(INVALID_REQUEST, f"the content type is {JSON_TYPE}")
        )
    if body.lstrip()[:1] == b"[":
        raise Refusal(
            HTTPStatus.BAD_REQUEST, RpcError(INVALID_PARAMS, "a batch of messages is not supported")
        )

    try:
        (message,) = read_messages(body)
    except MessageError as error:
        code = INVALID_REQUEST if _is_json(body) else PARSE_ERROR
        raise Refusal(HTTPStatus.BAD_REQUEST, RpcError(code, str(error))) from None

    if not (message.is_request or message.is_notification or message.is_response):
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            RpcError(INVALID_REQUEST, "this is no request, notification or response"),
        )
    return message


def _is_json(body: bytes) -> bool:
    try:
        body.decode()
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
