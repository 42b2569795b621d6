"""An MCP server as an ASGI application: at its path, behind bearer tokens, with ``/health`` beside it.

Rules. Who calls is decided before the body is read, and a body that is too long is not read to its end. A client that leaves
ends what is done for it.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from claw_contract.base import JsonObject
from claw_mcp.connections import ADMITTED
from claw_mcp.server import HttpRequest, HttpResponse, StreamableHttpServer

_BODY_SECONDS = 30.0
_SMALL_BODY = 1 << 16  # Bytes of a body that always has room
_MAX_HELD = 128 << 20  # Bytes of larger ones that are read or answered at once
_PORT = re.compile(r":[0-9]{1,5}\Z")
_LOOPBACK: Final = {"localhost", "127.0.0.1", "[::1]"}

type Scope = dict[str, Any]
type Receive = Callable[[], Awaitable[dict[str, Any]]]
type Send = Callable[[dict[str, Any]], Awaitable[None]]


def is_allowed_host(host: str, allowed: Collection[str]) -> bool:
    """Return whether a ``Host`` header names one of ``allowed``, which are in lower case, or loopback at any port."""
    return host.lower() in allowed or _PORT.sub("", host.lower()) in _LOOPBACK


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

        ``find_principal`` returns who has an ``Authorization`` header, None if nobody; ``health`` has the member ``ok``.
        """
        self.server, self._path, self._find_principal, self._health = server, path, find_principal, health
        self._held = 0  # Bytes of bodies that are not small

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and stop when the client leaves."""
        if scope["type"] != "http":
            return
        if scope["path"] in {"/health", "/healthz"}:
            health = self._health()
            await _write(send, 200 if health["ok"] else 503, json.dumps(health).encode())
            return

        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        names = {name for name, _ in headers}
        if {"content-length", "transfer-encoding"} <= names:
            # Another program before us may have read the other one (RFC 9112, 6.1).
            await _write(send, 400, b'{"error":"the body has two lengths"}', [(b"connection", b"close")])
            return

        if scope["path"] != self._path:
            await _write(send, 404, b'{"error":"not found"}')
            return
        principal = self._find_principal(dict(headers).get("authorization", ""))
        if principal is None:
            await _write(send, 401, b'{"error":"the bearer token is missing or wrong"}', [(b"www-authenticate", b"Bearer")])
            return

        admitted = scope.get("state", {}).get(ADMITTED)
        if admitted is not None:
            admitted()

        refusal = self.server.refuse(headers)
        if refusal is not None:
            await _send(refusal, send)
            return

        body = await self._take(receive, send)
        if body is None:
            return
        try:
            await self._exchange(HttpRequest(scope["method"], scope["path"], headers, body), principal, receive, send)
        finally:
            self._held -= _held_bytes(body)

    async def _take(self, receive: Receive, send: Send) -> bytes | None:
        """Return the body; None where there is none, and its sender has been told why or has left."""
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                return await self._read(receive)
        except TimeoutError:
            await _write(send, 408, b'{"error":"the body did not arrive in time"}')
        except _FullError:
            await _write(send, 503, b'{"error":"too many long requests at once"}', [(b"retry-after", b"1")])
        return None

    async def _read(self, receive: Receive) -> bytes | None:
        """Return the body, cut after the first byte too many; None where the client left. It is held until it is answered."""
        max_bytes = self.server.max_body
        body, is_read = bytearray(), False
        try:
            while len(body) <= max_bytes:
                message = await receive()
                if message["type"] != "http.request":
                    return None

                before = _held_bytes(body)
                body += message.get("body", b"")[: max_bytes + 1 - len(body)]
                self._held += _held_bytes(body) - before
                if self._held > _MAX_HELD and _held_bytes(body):
                    raise _FullError
                if not message.get("more_body"):
                    break
            is_read = True
            return bytes(body)
        finally:
            if not is_read:
                self._held -= _held_bytes(body)

    async def _exchange(self, request: HttpRequest, principal: str, receive: Receive, send: Send) -> None:
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


async def _wait_for_end(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    length = str(len(body)).encode()
    fields = [(b"content-type", b"application/json"), (b"content-length", length), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def _send(response: HttpResponse, send: Send) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    async with contextlib.aclosing(response.chunks) as chunks:  # type: ignore[type-var]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
