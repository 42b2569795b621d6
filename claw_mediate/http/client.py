"""HTTP/1.1 client for providers and services, on h11 and asyncio.

docs/decisions/0013 compares it with others.

Plain requests are written here, and plain responses are read here: a whole head in ASCII, a length
or chunks, a connection that stays. h11 checks all other requests, and reads all other responses,
from their first byte.

It does no more than the proxy needs: no cookies, redirects, upgrades or HTTP/2, and no proxies of
the environment (a pod-wide HTTPS_PROXY would lead back to this proxy). Only connecting has a
time-out; callers bound everything else by cancelling. A connection is reused only when both
messages are complete and nothing more has arrived.
"""

import asyncio
import re
import select
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from ipaddress import ip_address
from types import TracebackType
from typing import NamedTuple

import h11
import httpx2

from claw_mediate.http.chunks import ChunkedBody
from claw_mediate.http.headers import Headers, RawHeaders, ResponseHeaders, decode_headers
from claw_mediate.http.large_bodies import MAX_INLINE_BYTES

_MAX_IDLE = 20
_MAX_HEAD_BYTES = 100 * 1024  # Limit of a response's head
_MAX_UNREAD_BYTES = 256 * 1024  # Received bytes above which reading from the socket pauses
_MAX_COPIED = 64 * 1024  # Bytes of a body that costs less to copy than to write apart from its head
_FALLBACK_SECONDS = 1.0
"""Time to try an address while there is another one.

(asyncio's own happy eyeballs fails an assertion where tasks start eagerly, as mitmproxy's do.)
"""
_PIECE_BYTES = 256 * 1024  # Bytes of a large body that are written, and encrypted, at once
_FRAMING = frozenset({"content-length", "transfer-encoding"})
"""Headers that say how long a body is."""
_PLAIN_FRAMING = re.compile(r"content-length: ([0-9]{1,15})|transfer-encoding: chunked")
_PORTS = {"http": 80, "https": 443}
_FIRST_NON_ASCII = 0x80
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_BODYLESS_STATUSES = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


def tls_context() -> ssl.SSLContext:
    """Return a client's TLS context, by SSL_CERT_FILE and SSL_CERT_DIR.

    Slow: creating one takes longer than a request.
    """
    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Origin(NamedTuple):
    secure: bool
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Target:
    """The peer and path of a URL."""

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
        self._idle: list[tuple[_Origin, PeerConnection]] = []
        self._closed = False

    def stream(
        self, method: str, url: str, headers: RawHeaders, body: bytes | None, *, path: str = ""
    ) -> "Exchange":
        """Return the exchange that sends a request when it is entered.

        ``path`` (with query) is appended to the URL.

        It raises httpx2's errors: ``InvalidURL``, ``UnsupportedProtocol``, ``LocalProtocolError``
        for what can't be asked; ``ConnectError``, ``ConnectTimeout`` when nothing was sent; other
        ``HTTPError``s when something may have been sent.
        """
        return Exchange(self, method, url, headers, body, path)

    async def close(self) -> None:
        self._closed = True
        for _, connection in self._idle:
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # let their last callbacks run

    def take_idle(self, origin: _Origin) -> "PeerConnection | None":
        """Return the origin's most recently used connection that is still reusable.

        Close those of any origin that have been idle for too long. Of the others only the one that
        is taken is looked at: each look is a system call, and one owner may have twenty of them.
        """
        now = time.monotonic()
        self._close_expired(now)

        for index in range(len(self._idle) - 1, -1, -1):
            owner, connection = self._idle[index]
            if owner != origin:
                continue

            del self._idle[index]
            if connection.is_reusable(now):
                return connection
            connection.abort()
        return None

    def _close_expired(self, now: float) -> None:
        """Close the connections that have been idle for too long: they were released first."""
        while self._idle and self._idle[0][1].reusable_until <= now:
            _, connection = self._idle.pop(0)
            connection.abort()

    async def connect(self, origin: _Origin) -> "PeerConnection":
        """Return a new connection. Raise ``ConnectTimeout`` or ``ConnectError``."""
        try:
            async with asyncio.timeout(self._connect_seconds):
                *others, last = await _find_addresses(origin)
                for address in others:
                    # TimeoutError is an OSError: the next address is tried after it, too.
                    with suppress(OSError):
                        async with asyncio.timeout(_FALLBACK_SECONDS):
                            return await self._connect_to(address, origin)
                return await self._connect_to(last, origin)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout("connecting took too long") from error
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError("no connection") from error

    async def _connect_to(self, address: str, origin: _Origin) -> "PeerConnection":
        loop = asyncio.get_running_loop()
        if origin.secure:
            _, connection = await loop.create_connection(
                PeerConnection, address, origin.port, ssl=self._tls, server_hostname=origin.host
            )
        else:
            _, connection = await loop.create_connection(PeerConnection, address, origin.port)
        return connection

    def release(self, origin: _Origin, connection: "PeerConnection") -> None:
        """Keep a connection for another request, or close it."""
        has_room = not self._closed and len(self._idle) < _MAX_IDLE
        if has_room and connection.reset(time.monotonic() + self._idle_seconds):
            self._idle.append((origin, connection))
        else:
            connection.abort()


