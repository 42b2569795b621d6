"""HTTP/1.1 to providers and services, on h11 and asyncio (decision 0013 says why not on httpx2's own client).

It can what is needed here and no more: no cookies, no redirects, no proxies of the environment (a pod-wide HTTPS_PROXY would
lead back into this very proxy), no upgrades, no HTTP/2. Only connecting has a time of its own; callers bound all the rest, by
cancelling it. A connection is used again only when both sides have said all, and nothing came unasked.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import h11
import httpx2

from claw_mediate.http.client import Connection
from claw_mediate.http.headers import RawHeaders

_MOST_IDLE = 20
_UNREACHABLE_SECONDS = 1.0
"""How long an address is waited for while there is another one. (asyncio's own race of addresses fails in an assertion of its
own where tasks begin eagerly, as mitmproxy has them.)"""
_PORTS = {"http": 80, "https": 443}
_ASCII = 0x80
_WITH_A_BODY = frozenset({"POST", "PUT", "PATCH"})


def tls_context() -> ssl.SSLContext:
    """For peers with TLS; SSL_CERT_FILE and SSL_CERT_DIR hold. Making one takes longer than a request."""
    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Peer(NamedTuple):
    secure: bool
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class _Place:
    """A URL, as a request needs it."""

    peer: _Peer
    named: bytes
    """The value of the ``Host`` header."""
    path: bytes
    """With its query."""


class ConnectionPool:
    """Connections of one owner, which share nothing with those of another."""

    def __init__(self, tls: ssl.SSLContext, *, idle: float, connect: float | None = None) -> None:
        """``idle``: seconds that a connection waits for further use. ``connect``: seconds that connecting may take."""
        self._tls = tls
        self._idle_seconds = idle
        self._connect_seconds = connect
        self._idle: list[tuple[_Peer, Connection]] = []
        self._closed = False

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, headers: RawHeaders, body: bytes | None, *, below: str = ""
    ) -> AsyncIterator[httpx2.Response]:
        """A request, and its response, whose body is yet to be read. ``below``: path and query, behind the URL's own.

        Raises httpx2's own errors: ``InvalidURL``, ``UnsupportedProtocol`` and ``LocalProtocolError`` for what can't be asked,
        ``ConnectError`` and ``ConnectTimeout`` when nothing was sent, other ``HTTPError``s when something may have been.
        """
        place = _place(url)
        request = _request(method, place, headers, body, below)
        connection = self._waiting(place.peer) or await self._connected(place.peer)
        try:
            answer = await connection.ask(request, body or b"")
            yield httpx2.Response(answer.status_code, headers=answer.headers.raw_items(), stream=connection.body())
        finally:
            self._give_back(place.peer, connection)

    async def close(self) -> None:
        self._closed = True
        for _, connection in self._idle:
            connection.end()
        self._idle.clear()
        await asyncio.sleep(0)  # their last callbacks

    def _waiting(self, peer: _Peer) -> Connection | None:
        """The connection that was used last, of those that are still good; those that are not are ended."""
        now, found = time.monotonic(), None
        for index in range(len(self._idle) - 1, -1, -1):
            whose, connection = self._idle[index]
            if not connection.is_good(now):
                connection.end()
                del self._idle[index]
            elif found is None and whose == peer:
                found = connection
                del self._idle[index]
        return found

    async def _connected(self, peer: _Peer) -> Connection:
        try:
            async with asyncio.timeout(self._connect_seconds):
                *others, last = await asyncio.get_running_loop().getaddrinfo(
                    peer.host, peer.port, type=socket.SOCK_STREAM
                )
                for _, _, _, _, address in others:
                    with suppress(OSError):
                        async with asyncio.timeout(_UNREACHABLE_SECONDS):
                            return await self._at(str(address[0]), peer)
                return await self._at(str(last[4][0]), peer)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout("connecting took too long") from error
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError("no connection") from error

    async def _at(self, address: str, peer: _Peer) -> Connection:
        secure, name = (self._tls, peer.host) if peer.secure else (None, None)
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, address, peer.port, ssl=secure, server_hostname=name))[1]

    def _give_back(self, peer: _Peer, connection: Connection) -> None:
        room = not self._closed and len(self._idle) < _MOST_IDLE
        if room and connection.renewed(time.monotonic() + self._idle_seconds):
            self._idle.append((peer, connection))
        else:
            connection.end()


@lru_cache(maxsize=256)
def _place(text: str) -> _Place:
    url = httpx2.URL(text)
    if url.scheme not in _PORTS or not url.raw_host:
        raise httpx2.UnsupportedProtocol(f"{url.scheme!r} is not HTTP")
    port = url.port or _PORTS[url.scheme]
    return _Place(_Peer(url.scheme == "https", url.raw_host.decode("ascii"), port), url.netloc, url.raw_path)


def _request(method: str, place: _Place, headers: RawHeaders, body: bytes | None, below: str) -> h11.Request:
    target = place.path.rstrip(b"/") + _encoded(below) if below else place.path
    raw = [*headers, (b"host", place.named)]
    if body is not None or method in _WITH_A_BODY:
        raw.append((b"content-length", b"%d" % len(body or b"")))
    try:
        return h11.Request(method=method, target=target, headers=raw)
    except h11.LocalProtocolError as error:
        raise httpx2.LocalProtocolError("this can't be said in HTTP") from error


def _encoded(target: str) -> bytes:
    """A runner's path may hold any bytes; those that may not stand in a URL are percent-encoded, and none is lost."""
    raw = target.encode(errors="surrogateescape")
    return raw if raw.isascii() else b"".join(bytes([byte]) if byte < _ASCII else b"%%%02X" % byte for byte in raw)
