"""HTTP server of ``/metrics`` and nothing else, one response a connection.

docs/decisions/0028 compares it with others.

A hostile client costs little: heads and connections are bounded (the newest connection replaces the
oldest), a connection has seconds, and metrics are generated at most ten times a second. On an
address that others can reach, clients need a bearer token: runners can reach the proxy, and must
not learn what other agents do.
"""

import asyncio
import errno
import hmac
import socket
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Literal

import h11

from claw_contract.secret import Secret
from claw_mediate.settings import ADDRESS_SECONDS, ListenAddress

MAX_CONNECTIONS = 16
_MAX_HEAD_BYTES = 8192
_CONNECTION_SECONDS = 10.0
_FRESH_SECONDS = 0.1  # A page is generated anew after this time
_PAUSE_SECONDS = 0.05  # Between two attempts to listen
_PLAIN = "text/plain; charset=utf-8"

type Page = tuple[bytes, str]  # Body and content type
type Sharing = Literal["none", "first", "others"]
"""The worker's part in an address that workers share; "none" if this is the whole proxy.

The first worker must find the address free.
"""
type Generate = Callable[[str], Awaitable[Page]]  # Returns the metrics for an ``Accept`` header


class MetricsServer:
    """One listener, which listens at once and responds after ``serve``."""

    def __init__(
        self,
        address: ListenAddress,
        token: Secret | None,
        generate: Generate,
        sharing: Sharing = "none",
    ) -> None:
        """Raise ``ValueError`` with one line for an unusable address."""
        if sharing == "first":
            _wait_until_free(address)
        self._socket = _listening_socket(address, is_shared=sharing != "none")
        self._token = token
        self._generate = generate
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.StreamWriter, None] = {}
        self._pages: dict[bool, tuple[float, Page]] = {}
        self._generating = asyncio.Lock()

    async def serve(self) -> None:
        self._server = await asyncio.start_server(
            self._handle_connection, sock=self._socket, limit=_MAX_HEAD_BYTES, start_serving=False
        )
        await self._server.start_serving()

    def stop_listening(self) -> None:
        """Let nobody connect any more."""
        # The server first: it needs the open socket to leave the loop.
        if self._server is not None:
            self._server.close()
        self._socket.close()

    def close(self) -> None:
        """Stop listening and end all connections, at once."""
        self.stop_listening()
        for writer in list(self._connections):
            writer.transport.abort()

    async def _handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._connections[writer] = None
        if len(self._connections) > MAX_CONNECTIONS:
            oldest = next(iter(self._connections))
            oldest.transport.abort()

        try:
            async with asyncio.timeout(_CONNECTION_SECONDS):
                writer.write(await self._respond(reader))
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, EOFError):
            pass  # the client has left, or is too slow
        finally:
            self._connections.pop(writer, None)
            writer.transport.abort()

    async def _respond(self, reader: asyncio.StreamReader) -> bytes:
        """Read a request's head and return the whole response.

        Raise ``EOFError`` if the client leaves.
        """
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        try:
            while not isinstance(request := http.next_event(), h11.Request):
                data = await reader.read(_MAX_HEAD_BYTES)
                if not data:
                    raise EOFError
                http.receive_data(data)
        except h11.RemoteProtocolError as error:
            return _response(http, HTTPStatus(error.error_status_hint))

        headers = {name: value.decode("latin-1") for name, value in request.headers}
        if request.target.partition(b"?")[0] != b"/metrics":
            return _response(http, HTTPStatus.NOT_FOUND)
        if request.method not in {b"GET", b"HEAD"}:
            return _response(http, HTTPStatus.METHOD_NOT_ALLOWED, None, ("allow", "GET, HEAD"))
        if not self._admits(headers.get(b"authorization", "")):
            return _response(http, HTTPStatus.UNAUTHORIZED, None, ("www-authenticate", "Bearer"))

        page = await self._page(headers.get(b"accept", ""))
        response = _response(http, HTTPStatus.OK, page)
        if request.method == b"HEAD":
            return response.removesuffix(page[0])
        return response

    def _admits(self, authorization: str) -> bool:
        if self._token is None:
            return True

        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return False
        expected = self._token.reveal().encode()
        return hmac.compare_digest(token.strip().encode("latin-1"), expected)

    async def _page(self, accept: str) -> Page:
        """Return the metrics, generated at most ``_FRESH_SECONDS`` ago."""
        is_openmetrics = "openmetrics" in accept
        async with self._generating:
            generated, page = self._pages.get(is_openmetrics, (0.0, None))
            if page is None or time.monotonic() - generated > _FRESH_SECONDS:
                page = await self._generate(accept)
                self._pages[is_openmetrics] = time.monotonic(), page
        return page


def _response(
    http: h11.Connection,
    status: HTTPStatus,
    page: Page | None = None,
    *extra_headers: tuple[str, str],
) -> bytes:
    """Return a whole response; without a page, its body is the status in words."""
    body, content_type = page or (f"{status.phrase}\n".encode(), _PLAIN)
    headers = [
        ("content-type", content_type),
        ("content-length", str(len(body))),
        ("connection", "close"),
        *extra_headers,
    ]
    head = http.send(
        h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
    )
    return (head or b"") + body


def _wait_until_free(address: ListenAddress) -> None:
    """Wait for an address that somebody listens on.

    Raise ``ValueError`` if it is still in use after ``ADDRESS_SECONDS``.
    """
    until = time.monotonic() + ADDRESS_SECONDS
    while True:
        try:
            _listening_socket(address).close()
        except ValueError as error:
            cause = error.__cause__
            is_taken = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
            if not is_taken or time.monotonic() >= until:
                raise
            time.sleep(_PAUSE_SECONDS)  # Nothing else runs in this process yet
        else:
            return


def _listening_socket(address: ListenAddress, *, is_shared: bool = False) -> socket.socket:
    """Return a socket that listens. Raise ``ValueError`` with one line."""
    is_dual = not address.host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual or ":" in address.host else socket.AF_INET
    try:
        return socket.create_server(
            (address.host, address.port),
            family=family,
            dualstack_ipv6=is_dual,
            reuse_port=is_shared,
        )
    except OSError as error:
        raise ValueError(
            f"cllama_metrics: can't listen on {address.shown}: {error.strerror or error}"
        ) from error
