"""The channel to an MCP server at a URL.

Rules. Each message is one POST, and none is made twice. Redirects are not followed: they would take
the credential elsewhere. Requests may run at once; each reads its own response. A server is told
when nobody waits for its answer any more.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx2
import msgspec

from claw_contract.secret import Secret
from claw_contract.sse import EventTooLongError, SseReader
from claw_mcp import protocol
from claw_mcp.channels import MAX_BYTES, Channel, DiscoveryError, Quotation
from claw_mcp.client_protocol import (
    AskServer,
    NotifyServer,
    ServerAnswer,
    write_cancelled,
)
from claw_mcp.protocol import MessageError, RpcError, RpcMessage

_END_SECONDS = 1.0  # For the request that ends a session
_NOTE_SECONDS = 5.0  # For a message that nobody waits for
_MAX_NOTES = 8  # Messages under way that nobody waits for; further ones are not sent
_REFUSED_CREDENTIAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_NO_ENDPOINT = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
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


class StatusError(DiscoveryError):
    """An HTTP status that refuses a message, without a JSON-RPC error."""


class HttpChannel(Channel):
    """Requests to one URL, in one session.

    ``is_lost``: the server may not know the session any more.
    """

    def __init__(
        self,
        server: HttpServer,
        client: httpx2.AsyncClient,
        quotation: Quotation,
        notice: Callable[[RpcMessage], None] = lambda _: None,
    ) -> None:
        """Send by ``client``; ``notice`` takes the notifications of the server."""
        super().__init__(quotation)
        self.is_lost = False
        self._server = server
        self._client = client
        self._notice = notice
        self._requests = 0
        self._notes: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @classmethod
    @asynccontextmanager
    async def open(cls, server: HttpServer, quotation: Quotation) -> AsyncIterator[Channel]:
        """Yield a channel with connections of its own."""
        async with httpx2.AsyncClient(follow_redirects=False, timeout=None) as client:
            channel = cls(server, client, quotation)
            try:
                yield channel
            finally:
                await channel.close()

    async def request(
        self, method: str, params: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> bytes:
        answer = await self._ask(method, params, headers or {})
        return answer.result

    async def exchange(self, message: AskServer | NotifyServer) -> ServerAnswer:
        if isinstance(message, AskServer):
            return await self._ask(message.method, message.params, {})
        return await super().exchange(message)

    async def notify(self, method: str) -> None:
        async with self._post(protocol.write_notification(method)) as response:
            await self._check_status(response)

    async def listen(self) -> bool:
        """Take what the server says unasked, until it ends that stream.

        Return False if it has none (handshake era only).
        """
        async with self._send_http("GET", None, {"accept": protocol.SSE_TYPE}) as response:
            if response.status_code == HTTPStatus.NOT_FOUND:
                await self._check_status(response)
            is_stream = _media_type(response) == protocol.SSE_TYPE
            if response.status_code != HTTPStatus.OK or not is_stream:
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
                if self.protocol.session_id is not None and not self.is_lost:
                    await self._client.delete(self._server.url, headers=self._headers())

        for note in self._notes:
            note.cancel()
        if self._notes:
            await asyncio.wait(self._notes)

    async def _ask(
        self, method: str, params: Mapping[str, Any], headers: Mapping[str, str]
    ) -> ServerAnswer:
        """Send a request and return its answer. Raise ``RpcError`` and ``DiscoveryError``.

        ``headers`` are sent besides those of the session. If cancelled, tell the server.
        """
        self._requests += 1
        request_id = b"%d" % self._requests
        body = protocol.write_request(request_id, method, msgspec.json.encode(params))
        try:
            all_headers = {**self._request_headers(method, params), **headers}
            async with self._post(body, all_headers) as response:
                await self._check_status(response)
                async for message in self._messages(response):
                    if message.answers(request_id):
                        return _read_answer(message, response)
                    self._hear(message)
        except asyncio.CancelledError:
            # MCP forbids to cancel ``initialize``; in the stateless era, the end of the connection
            # cancels.
            if not self.protocol.is_stateless and method != "initialize":
                self._send_later(write_cancelled(request_id))
            raise

        raise DiscoveryError(
            f"{self._server.shown} did not answer '{method}', and ended its response"
        )

    def _send_later(self, message: bytes) -> None:
        """Send a message that nobody waits for.

        Drop it if too many are on the way, or if the session has ended.
        """
        if len(self._notes) >= _MAX_NOTES or self._is_closed:
            return
        note = asyncio.create_task(self._send_note(message))
        self._notes.add(note)
        note.add_done_callback(self._notes.discard)

    async def _send_note(self, message: bytes) -> None:
        """Send a message and ignore its failure: the next call shows if the session is lost."""
        with suppress(DiscoveryError, TimeoutError):
            async with asyncio.timeout(_NOTE_SECONDS), self._post(message):
                pass

    def _hear(self, message: RpcMessage) -> None:
        """Hand a notification on, and answer a request."""
        if message.is_notification:
            self._notice(message)
        elif message.is_request:
            answer = self.protocol.answer(message)
            if answer is not None:
                self._send_later(answer)

    @asynccontextmanager
    async def _post(
        self, body: bytes, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[httpx2.Response]:
        more = {"accept": protocol.ACCEPT, "content-type": protocol.JSON_TYPE, **(headers or {})}
        async with self._send_http("POST", body, more) as response:
            yield response

    @asynccontextmanager
    async def _send_http(
        self, verb: str, body: bytes | None, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx2.Response]:
        """Send one HTTP request and yield its response, whose body is not read yet.

        Raise ``NotSentError`` if nothing was sent, and ``DiscoveryError`` for a connection that
        breaks, also while the body is read.
        """
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
            raise DiscoveryError(f"the connection to {self._server.shown} broke: {why}") from None

    def _unreachable(self, error: Exception) -> NotSentError:
        why = f"{self._server.shown} can't be reached, {self.quotation.text(str(error))}"
        return NotSentError(f"{why}: {self._server.remedies.unreachable}")

    def _request_headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers that repeat a request's method and the name of its tool or resource.

        They are of the stateless era; in the other one there are none.
        """
        name = params.get(protocol.NAMED_METHODS.get(method, ""))
        return dict(self.protocol.headers(method, name if isinstance(name, str) else ""))

    def _headers(self) -> dict[str, str]:
        """Return the credential and the headers of the session."""
        headers = {name: secret.reveal() for name, secret in self._server.headers}
        headers["accept-encoding"] = "identity"
        headers.update(self.protocol.headers())
        return headers

    async def _check_status(self, response: httpx2.Response) -> None:
        """Pass a response that is no refusal. Raise ``RpcError`` and ``DiscoveryError``."""
        if response.is_success:
            return

        status = response.status_code
        shown = self._server.shown
        if status in _REFUSED_CREDENTIAL:
            words = self._quote(await self._body(response))
            remedy = self._server.remedies.credential
            raise StatusError(
                f"{shown} refuses the credential with status {status}{words}: {remedy}"
            )
        if status < HTTPStatus.BAD_REQUEST:
            place = self.quotation.text(response.headers.get("location", ""))
            raise StatusError(
                f"{shown} redirects to {place}, which is not followed: name the final address"
            )
        if self.protocol.is_unknown(status):
            self.is_lost = True
            raise SessionLostError(f"{shown} does not know the session any more")

        body = await self._body(response)
        error = _find_error(body, status)
        has_session = self.protocol.version != ""  # The handshake is over
        if has_session and self.protocol.is_doubtful(status, error):
            self.is_lost = True
        if error is not None:
            raise error

        remedy = ""
        if status in _NO_ENDPOINT:
            path = self._server.remedies.path
            remedy = f": no MCP server listens at this path: {path}"
        raise StatusError(f"{shown} answered with status {status}{self._quote(body)}{remedy}")

    def _quote(self, body: bytes) -> str:
        """Return a refusal's text for the end of a message: in parentheses, redacted and cut.

        Return "" if there is none.
        """
        text = body.decode(errors="replace").strip()
        return f" ({self.quotation.text(text)})" if text else ""

    async def _messages(self, response: httpx2.Response) -> AsyncIterator[RpcMessage]:
        """Yield the messages of a body: JSON, or a stream of events."""
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
            raise DiscoveryError(f"{self._server.shown} answered with {what}: it is no MCP server")

    def _read(self, data: bytes) -> Iterator[RpcMessage]:
        try:
            yield from protocol.read_answers(data)
        except MessageError as error:
            start = self.quotation.text(data.decode(errors="replace"))
            raise DiscoveryError(f"{self._server.shown} answered with {start}: {error}") from None

    async def _events(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """Yield the data of each event that has any."""
        reader = SseReader(MAX_BYTES)
        try:
            async for chunk in self._chunks(response):
                for event in reader.feed(chunk):
                    if event.data:
                        yield event.data
        except EventTooLongError:
            raise DiscoveryError(
                f"{self._server.shown} sent an event of more than {MAX_BYTES} bytes"
            ) from None

    async def _body(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in self._chunks(response):
            body += chunk
            if len(body) > MAX_BYTES:
                raise DiscoveryError(
                    f"{self._server.shown} answered with more than {MAX_BYTES} bytes"
                )
        return bytes(body)

    async def _chunks(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        coding = response.headers.get("content-encoding", "identity")
        if coding != "identity":
            shown = self.quotation.text(coding)
            raise DiscoveryError(f"{self._server.shown} answered in the coding {shown}, unasked")

        async for chunk in response.aiter_raw():
            yield chunk


def _find_error(body: bytes, status: int) -> RpcError | None:
    """Return the error of a refusal; its response may lack the request's id."""
    try:
        messages = protocol.read_messages(body)
    except MessageError:
        return None

    for message in messages:
        error = message.rpc_error(status)
        if error is not None:
            return error
    return None


def _read_answer(message: RpcMessage, response: httpx2.Response) -> ServerAnswer:
    """Return the answer in a response. Raise its ``RpcError``."""
    error = message.rpc_error(response.status_code)
    if error is not None:
        raise error
    session_id = response.headers.get(protocol.SESSION_ID, None)
    return ServerAnswer(bytes(message.result), session_id)


def _media_type(response: httpx2.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
