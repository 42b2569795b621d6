"""An MCP server as an ASGI application: at its path, for bearer tokens, and ``/health``.

Rules. The caller is identified before the body is read, and a body that is too long is not read to
its end. A client that leaves ends what is done for it.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from http import HTTPStatus
from typing import Any, Final

from claw_contract.base import JsonObject
from claw_mcp.connections import ADMITTED
from claw_mcp.server import HttpRequest, HttpResponse, StreamableHttpServer

_BODY_SECONDS = 30.0
_SMALL_BODY = 1 << 16  # Bytes of a body that always has room
_MAX_HELD = 128 << 20  # Bytes of larger ones that are read or answered at once
_OWN_SHARE = 2  # A caller may have 1/2 of what the others leave
_PORT = re.compile(r":[0-9]{1,5}\Z")
_WEB_ORIGIN = re.compile(r"https?://(.*)", re.IGNORECASE)
_LOOPBACK: Final = {"localhost", "127.0.0.1", "[::1]"}
_LOOPBACK_PEERS: Final = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}

type Scope = dict[str, Any]
type Receive = Callable[[], Awaitable[dict[str, Any]]]
type Send = Callable[[dict[str, Any]], Awaitable[None]]


def is_allowed_host(host: str, allowed: Collection[str]) -> bool:
    """Return whether a ``Host`` header names one of ``allowed``, or loopback at any port.

    ``allowed`` are in lower case.
    """
    return host.lower() in allowed or _PORT.sub("", host.lower()) in _LOOPBACK


def is_allowed_origin(origin: str, allowed: Collection[str]) -> bool:
    """Return whether an ``Origin`` header names a page of an allowed host (``is_allowed_host``).

    An origin with an app's own scheme is not of the web, and is refused.
    """
    page = _WEB_ORIGIN.fullmatch(origin)
    return page is not None and is_allowed_host(page[1], allowed)


class McpApp:
    """The ASGI application."""

    def __init__(
        self,
        server: StreamableHttpServer,
        path: str,
        find_principal: Callable[[str], str | None],
        health: Callable[[], JsonObject],
    ) -> None:
        """Serve ``server`` at ``path``.

        ``find_principal`` returns who has an ``Authorization`` header, None if nobody; ``health``
        has the member ``ok``.
        """
        self.server = server
        self._path = path
        self._find_principal = find_principal
        self._health = health
        self._held: dict[str, int] = {}  # Bytes of bodies that are not small, by caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and stop when the client leaves."""
        if scope["type"] != "http":
            return

        if scope["path"] in {"/health", "/healthz"}:
            await self._send_health(scope, send)
            return

        headers = _read_headers(scope)
        names = {name for name, _ in headers}
        if {"content-length", "transfer-encoding"} <= names:
            # Another program before us may have read the other one (RFC 9112, 6.1).
            await _write(
                send,
                HTTPStatus.BAD_REQUEST,
                b'{"error":"the body has two lengths"}',
                [(b"connection", b"close")],
            )
            return

        if scope["path"] != self._path:
            await _write(send, HTTPStatus.NOT_FOUND, b'{"error":"not found"}')
            return

        principal = self._identify(headers)
        if principal is None:
            await _write(
                send,
                HTTPStatus.UNAUTHORIZED,
                b'{"error":"the bearer token is missing or wrong"}',
                [(b"www-authenticate", b"Bearer")],
            )
            return

        # From now on, the connection counts as one of this caller's. Until then it counted as one
        # without a token, of which fewer are allowed.
        admitted = scope.get("state", {}).get(ADMITTED)
        if admitted is not None:
            admitted(principal)

        refusal = self.server.refuse(headers)
        if refusal is not None:
            await _send(refusal, send)
            return

        body = await self._take(principal, receive, send)
        if body is None:
            return

        request = HttpRequest(scope["method"], scope["path"], headers, body)
        try:
            await self._exchange(request, principal, receive, send)
        finally:
            # ``_read`` counted the bytes of the body, and left it to us to discount them.
            self._hold(principal, -_held_bytes(body))

    def _identify(self, headers: Sequence[tuple[str, str]]) -> str | None:
        """Return the caller by its ``Authorization`` header; None if it is nobody."""
        credentials = [value for name, value in headers if name == "authorization"]
        if len(credentials) > 1:
            return None  # A program before us may have checked the other one
        return self._find_principal("".join(credentials))

    async def _send_health(self, scope: Scope, send: Send) -> None:
        """Answer ``/health``: on this machine with the state of each part, else only ``ok``."""
        health = self._health()
        peer = (scope.get("client") or ("",))[0]
        hosts = [value for name, value in _read_headers(scope) if name == "host"]
        is_here = peer in _LOOPBACK_PEERS and all(is_allowed_host(host, ()) for host in hosts)

        shown = health if is_here else {"ok": health["ok"]}
        status = HTTPStatus.OK if health["ok"] else HTTPStatus.SERVICE_UNAVAILABLE
        await _write(send, status, json.dumps(shown).encode())

    async def _take(self, principal: str, receive: Receive, send: Send) -> bytes | None:
        """Return the body; None if its sender has left, or was refused."""
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                return await self._read(principal, receive)
        except TimeoutError:
            await _write(
                send, HTTPStatus.REQUEST_TIMEOUT, b'{"error":"the body did not arrive in time"}'
            )
        except _FullError:
            await _write(
                send,
                HTTPStatus.SERVICE_UNAVAILABLE,
                b'{"error":"too many long requests at once"}',
                [(b"retry-after", b"1")],
            )
        return None

    async def _read(self, principal: str, receive: Receive) -> bytes | None:
        """Return the body, cut after the first byte too many; None if the client left.

        Its bytes are counted (``_hold``) until its request is answered. Raise ``_FullError``.
        """
        max_bytes = self.server.max_body
        body = bytearray()
        is_read = False
        try:
            while len(body) <= max_bytes:
                message = await receive()
                if message["type"] != "http.request":
                    return None

                before = _held_bytes(body)
                body += message.get("body", b"")[: max_bytes + 1 - len(body)]
                self._hold(principal, _held_bytes(body) - before)
                if _held_bytes(body) and not self._has_room(principal):
                    raise _FullError
                if not message.get("more_body"):
                    break
            is_read = True
            return bytes(body)
        finally:
            if not is_read:
                self._hold(principal, -_held_bytes(body))

    def _hold(self, principal: str, size: int) -> None:
        """Count bytes of a caller's bodies, or with a negative size discount them."""
        held = self._held.get(principal, 0) + size
        if held:
            self._held[principal] = held
        else:
            self._held.pop(principal, None)

    def _has_room(self, principal: str) -> bool:
        """Return whether a caller's bodies take at most half of what the others leave.

        So no caller can take everything: there is always as much left as it has.
        """
        own = self._held.get(principal, 0)
        others = sum(self._held.values()) - own
        return own * _OWN_SHARE <= _MAX_HELD - others

    async def _exchange(
        self, request: HttpRequest, principal: str, receive: Receive, send: Send
    ) -> None:
        """Answer a request, until it is answered or the client leaves."""
        answering = asyncio.create_task(self._answer(request, principal, send))
        leaving = asyncio.create_task(_wait_for_end(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.wait({answering, leaving})

        if not answering.cancelled():
            answering.result()

    async def _answer(self, request: HttpRequest, principal: str, send: Send) -> None:
        await _send(await self.server.handle(request, principal), send)


class _FullError(Exception):
    """There is no room for a long body."""


def _held_bytes(body: bytes | bytearray) -> int:
    return len(body) if len(body) > _SMALL_BODY else 0


def _read_headers(scope: Scope) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]


async def _wait_for_end(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(
    send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    length = str(len(body)).encode()
    fields = [(b"content-type", b"application/json"), (b"content-length", length), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def _send(response: HttpResponse, send: Send) -> None:
    headers = [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers
    ]
    async with contextlib.aclosing(response.chunks) as chunks:  # type: ignore[type-var]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
