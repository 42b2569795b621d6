"""HTTP/1.1 client for providers and services, on h11 and asyncio (docs/decisions/0013 compares it with others).

h11 checks every request. Plain responses are read here: a whole head in ASCII, a length, a connection that stays. h11 reads all
others, from their first byte.

It does no more than the proxy needs: no cookies, redirects, upgrades or HTTP/2, and no proxies of the environment (a pod-wide
HTTPS_PROXY would lead back to this proxy). Only connecting has a time-out; callers bound everything else by cancelling.
A connection is reused only when both messages are complete and nothing more has arrived.
"""

import asyncio
import re
import select
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

from claw_mediate.http.headers import RawHeaders

_MAX_IDLE = 20
_MAX_HEAD_BYTES = 100 * 1024  # Limit of a response's head
_MAX_UNREAD_BYTES = 256 * 1024  # Received bytes above which reading from the socket pauses
_FALLBACK_SECONDS = 1.0
"""Time to try an address while there is another one. (asyncio's own happy eyeballs fails an assertion where tasks start
eagerly, as mitmproxy's do.)"""
_MAX_DIGITS = 15  # Of a content-length
_PORTS = {"http": 80, "https": 443}
_ASCII = 0x80
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


def tls_context() -> ssl.SSLContext:
    """Return a client's TLS context, by SSL_CERT_FILE and SSL_CERT_DIR. Slow: creating one takes longer than a request."""
    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Origin(NamedTuple):
    secure: bool
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class _Target:
    origin: _Origin
    host_header: bytes
    path: bytes  # Including the query


class ConnectionPool:
    """Connections of one owner; owners share none."""

    def __init__(self, tls: ssl.SSLContext, *, idle: float, connect: float | None = None) -> None:
        """Keep unused connections for ``idle`` seconds; limit connecting to ``connect`` seconds."""
        self._tls = tls
        self._idle_seconds = idle
        self._connect_seconds = connect
        self._idle: list[tuple[_Origin, Connection]] = []
        self._closed = False

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, headers: RawHeaders, body: bytes | None, *, path: str = ""
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request and yield its response, body unread. ``path`` (with query) is appended to the URL.

        Raise httpx2's errors: ``InvalidURL``, ``UnsupportedProtocol``, ``LocalProtocolError`` for an impossible request;
        ``ConnectError``, ``ConnectTimeout`` when nothing was sent; other ``HTTPError``s when something may have been sent.
        """
        target = _parse_url(url)
        request = _request(method, target, headers, body, path)
        connection = self._take_idle(target.origin) or await self._connect(target.origin)
        try:
            status, fields = await connection.send(request, body or b"")
            yield httpx2.Response(status, headers=fields, stream=_Body(connection))
        finally:
            self._release(target.origin, connection)

    async def close(self) -> None:
        self._closed = True
        for _, connection in self._idle:
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # let their last callbacks run

    def _take_idle(self, origin: _Origin) -> "Connection | None":
        """Return the origin's most recently used connection that is still reusable; close all that are not."""
        now, latest = time.monotonic(), None
        for index in range(len(self._idle) - 1, -1, -1):
            owner, connection = self._idle[index]
            if not connection.is_reusable(now):
                connection.abort()
                del self._idle[index]
            elif latest is None and owner == origin:
                latest = connection
                del self._idle[index]
        return latest

    async def _connect(self, origin: _Origin) -> "Connection":
        try:
            async with asyncio.timeout(self._connect_seconds):
                *others, last = await asyncio.get_running_loop().getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
                for _, _, _, _, address in others:
                    with suppress(OSError):
                        async with asyncio.timeout(_FALLBACK_SECONDS):
                            return await self._connect_to(str(address[0]), origin)
                return await self._connect_to(str(last[4][0]), origin)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout("connecting took too long") from error
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError("no connection") from error

    async def _connect_to(self, address: str, origin: _Origin) -> "Connection":
        tls, name = (self._tls, origin.host) if origin.secure else (None, None)
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, address, origin.port, ssl=tls, server_hostname=name))[1]

    def _release(self, origin: _Origin, connection: "Connection") -> None:
        has_room = not self._closed and len(self._idle) < _MAX_IDLE
        if has_room and connection.reset(time.monotonic() + self._idle_seconds):
            self._idle.append((origin, connection))
        else:
            connection.abort()


