"""The channel to an MCP server at a URL.

Rules. Each message is one POST, and none is made twice. Redirects are not followed: they would take
the credential elsewhere. Requests may run at once; each reads its own response. A server is told
when nobody waits for its answer any more.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
import msgspec

from claw_contract.secret import Secret
from claw_contract.sse import EventTooLongError, SseReader
from claw_mcp import protocol
from claw_mcp.channels import MAX_BYTES, Channel, DiscoveryError, Quotation
from claw_mcp.protocol import Message, MessageError, RpcError

_END_SECONDS = 1.0  # For the end of a session
_NOTE_SECONDS = 5.0  # For a message that nobody waits for
_MAX_NOTES = 8  # Such messages on the way at once; further ones are not sent
_OK, _MULTIPLE_CHOICES, _BAD_REQUEST, _NOT_FOUND = 200, 300, 400, 404
_REFUSED_CREDENTIAL = (401, 403)
_NO_ENDPOINT = (404, 405)
_UNKNOWN_SESSION = (protocol.INVALID_REQUEST, protocol.SERVER_ERROR)
"""Codes by which some servers refuse a session that they do not know, with status 400."""
_NEVER_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
)


@dataclass(frozen=True)
class Remedies:
    """The remedies at the ends of messages; by default in the words of ``claw discover``."""

    unreachable: str = (
        "start the service, or say where it is reached from here: --url http://HOST:PORT/mcp"
    )
    credential: str = "give the service 'x-claw.auth', and set its variable"
    path: str = "correct 'x-claw.mcp.path', or --url"


@dataclass(frozen=True)
class HttpServer:
    """A server at a URL. ``shown`` is the URL for messages, ``headers`` are its credential."""

    shown: str
    url: str = field(repr=False)
    headers: tuple[tuple[str, Secret], ...] = ()
    remedies: Remedies = Remedies()


class NotSentError(DiscoveryError):
    """A message that did not leave: the server can't be reached."""


class SessionLostError(DiscoveryError):
    """A message of a session that the server does not know: it did not process it."""


