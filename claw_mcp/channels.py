"""Channels to one MCP server, for a client that asks one question after the other: a child's lines, or requests to a URL.

Rules. A child and all its descendants are ended in every way out. What a server sends is bounded, and what is quoted of it is
redacted before it is cut. No capability is declared: of its requests a ping is answered, there are no roots, and all others are
refused.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from claw_contract.base import JsonObject
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mcp import protocol
from claw_mcp.protocol import Message, MessageError, RpcError
from claw_mcp.reaper import CANNOT_START
from claw_mcp.sse import EventTooLongError, SseReader
from claw_mcp.stdio_child import StdioChild

MAX_BYTES = 8 * 1024 * 1024  # Of one message
_MAX_LINES = 10  # Of a child's standard error: the last ones
_MAX_QUOTE = 200
_NEVER = 1e9  # Seconds: all questions together have a time
_CANNOT_START = " can't be started: "  # In the reaper's words
_END_SECONDS = 1.0  # For the end of a session at a URL
_OK, _MULTIPLE_CHOICES, _BAD_REQUEST = 200, 300, 400
_REFUSED_CREDENTIAL = (401, 403)
_NO_ENDPOINT = (404, 405)


@dataclass(frozen=True)
class StdioServer:
    """A command that speaks MCP on standard input and output. ``name`` is its program as the pod file has it."""

    name: str
    command: tuple[str, ...] = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    directory: Path = Path()


@dataclass(frozen=True)
class HttpServer:
    """A server at a URL. ``shown`` is the URL for messages, ``headers`` are its credential."""

    shown: str
    url: str = field(repr=False)
    headers: tuple[tuple[str, Secret], ...] = ()


class DiscoveryError(Exception):
    """One sentence with the remedy. ``output`` are the last lines that a child wrote to standard error."""

    def __init__(self, message: str, output: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.output = output


@dataclass(frozen=True)
class Quotation:
    """Redacted, short quotations of what a server says."""

    redactor: Redactor

    def text(self, text: str) -> str:
        clear = " ".join(self.redactor.text(text).split())
        return f"'{clear[:_MAX_QUOTE]}…'" if len(clear) > _MAX_QUOTE else f"'{clear}'"

    def lines(self, lines: Iterable[bytes]) -> tuple[str, ...]:
        return tuple(self.redactor.data(line).decode(errors="replace")[:_MAX_QUOTE] for line in lines)


class Channel(ABC):
    """A way to one server. ``version`` and ``is_stateless`` are set when they are known."""

    def __init__(self, quotation: Quotation) -> None:
        self.quotation = quotation
        self.version = ""
        self.is_stateless = False
        self.skipped_lines = 0

    @abstractmethod
    async def request(self, method: str, params: JsonObject) -> bytes:
        """Return the result of a request, as JSON. Raise ``RpcError`` for an error response."""

    @abstractmethod
    async def notify(self, method: str) -> None:
        """Send a notification."""

    async def failure(self, message: str) -> DiscoveryError:
        return DiscoveryError(message)


class StdioChannel(Channel):
    """A child of ours, and what it writes unasked."""

    def __init__(self, name: str, quotation: Quotation) -> None:
        super().__init__(quotation)
        self.child: StdioChild
        self._name = name
        self._problem = ""  # With the first line on standard output that was skipped
        self._is_readable = True
        self._last_lines: deque[bytes] = deque(maxlen=_MAX_LINES)

    @classmethod
    @asynccontextmanager
    async def open(cls, server: StdioServer, quotation: Quotation) -> AsyncIterator[Channel]:
        channel = cls(server.name, quotation)
        try:
            channel.child = await StdioChild.start(server.command, server.environ, channel, server.directory)
        except (OSError, ValueError) as error:
            raise channel.start_failure((isinstance(error, OSError) and error.strerror) or "it is no command") from None
        try:
            yield channel
        finally:
            await channel.child.stop()

    def notice(self, message: Message) -> None:
        """Pass over what nobody asked for."""

    def log_line(self, line: bytes) -> None:
        if line.strip():
            self._last_lines.append(line)

    def bad_output(self, problem: str, line: bytes) -> None:
        self.skipped_lines += 1
        self._is_readable = self._is_readable and line != b""
        if not self._problem:
            quotation = f": {self.quotation.text(line.decode(errors='replace'))}" if line else ""
            self._problem = f"{problem}{quotation}"

    async def request(self, method: str, params: JsonObject) -> bytes:
        try:
            return await self.child.call(method, params, _NEVER)
        except RpcError:
            if self.child.ended.done():
                raise await self._end() from None
            raise

    async def notify(self, method: str) -> None:
        self.child.notify(method)

    async def _end(self) -> DiscoveryError:
        code = await self.child.stop()
        _, mark, why = (
            self._last_lines[-1].decode(errors="replace").rpartition(_CANNOT_START) if self._last_lines else ("",) * 3
        )
        if code == CANNOT_START and mark:
            return self.start_failure(why)
        if not self._is_readable:
            return await self.failure("its answer can't be read")
        return await self.failure(f"it ended with exit code {code} before it had answered: run it by itself to see why")

    def start_failure(self, why: str) -> DiscoveryError:
        remedy = "install it, or correct 'mcp-stdio' in the pod file"
        return DiscoveryError(f"the command '{self._name}'{_CANNOT_START}{why}; {remedy}")

    async def failure(self, message: str) -> DiscoveryError:
        await self.child.stop()  # so that its last words are here
        skipped = f"; what it wrote to standard output was skipped: {self._problem}" if self._problem else ""
        return DiscoveryError(message + skipped, self.quotation.lines(self._last_lines))


class HttpChannel(Channel):
    """Requests to one URL. Redirects are not followed: they would take the credential elsewhere."""

    def __init__(self, server: HttpServer, client: httpx2.AsyncClient, quotation: Quotation) -> None:
        super().__init__(quotation)
        self._server, self._client = server, client
        self._session = ""
        self._requests = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, server: HttpServer, quotation: Quotation) -> AsyncIterator[Channel]:
        async with httpx2.AsyncClient(follow_redirects=False, timeout=None) as client:
            channel = cls(server, client, quotation)
            try:
                yield channel
            finally:
                await channel._close()

    async def request(self, method: str, params: JsonObject) -> bytes:
        self._requests += 1
        request_id = b"%d" % self._requests
        async with self._post(protocol.write_request(request_id, method, json.dumps(params).encode()), method) as response:
            await self._check_status(response)
            if method == "initialize":
                self._take_session(response)
            async for message in self._messages(response):
                if message.answers(request_id):
                    return _result(message)
                await self._answer(message)
        raise await self.failure(f"{self._server.shown} did not answer '{method}', and ended its response")

    async def notify(self, method: str) -> None:
        await self._send(protocol.write_notification(method))

    async def _send(self, message: bytes) -> None:
        with suppress(RpcError):  # what it means shows in the next answer
            async with self._post(message) as response:
                await self._check_status(response)

    async def _answer(self, message: Message) -> None:
        """Answer a request of the server: a ping, the roots, which are none, and no other."""
        if message.is_request:
            error = RpcError(protocol.METHOD_NOT_FOUND, "this client has no such capability")
            result = {"ping": b"{}", "roots/list": b'{"roots":[]}'}.get(message.method or "")
            sent = protocol.write_error(message.id, error) if result is None else protocol.write_result(message.id, result)
            await self._send(sent)

    @asynccontextmanager
    async def _post(self, body: bytes, method: str = "") -> AsyncIterator[httpx2.Response]:
        headers = {"accept": protocol.ACCEPT, "content-type": protocol.JSON_TYPE, **self._headers()}
        if self.is_stateless:
            headers[protocol.METHOD] = method
        try:
            async with self._client.stream("POST", self._server.url, content=body, headers=headers) as response:
                yield response
        except httpx2.ConnectError as error:
            why = f"{self._server.shown} can't be reached, {self.quotation.text(str(error))}"
            remedy = "start the service, or say where it is reached from here: --url http://HOST:PORT/mcp"
            raise await self.failure(f"{why}: {remedy}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = self.quotation.text(str(error) or type(error).__name__)
            raise await self.failure(f"the connection to {self._server.shown} broke: {why}") from None

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
            remedy = "give the service 'x-claw.auth', and set its variable"
            raise await self.failure(f"{shown} refuses the credential with status {status}: {remedy}")
        if status < _BAD_REQUEST:
            place = self.quotation.text(response.headers.get("location", ""))
            raise await self.failure(f"{shown} redirects to {place}, which is not followed: name the final address")
        with suppress(MessageError):
            for message in protocol.read_messages(await self._body(response)):
                if (error := message.rpc_error()) is not None:
                    raise error
        remedy = "no MCP server listens at this path: correct 'x-claw.mcp.path', or --url" if status in _NO_ENDPOINT else ""
        raise await self.failure(f"{shown} answered with status {status}{f': {remedy}' if remedy else ''}")

    async def _messages(self, response: httpx2.Response) -> AsyncIterator[Message]:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == protocol.SSE_TYPE:
            async for data in self._events(response):
                for message in self._read(data):
                    yield message
        elif kind == protocol.JSON_TYPE:
            for message in self._read(await self._body(response)):
                yield message
        else:
            what = f"content of type {self.quotation.text(kind)}" if kind else "no content"
            raise await self.failure(f"{self._server.shown} answered with {what}: it is no MCP server")

    def _read(self, data: bytes) -> Iterator[Message]:
        try:
            yield from protocol.read_messages(data)
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
            raise await self.failure(f"{self._server.shown} sent an event of more than {MAX_BYTES} bytes") from None

    async def _body(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in self._chunks(response):
            body += chunk
            if len(body) > MAX_BYTES:
                raise await self.failure(f"{self._server.shown} answered with more than {MAX_BYTES} bytes")
        return bytes(body)

    async def _chunks(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        coding = response.headers.get("content-encoding", "identity")
        if coding != "identity":
            raise await self.failure(f"{self._server.shown} answered in the coding {self.quotation.text(coding)}, unasked")
        async for chunk in response.aiter_raw():
            yield chunk

    async def _close(self) -> None:
        if not self._session:
            return
        with suppress(httpx2.HTTPError, TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self._client.delete(self._server.url, headers=self._headers())


def _result(message: Message) -> bytes:
    if (error := message.rpc_error()) is not None:
        raise error
    return bytes(message.result)