class ConnectionPools[K]:
    """A pool for each key; their TLS context is created with them, and not by the first request, because that is slow."""

    def __init__(self, *, idle: float, connect: float | None = None) -> None:
        self._idle, self._connect = idle, connect
        self._pools: dict[K, ConnectionPool] = {}
        self.tls = tls_context()

    def __getitem__(self, key: K) -> ConnectionPool:
        if key not in self._pools:
            self._pools[key] = ConnectionPool(self.tls, idle=self._idle, connect=self._connect)
        return self._pools[key]

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()
        self._pools.clear()


class Connection(asyncio.Protocol):
    """One connection to a peer, one request at a time."""

    def __init__(self) -> None:
        self._http: h11.Connection | None = None  # Reads the present response, unless that is plain
        self._left = 0  # Bytes of a plain response's body that are still to come; -1: not even its head has come
        self._received = bytearray()
        self._lost = False
        self._error: Exception | None = None
        self._wakeup: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._reusable_until = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _MAX_UNREAD_BYTES:
            self._open_transport().pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost, self._error = True, error
        self._wake()

    async def send(self, request: h11.Request, body: bytes) -> tuple[int, RawHeaders]:
        """Send a request; return status and headers of its response, which may come before all of the request has left."""
        self._http, self._left = None, -1
        self._open_transport().writelines([_head(request), body] if body else [_head(request)])
        await self._await_data()
        if (plain := read_plain_head(self._received, request)) is not None:
            size, status, fields, self._left = plain
            del self._received[:size]
            return status, fields
        self._left = 0
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._http.send(request)
        if body:
            self._http.send(h11.Data(data=body))
        self._http.send(h11.EndOfMessage())
        while isinstance(event := await self._next_event(self._http), h11.InformationalResponse):
            pass
        if not isinstance(event, h11.Response):
            raise httpx2.RemoteProtocolError("no response")
        return event.status_code, event.headers.raw_items()

    async def iter_body(self) -> AsyncIterator[bytes]:
        """Yield the chunks of the response's body as they arrive."""
        if self._http is not None:
            while isinstance(event := await self._next_event(self._http), h11.Data):
                yield bytes(event.data)
            return
        while self._left:
            await self._await_data()
            if not self._received:
                raise httpx2.RemoteProtocolError("the response broke off")
            data = self._take(self._left)
            self._left -= len(data)
            yield data

    def is_reusable(self, now: float) -> bool:
        """Return whether an idle connection can take a request: not expired, and neither data nor an end has arrived."""
        usable = now < self._reusable_until and not self._lost and not self._received
        return usable and not _has_input(self._open_transport())

    def reset(self, until: float) -> bool:
        """Prepare for another request until that monotonic time; return False if this exchange is incomplete."""
        if self._left or self._received or self._lost or self._open_transport().get_write_buffer_size():
            return False
        if self._http is not None:
            is_done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
            if not is_done or self._http.trailing_data[0]:
                return False
        self._reusable_until = until
        return True

    def abort(self) -> None:
        self._open_transport().abort()

    async def _next_event(self, reader: h11.Connection) -> h11.Event | type[h11.PAUSED]:
        try:
            while (event := reader.next_event()) is h11.NEED_DATA:
                await self._await_data()
                reader.receive_data(self._take())  # no bytes: the peer has closed; h11 knows whether it may
        except h11.RemoteProtocolError as error:
            raise httpx2.RemoteProtocolError("this is no HTTP response") from error
        return event  # type: ignore[return-value] # it is not NEED_DATA

    async def _await_data(self) -> None:
        """Wait for bytes, or for the end of the connection. Raise ``ReadError`` if it broke."""
        if not self._received and not self._lost:
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup
        if self._error is not None and not self._received:
            raise httpx2.ReadError("the connection broke") from self._error

    def _take(self, size: int | None = None) -> bytes:
        """Take received bytes, at most so many, and read on if reading pauses."""
        data, is_paused = bytes(self._received[:size]), len(self._received) > _MAX_UNREAD_BYTES
        del self._received[: len(data)]
        if is_paused:
            self._open_transport().resume_reading()
        return data

    def _wake(self) -> None:
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None and not wakeup.done():
            wakeup.set_result(None)

    def _open_transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport


