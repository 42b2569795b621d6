"""Our own client of HTTP/1.1, against peers that misbehave in any way: scripted byte by byte, on real sockets."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import h11
import httpx2
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import IPAddress
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy.certs import CertStore

from claw_mediate.http.client import ConnectionPool, parse_url, read_plain_head, tls_context, write_request
from claw_mediate.http.content_coding import read_bounded
from claw_mediate.http.headers import decode_headers

pytestmark = pytest.mark.requirement("connections:http")
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
type Serve = Callable[..., Awaitable[Wire]]
type Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Wire:
    """A server that runs the test's script on each connection, and counts connections."""

    port: int = 0
    made: int = 0
    heard: list[bytes] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has left."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[asyncio.Server] = []

    async def start(play: Play | None = None, *, says: bytes = OK, secure: ssl.SSLContext | None = None) -> Wire:
        wire = Wire()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            wire.made += 1
            try:
                if play is not None:
                    await play(reader, writer)
                while True:
                    wire.heard.append(await request(reader))
                    writer.write(says)
            except (asyncio.IncompleteReadError, ConnectionError):
                wire.gone.set()
            finally:
                writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=secure)
        servers.append(server)
        wire.port = server.sockets[0].getsockname()[1]
        return wire

    yield start
    for server in servers:
        server.close()


@pytest.fixture
async def connections() -> AsyncIterator[ConnectionPool]:
    made = ConnectionPool(tls_context(), idle=60, connect=10)
    yield made
    await made.close()


async def request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b"0")
    return head + await reader.readexactly(int(length))


async def asked(connections: ConnectionPool, url: str, body: bytes | None = b"{}", path: str = "") -> tuple[int, bytes]:
    async with connections.stream("GET" if body is None else "POST", url, [(b"x-a", b"1")], body, path=path) as response:
        return response.status_code, (await read_bounded(response, 1 << 24, 1 << 24))[0]


async def test_what_is_sent_is_what_was_meant_and_nothing_else(serve: Serve, connections: ConnectionPool) -> None:
    wire = await serve()
    await asked(connections, wire.url, b"{}", path="/chat?a=%2F")
    await asked(connections, f"{wire.url}/x?y=1", None)
    host = f"host: 127.0.0.1:{wire.port}\r\n".encode()
    assert wire.heard[0] == b"POST /v1/chat?a=%2F HTTP/1.1\r\n" + host + b"x-a: 1\r\ncontent-length: 2\r\n\r\n{}"
    assert wire.heard[1] == b"GET /v1/x?y=1 HTTP/1.1\r\n" + host + b"x-a: 1\r\n\r\n"
    await asked(connections, wire.url, path="/a%2F\udcff?é")
    assert wire.heard[2].startswith(b"POST /v1/a%2F%FF?%C3%A9 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "says",
    [
        OK,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK,
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    ],
)
async def test_a_response_of_any_framing_is_read_and_the_connection_used_again(
    serve: Serve, connections: ConnectionPool, says: bytes
) -> None:
    wire = await serve(says=says)
    for _ in range(3):
        assert await asked(connections, wire.url) == (200, b"ok")
    assert wire.made == 1


STATUS_LINES = (
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200",
    "HTTP/1.1 404 ",
    "HTTP/1.0 200 OK",
    "HTTP/1.1 204 No",
    "HTTP/1.1 100 Go",
    "HTTP/1.1 2x0 OK",
)
FIELDS = (
    "content-length: 3",
    "Content-Length:\t03 ",
    "content-length: 3, 3",
    "content-length: +3",
    "transfer-encoding: chunked",
    "Connection: Keep-Alive",
    "connection: close",
    "connection: keep-alive, x",
    "transfer-encoding: keep-alive",
    "content-type: application/json",
    "empty:",
    "x y: 1",
    " folded",
    "x : 1",
    "x: \x00",
    "x: \xe9",
    "x",
)


@given(st.sampled_from(STATUS_LINES), st.lists(st.sampled_from(FIELDS), max_size=4), st.sampled_from(["\r\n", "\n"]))
def test_a_plain_response_is_what_it_is_to_h11(status: str, fields: list[str], end: str) -> None:
    said = end.join([status, "content-length: 3", *fields, "", "abc"]).encode("latin-1")
    request = h11.Request(method="POST", target="/", headers=[("host", "a")])
    plain = read_plain_head(bytearray(said), request.method)
    if plain is None:
        return
    reader = h11.Connection(h11.CLIENT)
    reader.send(request)
    reader.send(h11.EndOfMessage())
    reader.receive_data(said)
    head, body = reader.next_event(), reader.next_event()
    assert isinstance(head, h11.Response)
    assert isinstance(body, h11.Data)
    headers = decode_headers(head.headers.raw_items())
    assert plain == (len(said) - 3, head.status_code, headers, len(body.data))
    assert isinstance(reader.next_event(), h11.EndOfMessage)
    reader.start_next_cycle()