async def _find_addresses(origin: _Origin) -> list[str]:
    """Return the addresses of a host, one at least.

    Raise ``OSError`` or ``UnicodeError`` if it has none.
    """
    try:
        return [str(ip_address(origin.host))]
    except ValueError:  # a name, which a thread looks up
        found = await asyncio.get_running_loop().getaddrinfo(
            origin.host, origin.port, type=socket.SOCK_STREAM
        )
        return [str(address[0]) for _, _, _, _, address in found]


class ConnectionPools[K]:
    """A pool for each key; all have one TLS context."""

    def __init__(self, *, idle: float, connect: float | None = None) -> None:
        self._idle = idle
        self._connect = connect
        self._pools: dict[K, ConnectionPool] = {}
        # Created now, and not by the first request, because that is slow.
        self.tls = tls_context()

    def __getitem__(self, key: K) -> ConnectionPool:
        if key not in self._pools:
            self._pools[key] = ConnectionPool(self.tls, idle=self._idle, connect=self._connect)
        return self._pools[key]

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()
        self._pools.clear()


class Exchange:
    """A request and its response, body unread; the connection is given back when it is left."""

    def __init__(
        self,
        pool: ConnectionPool,
        method: str,
        url: str,
        headers: RawHeaders,
        body: bytes | None,
        path: str,
    ) -> None:
        self._pool = pool
        self._asked = method, url, headers, body, path
        self._held: tuple[_Origin, PeerConnection] | None = None

    async def __aenter__(self) -> "Response":
        method, url, headers, body, path = self._asked
        target = parse_url(url)
        request = write_request(method, target, headers, body, path)
        connection = self._pool.take_idle(target.origin) or await self._pool.connect(target.origin)
        self._held = target.origin, connection
        try:
            status, response_headers = await connection.send(request, body or b"")
            return Response(connection, status, response_headers)
        except BaseException:
            self._pool.release(target.origin, connection)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._held is not None
        self._pool.release(*self._held)