class _Body(httpx2.AsyncByteStream):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._connection.iter_body()


def _has_input(transport: asyncio.Transport) -> bool:
    if transport.is_closing():
        return True
    poll = select.poll()
    poll.register(transport.get_extra_info("socket"), select.POLLIN)
    return bool(poll.poll(0))


@lru_cache(maxsize=256)
def _parse_url(text: str) -> _Target:
    url = httpx2.URL(text)
    if url.scheme not in _PORTS or not url.raw_host:
        raise httpx2.UnsupportedProtocol(f"{url.scheme!r} is not HTTP")
    port = url.port or _PORTS[url.scheme]
    return _Target(_Origin(url.scheme == "https", url.raw_host.decode("ascii"), port), url.netloc, url.raw_path)


def _request(method: str, target: _Target, headers: RawHeaders, body: bytes | None, path: str) -> h11.Request:
    full_path = target.path.rstrip(b"/") + _percent_encode(path) if path else target.path
    raw = [*headers, (b"host", target.host_header)]
    if body is not None or method in _METHODS_WITH_BODY:
        raw.append((b"content-length", b"%d" % len(body or b"")))
    try:
        return h11.Request(method=method, target=full_path, headers=raw)
    except h11.LocalProtocolError as error:
        raise httpx2.LocalProtocolError("this can't be said in HTTP") from error


def _head(request: h11.Request) -> bytes:
    """Return a head, whose parts h11 has checked, with the host first (RFC 9110, 7.2)."""
    fields = sorted(request.headers.raw_items(), key=_is_no_host)
    lines = (b"%b: %b\r\n" % field for field in fields)
    return b"".join((request.method, b" ", request.target, b" HTTP/1.1\r\n", *lines, b"\r\n"))


def _is_no_host(field: tuple[bytes, bytes]) -> bool:
    return field[0].lower() != b"host"


_PLAIN_HEAD = re.compile(rb"HTTP/1\.1 ([2-5]\d\d)(?: [\t -~]*)?\r\n((?:[-!#$%&'*+.^_`|~0-9A-Za-z]+:[\t -~]*\r\n)+)\r\n")
_BODILESS = (204, 304)
_NOT_PLAIN = frozenset({b"transfer-encoding", b"connection"})
_STAYS = (b"connection", b"keep-alive")


def read_plain_head(received: bytearray, request: h11.Request) -> tuple[int, int, RawHeaders, int] | None:
    """Return (size of the head, status, headers, length of the body) of a plain response; None for any other."""
    match = _PLAIN_HEAD.match(received, 0, _MAX_HEAD_BYTES)
    if match is None or request.method == b"HEAD" or (status := int(match[1])) in _BODILESS:
        return None
    fields = [(name, value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in match[2].splitlines())]
    lengths = [value for name, value in fields if name.lower() == b"content-length"]
    is_plain = len(lengths) == 1 and lengths[0].isdigit() and len(lengths[0]) <= _MAX_DIGITS
    if not is_plain or any(name.lower() in _NOT_PLAIN and (name.lower(), value.lower()) != _STAYS for name, value in fields):
        return None
    return match.end(), status, fields, int(lengths[0])


def _percent_encode(path: str) -> bytes:
    """Encode all bytes of a runner's path that are not ASCII; none is lost."""
    raw = path.encode(errors="surrogateescape")
    return raw if raw.isascii() else b"".join(bytes([byte]) if byte < _ASCII else b"%%%02X" % byte for byte in raw)