SENT = (b"x", b"a b", b"a\tb", b"", b" a", b"a ", b"\xe9", b"3", b"chunked", b"a\r\nx: y", b"\0", b"\x7f")
NAMES = (b"x-a", b"X-A", b"Host", b"content-length", b"Transfer-Encoding", b"x: a", b"x,a", b"", b"\xe9", b"hosts")


@given(
    st.sampled_from(["POST", "get", "G T", ""]),
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(SENT)), max_size=3),
    st.sampled_from(["/b?c=%20", "/b c", "/\x7f", "/b\r\nx: y"]),
    st.sampled_from([b"abc", None]),
)
def test_a_request_is_what_h11_writes(method: str, fields: list[tuple[bytes, bytes]], path: str, body: bytes | None) -> None:
    target = parse_url("http://a.test/v1")
    length = [(b"content-length", b"3")] if body else [(b"content-length", b"0")] if method == "POST" else []
    try:
        asked = h11.Request(method=method, target=f"/v1{path}", headers=[*fields, (b"host", b"a.test"), *length])
        head = h11.Connection(h11.CLIENT).send(asked)
    except h11.LocalProtocolError:
        with pytest.raises(httpx2.LocalProtocolError):
            write_request(method, target, fields, body, path)
        return
    assert write_request(method, target, fields, body, path).head == head


def test_an_ordinary_response_is_plain_and_a_bodiless_one_is_not() -> None:
    said = bytearray(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
    plain = read_plain_head(said, b"POST")
    assert plain == (len(said) - 2, 200, [("content-type", "application/json"), ("content-length", "2")], 2)
    assert read_plain_head(said, b"HEAD") is None


async def test_a_response_may_come_byte_by_byte(serve: Serve, connections: ConnectionPool) -> None:
    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        for byte in OK:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    wire = await serve(slowly)
    assert await asked(connections, wire.url) == (200, b"ok")
    assert await asked(connections, wire.url) == (200, b"ok")
    assert wire.made == 1


async def test_a_response_without_a_length_ends_with_its_connection(serve: Serve, connections: ConnectionPool) -> None:
    async def until_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nok")
        writer.close()

    wire = await serve(until_close)
    for _ in range(2):
        assert await asked(connections, wire.url) == (200, b"ok")
    assert wire.made == 2


@pytest.mark.parametrize(
    "says",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
)
async def test_what_comes_unasked_is_nobodys_answer(serve: Serve, connections: ConnectionPool, says: bytes) -> None:
    wire = await serve(says=says)
    for _ in range(3):
        assert await asked(connections, wire.url) == (200, b"ok")
    assert wire.made == 3


async def test_an_answer_that_comes_before_its_question_is_not_taken_for_it(serve: Serve, connections: ConnectionPool) -> None:
    async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK)
        await writer.drain()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged")
        await writer.drain()
        said.set()

    said = asyncio.Event()
    wire = await serve(hasty)
    assert await asked(connections, wire.url) == (200, b"ok")
    await said.wait()
    said.clear()
    assert await asked(connections, wire.url) == (200, b"ok")
    assert wire.made == 2


async def test_a_connection_that_the_peer_has_closed_is_not_used(serve: Serve, connections: ConnectionPool) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK)
        writer.close()
        await writer.wait_closed()
        closed.set()

    closed = asyncio.Event()
    wire = await serve(once)
    for _ in range(3):
        assert await asked(connections, wire.url) == (200, b"ok")
        await closed.wait()
        closed.clear()
    assert wire.made == 3


async def test_a_connection_waits_for_so_long_and_no_longer(serve: Play) -> None:
    wire = await serve()
    impatient = ConnectionPool(tls_context(), idle=0)
    for _ in range(2):
        assert await asked(impatient, wire.url) == (200, b"ok")
    assert wire.made == 2
    await impatient.close()


async def test_connections_of_two_peers_are_two(serve: Serve, connections: ConnectionPool) -> None:
    first, second = await serve(), await serve()
    for wire in (first, second, first, second):
        assert await asked(connections, wire.url) == (200, b"ok")
    assert (first.made, second.made) == (1, 1)


async def test_requests_side_by_side_have_connections_of_their_own(serve: Serve, connections: ConnectionPool) -> None:
    wire = await serve()
    assert await asyncio.gather(*(asked(connections, wire.url) for _ in range(30))) == [(200, b"ok")] * 30
    made = wire.made
    assert await asyncio.gather(*(asked(connections, wire.url) for _ in range(10))) == [(200, b"ok")] * 10
    assert wire.made == made == 30