class Response:
    """A response whose body is read once, in one of three ways."""

    def __init__(
        self, connection: "PeerConnection", status_code: int, headers: ResponseHeaders
    ) -> None:
        self._connection = connection
        self.status_code = status_code
        self.headers = headers

    def take_whole(self) -> bytes | None:
        """Return the body as it was sent if all of it is here; None otherwise."""
        return self._connection.take_whole()

    def aiter_raw(self) -> AsyncIterator[bytes]:
        """Return the chunks of the body as it was sent."""
        return self._connection.iter_body()

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Return the chunks of the body without its content coding."""
        codings = [
            (b"content-encoding", value.encode())
            for value in self.headers.get_list("content-encoding")
        ]
        if not codings:
            return self.aiter_raw()

        decoded = httpx2.Response(self.status_code, headers=codings, stream=_Body(self._connection))
        return decoded.aiter_bytes()


class PeerConnection(asyncio.Protocol):
    """One connection to a peer, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._poll = select.poll()
        self.reusable_until = 0.0
        """The monotonic time up to which it may be reused."""
        self._lost = False
        self._error: Exception | None = None
        self._wakeup: asyncio.Future[None] | None = None

        # The present request
        self._has_sent = True  # True if all of it was sent
        self._is_full = False  # True while the transport holds so much that it asks to wait

        # The present response
        self._http: h11.Connection | None = None  # Reads it; None for a plain response
        self._chunks: ChunkedBody | None = None  # Reads the body of a plain one that has chunks
        self._left = 0
        """Bytes of the body of a plain one with a length that are still to come.

        -1 before the head of any response has come.
        """
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._poll.register(transport.get_extra_info("socket"), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _MAX_UNREAD_BYTES:
            self._open_transport().pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost, self._error = True, error
        self._wake()

    async def send(self, request: "PeerRequest", body: bytes) -> tuple[int, ResponseHeaders]:
        """Send a request; return status and headers of its response.

        The response may come before all of the request has left.
        """
        self._http = None
        self._chunks = None
        self._left = -1
        self._has_sent = True
        if len(body) > MAX_INLINE_BYTES:
            self._has_sent = await self._send_pieces(request.head, body)
        elif len(body) > _MAX_COPIED:
            self._open_transport().writelines([request.head, body])
        else:
            self._open_transport().write(request.head + body)

        await self._await_data()
        plain = read_plain_head(self._received, request.method)
        # h11 and the reader of chunks know by themselves how much is left.
        self._left = 0
        if plain is not None:
            del self._received[: plain.size]
            if plain.length is None:
                self._chunks = ChunkedBody()
            else:
                self._left = plain.length
            return plain.status, ResponseHeaders(plain.headers)

        # h11 reads any other response, but only after it has seen its request.
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._http.send(request.checked())
        if body:
            self._http.send_with_data_passthrough(h11.Data(data=body))
        self._http.send(h11.EndOfMessage())

        while isinstance(event := await self._next_event(self._http), h11.InformationalResponse):
            pass
        if not isinstance(event, h11.Response):
            raise httpx2.RemoteProtocolError("no response")
        return event.status_code, ResponseHeaders(decode_headers(event.headers.raw_items()))

    async def _send_pieces(self, head: bytes, body: bytes) -> bool:
        """Send a large body piece by piece, as the peer takes it.

        In one piece, TLS would encrypt all of it at once, and keep the event loop waiting.

        Return whether all of it was sent: the response, or the end of the connection, may come
        before.
        """
        transport = self._open_transport()
        transport.write(head)

        view = memoryview(body)
        for start in range(0, len(view), _PIECE_BYTES):
            while self._is_full and not (self._received or self._lost):
                self._wakeup = asyncio.get_running_loop().create_future()
                await self._wakeup
            if self._received or self._lost:
                return False

            transport.write(view[start : start + _PIECE_BYTES])
            await asyncio.sleep(0)
        return True

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._wake()

    def take_whole(self) -> bytes | None:
        """Return a plain response's body if all of it is here; None otherwise."""
        if self._http is not None or not 0 < self._left <= len(self._received):
            return None

        data = self._take(self._left)
        self._left = 0
        return data

    async def iter_body(self) -> AsyncIterator[bytes]:
        """Yield the chunks of the response's body as they arrive."""
        if self._http is not None:
            while isinstance(event := await self._next_event(self._http), h11.Data):
                yield bytes(event.data)
            return

        chunks = self._chunks
        while chunks is not None and not chunks.is_over:
            data = chunks.feed(await self._next_bytes())
            if data:
                yield data
            if chunks.is_broken:
                raise httpx2.RemoteProtocolError("this is no HTTP response")

        while self._left:
            data = await self._next_bytes(self._left)
            self._left -= len(data)
            yield data

    async def _next_bytes(self, size: int | None = None) -> bytes:
        """Return the next bytes of a plain body, at most ``size``, when some are there."""
        await self._await_data()
        if not self._received:
            raise httpx2.RemoteProtocolError("the response broke off")
        return self._take(size)

    def is_reusable(self, now: float) -> bool:
        """Return whether an idle connection can take a request.

        It is not expired, and neither data nor its end has arrived.
        """
        usable = now < self.reusable_until and not self._lost and not self._received
        return usable and not self._open_transport().is_closing() and not self._poll.poll(0)

    def reset(self, until: float) -> bool:
        """Prepare for another request until that monotonic time.

        Return False if this exchange is incomplete: then the connection is of no use any more.
        """
        if not self._has_sent or self._left or self._received or self._lost:
            return False
        if self._open_transport().get_write_buffer_size():
            return False

        chunks = self._chunks
        if chunks is not None and (not chunks.is_over or chunks.has_rest):
            return False
        if self._http is not None:
            is_done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
            if not is_done or self._http.trailing_data[0]:
                return False

        self.reusable_until = until
        return True

    def abort(self) -> None:
        self._open_transport().abort()

    async def _next_event(self, reader: h11.Connection) -> h11.Event | type[h11.PAUSED]:
        try:
            while (event := reader.next_event()) is h11.NEED_DATA:
                await self._await_data()
                # No bytes: the peer has closed. h11 knows whether it may.
                reader.receive_data(self._take())
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
        """Take received bytes, at most ``size``; read on if reading is paused."""
        is_paused = len(self._received) > _MAX_UNREAD_BYTES
        data = bytes(self._received[:size])
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
    def __init__(self, connection: PeerConnection) -> None:
        self._connection = connection

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._connection.iter_body()


@lru_cache(maxsize=256)
def parse_url(text: str) -> Target:
    """Return where a URL leads. Raise ``InvalidURL`` or ``UnsupportedProtocol``."""
    url = httpx2.URL(text)
    if url.scheme not in _PORTS or not url.raw_host:
        raise httpx2.UnsupportedProtocol(f"{url.scheme!r} is not HTTP")

    is_secure = url.scheme == "https"
    port = url.port or _PORTS[url.scheme]
    origin = _Origin(is_secure, url.raw_host.decode("ascii"), port)
    return Target(origin, url.netloc, url.raw_path)


class PeerRequest(NamedTuple):
    """A request to a peer, without its body."""

    method: bytes
    target: bytes
    fields: RawHeaders  # The host first (RFC 9110, 7.2)
    head: bytes  # The same three as bytes on the wire

    def checked(self) -> h11.Request:
        """Return the request as h11 sends it."""
        try:
            return h11.Request(method=self.method, target=self.target, headers=self.fields)
        except h11.LocalProtocolError as error:
            raise httpx2.LocalProtocolError("this can't be said in HTTP") from error


_VALUE = rb"[!-~]+(?:[\t ]+[!-~]+)*+\r\n"
_COLON = ord(":")
_PLAIN_REQUEST = re.compile(
    rb"[A-Z]+ [!-~]+ HTTP/1\.1\r\nhost: "
    + _VALUE
    + rb"(?:(?!(?i:host|content-length|transfer-encoding):)"
    rb"[-!#$%&'*+.^_`|~0-9A-Za-z]++: " + _VALUE + rb")*+"
)


def write_request(
    method: str, target: Target, headers: RawHeaders, body: bytes | None, path: str
) -> PeerRequest:
    """Return a request that can be sent. Raise ``LocalProtocolError``."""
    full_path = target.path
    if path:
        full_path = full_path.rstrip(b"/") + _percent_encode(path)

    fields = [(b"host", target.host_header), *headers]
    head = _write_head(method.encode(), full_path, fields)
    # The pattern sees lines and not headers: one with a line break in it would look like two
    # sound ones, and a name with a colon like a shorter name.
    is_plain = (
        _PLAIN_REQUEST.fullmatch(head) is not None
        and head.count(b"\n") == len(fields) + 1
        and _COLON not in b"".join([name for name, _ in headers])
    )

    if body is not None or method in _METHODS_WITH_BODY:
        length = b"%d" % len(body or b"")
        fields.append((b"content-length", length))
        head += b"content-length: " + length + b"\r\n"

    request = PeerRequest(method.encode(), full_path, fields, head + b"\r\n")
    if is_plain:  # h11 would leave it as it is
        return request

    checked = request.checked()
    # The host goes first, and the others stay in their order.
    fields = sorted(checked.headers.raw_items(), key=lambda field: field[0].lower() != b"host")
    head = _write_head(checked.method, checked.target, fields) + b"\r\n"
    return PeerRequest(checked.method, checked.target, fields, head)


def _write_head(method: bytes, target: bytes, fields: RawHeaders) -> bytes:
    """Return a head without the empty line at its end."""
    lines = b"".join([b"%b: %b\r\n" % field for field in fields])
    return b"%b %b HTTP/1.1\r\n%b" % (method, target, lines)


_PLAIN_HEAD = re.compile(
    rb"HTTP/1\.1 ([2-5]\d\d)(?: [\t -~]*)?\r\n((?:[-!#$%&'*+.^_`|~0-9A-Za-z]+:[\t -~]*\r\n)+)\r\n"
)


class PlainHead(NamedTuple):
    """The head of a plain response."""

    size: int
    status: int
    headers: Headers
    length: int | None  # Of the body; None if it comes in chunks


def read_plain_head(received: bytearray, method: bytes) -> PlainHead | None:
    """Return the head of a plain response; None of any other, which h11 reads."""
    match = _PLAIN_HEAD.match(received, 0, _MAX_HEAD_BYTES)
    if match is None or method == b"HEAD":
        return None
    status = int(match[1])
    if status in _BODYLESS_STATUSES:
        return None

    lines = [line.partition(":") for line in match[2].decode("ascii").split("\r\n")[:-1]]
    headers = [(name.lower(), value.strip(" \t")) for name, _, value in lines]
    framing: list[str] = []
    for name, value in headers:
        if name in _FRAMING:
            framing.append(f"{name}: {value}".lower())
        elif name == "connection" and value.lower() != "keep-alive":
            return None

    # With two of them, two programs might read two bodies.
    if len(framing) != 1:
        return None
    length = _PLAIN_FRAMING.fullmatch(framing[0])
    if length is None:
        return None
    size = int(length[1]) if length[1] else None
    return PlainHead(match.end(), status, headers, size)


def _percent_encode(path: str) -> bytes:
    """Encode all bytes of a runner's path that are not ASCII; none is lost."""
    raw = path.encode(errors="surrogateescape")
    if raw.isascii():
        return raw

    return b"".join(bytes([byte]) if byte < _FIRST_NON_ASCII else b"%%%02X" % byte for byte in raw)