class HttpChannel(Channel):
    """Requests to one URL, in one session.

    ``is_lost``: the server may not know the session any more.
    """

    def __init__(
        self,
        server: HttpServer,
        client: httpx2.AsyncClient,
        quotation: Quotation,
        notice: Callable[[Message], None] = lambda _: None,
    ) -> None:
        """Send by ``client``; ``notice`` takes the notifications of the server."""
        super().__init__(quotation)
        self._server, self._client, self._notice = server, client, notice
        self._session = ""
        self._requests = 0
        self._notes: set[asyncio.Task[None]] = set()
        self.is_lost = False
        self._is_closed = False

    @classmethod
    @asynccontextmanager
    async def open(cls, server: HttpServer, quotation: Quotation) -> AsyncIterator[Channel]:
        async with httpx2.AsyncClient(follow_redirects=False, timeout=None) as client:
            channel = cls(server, client, quotation)
            try:
                yield channel
            finally:
                await channel.close()

    async def request(
        self, method: str, params: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> bytes:
        self._requests += 1
        request_id = b"%d" % self._requests
        body = protocol.write_request(request_id, method, msgspec.json.encode(params))
        try:
            async with self._post(
                body, {**self._era_headers(method, params), **(headers or {})}
            ) as response:
                await self._check_status(response)
                if method == "initialize":
                    self._take_session(response)
                async for message in self._messages(response):
                    if message.answers(request_id):
                        return _result(message)
                    self._hear(message)
        except asyncio.CancelledError:
            if (
                not self.is_stateless and method != "initialize"
            ):  # else the end of the connection says it
                cancelled = (
                    b'{"requestId":%b,"reason":"nobody waits for the answer any longer"}'
                    % request_id
                )
                self._send_later(protocol.write_notification("notifications/cancelled", cancelled))
            raise
        raise await self.failure(
            f"{self._server.shown} did not answer '{method}', and ended its response"
        )

    async def notify(self, method: str) -> None:
        await self._send(protocol.write_notification(method))

    async def listen(self) -> bool:
        """Take what the server says unasked, until it ends that stream.

        Return False if it has none (handshake era only).
        """
        async with self._exchange("GET", None, {"accept": protocol.SSE_TYPE}) as response:
            if response.status_code == _NOT_FOUND:
                await self._check_status(response)
            if response.status_code != _OK or _media_type(response) != protocol.SSE_TYPE:
                return False
            async for message in self._messages(response):
                self._hear(message)
        return True

    async def close(self) -> None:
        """End the session, after the messages that are on the way."""
        self._is_closed = True
        with suppress(httpx2.HTTPError, TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                if self._notes:
                    await asyncio.wait(self._notes)
                if self._session and not self.is_lost:
                    await self._client.delete(self._server.url, headers=self._headers())
        for note in self._notes:
            note.cancel()
        if self._notes:
            await asyncio.wait(self._notes)

    async def _send(self, message: bytes) -> None:
        with suppress(RpcError):  # what it means shows in the next answer
            async with self._post(message) as response:
                await self._check_status(response)

    def _send_later(self, message: bytes) -> None:
        """Send a message that nobody waits for, unless too many are on the way, or
        the session has ended.
        """
        if len(self._notes) < _MAX_NOTES and not self._is_closed:
            note = asyncio.create_task(self._send_note(message))
            self._notes.add(note)
            note.add_done_callback(self._notes.discard)

    async def _send_note(self, message: bytes) -> None:
        with suppress(DiscoveryError, TimeoutError):
            async with asyncio.timeout(_NOTE_SECONDS):
                await self._send(message)

    def _hear(self, message: Message) -> None:
        """Hand a notification on.

        Answer a request: a ping, the roots, which are none, and no other.
        """
        if message.is_notification:
            self._notice(message)
        elif message.is_request:
            error = RpcError(protocol.METHOD_NOT_FOUND, "this client has no such capability")
            result = {"ping": b"{}", "roots/list": b'{"roots":[]}'}.get(message.method or "")
            answer = (
                protocol.write_error(message.id, error)
                if result is None
                else protocol.write_result(message.id, result)
            )
            self._send_later(answer)

    @asynccontextmanager
    async def _post(
        self, body: bytes, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[httpx2.Response]:
        more = {"accept": protocol.ACCEPT, "content-type": protocol.JSON_TYPE, **(headers or {})}
        async with self._exchange("POST", body, more) as response:
            yield response

    @asynccontextmanager
    async def _exchange(
        self, verb: str, body: bytes | None, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx2.Response]:
        try:
            request = self._client.build_request(
                verb, self._server.url, content=body, headers={**headers, **self._headers()}
            )
        except (httpx2.InvalidURL, UnicodeError) as error:
            raise self._unreachable(error) from None
        try:
            response = await self._client.send(request, stream=True)
            try:
                yield response
            finally:
                await response.aclose()
        except _NEVER_SENT as error:
            raise self._unreachable(error) from None
        except httpx2.HTTPError as error:
            why = self.quotation.text(str(error) or type(error).__name__)
            raise await self.failure(
                f"the connection to {self._server.shown} broke: {why}"
            ) from None

    def _unreachable(self, error: Exception) -> NotSentError:
        why = f"{self._server.shown} can't be reached, {self.quotation.text(str(error))}"
        return NotSentError(f"{why}: {self._server.remedies.unreachable}")

    def _era_headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers that repeat a request's method, and the name of what
        it is for, in the stateless era.
        """
        if not self.is_stateless:
            return {}
        name = params.get(protocol.NAMED_METHODS.get(method, ""))
        named = {protocol.NAME: protocol.write_header_value(name)} if isinstance(name, str) else {}
        return {protocol.METHOD: method, **named}

    def _headers(self) -> dict[str, str]:
        headers = {name: secret.reveal() for name, secret in self._server.headers}
        headers |= {"accept-encoding": "identity"}
        if self._session:
            headers[protocol.SESSION_ID] = self._session
        if self.version:
            headers[protocol.PROTOCOL_VERSION] = self.version
        return headers

    def _take_session(self, response: httpx2.Response) -> None:
        session = response.headers.get(protocol.SESSION_ID, "")
        self._session = session if protocol.is_session_id(session) else ""

    async def _check_status(self, response: httpx2.Response) -> None:
        status, shown = response.status_code, self._server.shown
        if _OK <= status < _MULTIPLE_CHOICES:
            return
        if status in _REFUSED_CREDENTIAL:
            remedy = self._server.remedies.credential
            said = self._quote(await self._body(response))
            raise await self.failure(
                f"{shown} refuses the credential with status {status}{said}: {remedy}"
            )
        if status < _BAD_REQUEST:
            place = self.quotation.text(response.headers.get("location", ""))
            raise await self.failure(
                f"{shown} redirects to {place}, which is not followed: name the final address"
            )
        if status == _NOT_FOUND and self._session:
            self.is_lost = True
            raise SessionLostError(f"{shown} does not know the session any more")
        body = await self._body(response)
        error = _find_error(body)
        self.is_lost = self.is_lost or self._is_unknown(status, error)
        if error is not None:
            raise error
        remedy = (
            f": no MCP server listens at this path: {self._server.remedies.path}"
            if status in _NO_ENDPOINT
            else ""
        )
        raise await self.failure(
            f"{shown} answered with status {status}{self._quote(body)}{remedy}"
        )

    def _quote(self, body: bytes) -> str:
        """Return what a server says of its refusal, redacted and cut, to stand
        behind the status; "" if it says nothing.
        """
        text = body.decode(errors="replace").strip()
        return f" ({self.quotation.text(text)})" if text else ""

    def _is_unknown(self, status: int, error: RpcError | None) -> bool:
        """Return whether a refusal may mean that the server does not know the
        session, or this era, any more.
        """
        if error is not None and error.code == protocol.UNSUPPORTED_VERSION:
            return True
        return (
            bool(self._session)
            and status == _BAD_REQUEST
            and (error is None or error.code in _UNKNOWN_SESSION)
        )

    async def _messages(self, response: httpx2.Response) -> AsyncIterator[Message]:
        kind = _media_type(response)
        if kind == protocol.SSE_TYPE:
            async for data in self._events(response):
                for message in self._read(data):
                    yield message
        elif kind == protocol.JSON_TYPE:
            for message in self._read(await self._body(response)):
                yield message
        else:
            what = f"content of type {self.quotation.text(kind)}" if kind else "no content"
            raise await self.failure(
                f"{self._server.shown} answered with {what}: it is no MCP server"
            )

    def _read(self, data: bytes) -> Iterator[Message]:
        try:
            yield from protocol.read_answers(data)
        except MessageError as error:
            start = self.quotation.text(data.decode(errors="replace"))
            raise DiscoveryError(f"{self._server.shown} answered with {start}: {error}") from None

    async def _events(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        reader = SseReader(MAX_BYTES)
        try:
            async for chunk in self._chunks(response):
                for event in reader.feed(chunk):
                    if event.data:
                        yield event.data
        except EventTooLongError:
            raise await self.failure(
                f"{self._server.shown} sent an event of more than {MAX_BYTES} bytes"
            ) from None

    async def _body(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in self._chunks(response):
            body += chunk
            if len(body) > MAX_BYTES:
                raise await self.failure(
                    f"{self._server.shown} answered with more than {MAX_BYTES} bytes"
                )
        return bytes(body)

    async def _chunks(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        coding = response.headers.get("content-encoding", "identity")
        if coding != "identity":
            raise await self.failure(
                f"{self._server.shown} answered in the coding "
                f"{self.quotation.text(coding)}, unasked"
            )
        async for chunk in response.aiter_raw():
            yield chunk


def _find_error(body: bytes) -> RpcError | None:
    with suppress(MessageError):
        return next(
            filter(None, (message.rpc_error() for message in protocol.read_messages(body))), None
        )
    return None


def _result(message: Message) -> bytes:
    if (error := message.rpc_error()) is not None:
        raise error
    return bytes(message.result)


def _media_type(response: httpx2.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