async def test_a_peer_may_answer_before_it_has_read_everything(serve: Serve, connections: ConnectionPool) -> None:
    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nno!")
        await writer.drain()
        await reader.read(1 << 16)
        await answered.wait()

    answered = asyncio.Event()
    wire = await serve(refuses)
    assert await asked(connections, wire.url, b"x" * 20_000_000) == (413, b"no!")
    answered.set()


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nok",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nok",
    ],
)
async def test_what_is_no_response_or_not_a_whole_one_is_an_error_of_its_own_kind(
    serve: Serve, connections: ConnectionPool, says: bytes
) -> None:
    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(says)
        writer.close()

    wire = await serve(breaks)
    with pytest.raises(httpx2.HTTPError) as caught:
        await asked(connections, wire.url)
    assert not isinstance(caught.value, httpx2.ConnectError | httpx2.LocalProtocolError)


async def test_a_connection_that_is_reset_is_no_end_of_a_body(serve: Serve, connections: ConnectionPool) -> None:
    async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf of it")
        await writer.drain()
        await read.wait()
        writer.get_extra_info("socket").setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER with no time: a reset
        writer.close()

    read = asyncio.Event()
    wire = await serve(resets)

    async def reads() -> None:
        async with connections.stream("POST", wire.url, [], b"") as response:
            async for _ in response.aiter_bytes():
                read.set()

    with pytest.raises(httpx2.ReadError):
        await reads()


async def test_a_packed_body_is_unpacked(serve: Serve, connections: ConnectionPool) -> None:
    packed = gzip.compress(b"unpacked")
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    wire = await serve(says=head + packed)
    assert await asked(connections, wire.url) == (200, b"unpacked")


async def test_a_caller_that_is_cancelled_leaves_at_once(serve: Serve, connections: ConnectionPool) -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await request(reader)
        silence.set()
        assert await reader.read() == b""
        wire.gone.set()

    silence = asyncio.Event()
    wire = await serve(silent)
    asking = asyncio.ensure_future(asked(connections, wire.url))
    await silence.wait()
    asking.cancel()
    await wire.gone.wait()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_peer_that_sends_without_end_has_to_wait_for_its_reader(serve: Serve, connections: ConnectionPool) -> None:
    async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            sent.append(65_536)
            draining = asyncio.ensure_future(writer.drain())
            await asyncio.wait([draining], timeout=0.5)
            if not draining.done():
                waits.set()
            await draining

    waits, sent = asyncio.Event(), list[int]()
    wire = await serve(floods)
    async with connections.stream("GET", wire.url, [], None) as response:
        parts = response.aiter_bytes()
        await anext(parts)
        await waits.wait()
        before, read = sum(sent), 0
        while read <= before:  # the peer goes on once its data is read
            read += len(await anext(parts))
    assert before < 32 << 20


async def test_who_cannot_be_reached_is_told_apart(connections: ConnectionPool) -> None:
    with pytest.raises(httpx2.ConnectError):
        await asked(connections, "http://127.0.0.1:1/")
    with pytest.raises(httpx2.ConnectError):
        await asked(connections, "http://no-such-host.invalid/")


async def test_every_address_of_a_host_is_tried(
    serve: Serve, connections: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = await serve()
    known = socket.getaddrinfo

    def two(host: str, *rest: Any, **more: Any) -> Any:
        hosts = ("127.0.0.2", "127.0.0.1") if host == "two.test" else (host,)
        return [info for each in hosts for info in known(each, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    assert await asked(connections, wire.url.replace("127.0.0.1", "two.test")) == (200, b"ok")


@pytest.mark.parametrize(
    ("url", "header", "error"),
    [
        ("ftp://127.0.0.1/", b"1", httpx2.UnsupportedProtocol),
        ("http:///", b"1", httpx2.UnsupportedProtocol),
        ("http://[::1", b"1", httpx2.InvalidURL),
        ("http://127.0.0.1:1/", b"1\r\nx-evil: 1", httpx2.LocalProtocolError),
        ("http://127.0.0.1:1/", b"\0", httpx2.LocalProtocolError),
    ],
)
async def test_what_cannot_be_asked_is_told_before_anything_is_sent(
    connections: ConnectionPool, url: str, header: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        async with connections.stream("GET", url, [(b"x-a", header)], None):
            pass


async def test_a_certificate_counts_and_its_name(
    serve: Serve, connections: ConnectionPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = CertStore.from_store(tmp_path, "mitmproxy", 2048).get_cert("peer", [IPAddress(ip_address("127.0.0.1"))])
    pem = tmp_path / "server.pem"
    plain = (Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    pem.write_bytes(issued.privatekey.private_bytes(*plain) + issued.cert.to_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    wire = await serve(secure=context)
    url = wire.url.replace("http:", "https:")
    with pytest.raises(httpx2.ConnectError):
        await asked(connections, url)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "mitmproxy-ca-cert.pem"))
    trusting = ConnectionPool(tls_context(), idle=60)
    for _ in range(2):
        assert await asked(trusting, url) == (200, b"ok")
    with pytest.raises(httpx2.ConnectError):
        await asked(trusting, url.replace("127.0.0.1", "localhost"))
    await trusting.close()
