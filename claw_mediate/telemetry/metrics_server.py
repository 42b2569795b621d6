"""The listener of ``/metrics``: nothing else, one answer a connection, and little for whoever means harm.

A head has a bound, a connection has seconds, there are few of them (the oldest goes for the newest), and what is counted is
put into words at most ten times a second. On an address that others than this machine reach, it asks for a bearer token:
runners reach the proxy, and what other agents do is not theirs to know.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import h11

from claw_contract.secret import Secret
from claw_mediate.settings import ListenAddress

MAX_CONNECTIONS = 16
MOST_HEAD = 8192
SECONDS = 10.0
_FRESH_SECONDS = 0.1
_PLAIN = "text/plain; charset=utf-8"

type Page = tuple[bytes, str]
type Write = Callable[[str], Awaitable[Page]]
"""The metrics in words, for an ``Accept``."""


def opened(listener: ListenAddress) -> socket.socket:
    """Raises ``ValueError`` with one line for an address that can't be listened on."""
    try:
        if not listener.host and socket.has_dualstack_ipv6():
            return socket.create_server(("", listener.port), family=socket.AF_INET6, dualstack_ipv6=True)
        family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
        return socket.create_server((listener.host, listener.port), family=family)
    except OSError as error:
        raise ValueError(f"cllama_metrics: can't listen on {listener.shown}: {error.strerror or error}") from error


class MetricsServer:
    """One listener, from when it is served until it is closed."""

    def __init__(self, listener: ListenAddress, token: Secret | None, write: Write) -> None:
        """Raises ``ValueError`` with one line."""
        self._socket = opened(listener)
        self._token = token
        self._write = write
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}
        self._pages: dict[bool, tuple[float, Page]] = {}
        self._writing = asyncio.Lock()

    async def serve(self) -> None:
        self._server = await asyncio.start_server(self._attend, sock=self._socket, limit=MOST_HEAD, start_serving=False)
        await self._server.start_serving()

    def close(self) -> None:
        """At once. The server first: it can't tell the event loop of a socket that is closed."""
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > MAX_CONNECTIONS:
            next(iter(self._open)).transport.abort()
        try:
            async with asyncio.timeout(SECONDS):
                writer.write(await self._answer(reader))
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, EOFError):
            pass  # it left, or was too slow
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        talk = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
        try:
            while not isinstance(event := talk.next_event(), h11.Request):
                if not (data := await reader.read(MOST_HEAD)):
                    raise EOFError
                talk.receive_data(data)
        except h11.RemoteProtocolError as error:
            return _said(talk, HTTPStatus(error.error_status_hint))
        headers = {name: value.decode("latin-1") for name, value in event.headers}
        if event.target.partition(b"?")[0] != b"/metrics":
            return _said(talk, HTTPStatus.NOT_FOUND)
        if event.method not in {b"GET", b"HEAD"}:
            return _said(talk, HTTPStatus.METHOD_NOT_ALLOWED, ("allow", "GET, HEAD"))
        if not self._admits(headers.get(b"authorization", "")):
            return _said(talk, HTTPStatus.UNAUTHORIZED, ("www-authenticate", "Bearer"))
        page = await self._page(headers.get(b"accept", ""))
        said = _response(talk, HTTPStatus.OK, page)
        return said.removesuffix(page[0]) if event.method == b"HEAD" else said

    def _admits(self, authorization: str) -> bool:
        if self._token is None:
            return True
        scheme, _, given = authorization.partition(" ")
        wanted = self._token.reveal().encode()
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), wanted)

    async def _page(self, accept: str) -> Page:
        kind = "openmetrics" in accept
        async with self._writing:
            written, page = self._pages.get(kind, (0.0, None))
            if page is None or time.monotonic() - written > _FRESH_SECONDS:
                page = await self._write(accept)
                self._pages[kind] = time.monotonic(), page
        return page


def _said(talk: h11.Connection, status: HTTPStatus, *headers: tuple[str, str]) -> bytes:
    return _response(talk, status, (f"{status.phrase}\n".encode(), _PLAIN), *headers)


def _response(talk: h11.Connection, status: HTTPStatus, page: Page, *headers: tuple[str, str]) -> bytes:
    """All bytes of it."""
    body, kind = page
    about = [("content-type", kind), ("content-length", str(len(body))), ("connection", "close"), *headers]
    head = talk.send(h11.Response(status_code=status, headers=about, reason=status.phrase.encode()))
    return (head or b"") + body
