"""Connections to the wrapper, and so to the tools host: peers that keep one for nothing."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from claw_mcp import asgi, connections, listening
from claw_mcp.asgi import McpApp, is_allowed_origin
from claw_mcp.connections import ListenerConnectionTable
from claw_mcp.server import StreamableHttpServer
from tests.mcp.wrapped import JSON_AND_EVENTS, wrapper
from tests.waiting import eventually, eventually_async

TOKEN = "token-of-the-proxy-0123456789"
BEARER = {"authorization": f"Bearer {TOKEN}"}
OTHER = {"authorization": "Bearer token-of-another-0123456789"}
CALLERS = {BEARER["authorization"]: "a", OTHER["authorization"]: "b"}
HALF_A_HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-"


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(port: int, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(sent)
    return connection


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.requirement("server:connections")
def test_thousands_of_connections_without_a_token_keep_nobody_out(tmp_path: Path) -> None:
    with (
        wrapper(tmp_path, CLAW_MCP_STDIO_AUTH_TOKEN=TOKEN) as wrapped,
        contextlib.ExitStack() as stack,
    ):
        with httpx2.Client(headers=BEARER | JSON_AND_EVENTS, timeout=60) as client:
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            assert (
                client.post(wrapped.url, json=ping).status_code == 400
            )  # It has shown its token, and no session
            idle = [
                stack.enter_context(connect(wrapped.port, HALF_A_HEAD * (number % 2)))
                for number in range(1_100)
            ]
            eventually(lambda: is_closed(idle[0]), "the oldest is closed")
            assert not is_closed(idle[-1])
            assert client.post(wrapped.url, json=ping).status_code == 400
            assert wrapped.health() == 200
        faults = [
            line["reason"] for line in wrapped.lines("mcp_wrapper") if line["state"] == "fault"
        ]
        assert len(faults) == 1
        assert faults[0].startswith("too many connections")


class Echo:
    """A ``Backend`` with long answers."""

    async def describe(self, _request: Any) -> dict[str, Any]:
        return {"capabilities": {}, "serverInfo": {"name": "echo", "version": "1"}}

    async def answer(self, _request: Any) -> bytes:
        return b'{"text":"%b"}' % (b"x" * (8 << 20))

    def end_session(self, _session: Any) -> None:
        """Keep nothing."""


def is_local(name: str) -> bool:
    return "evil" not in name


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[int]:
    """The port of a server in this process."""
    server = StreamableHttpServer(Echo(), is_allowed_host=is_local, is_allowed_origin=is_local)
    app = McpApp(server, "/mcp", CALLERS.get, lambda: {"ok": True, "part": "fine"})
    ending = asyncio.Event()
    listener = listening.listen("127.0.0.1", 0)
    serving = asyncio.create_task(listening.serve(app, listener, wait(ending)))
    yield listener.getsockname()[1]
    ending.set()
    await serving


async def wait(event: asyncio.Event) -> None:
    await event.wait()


@pytest.mark.requirement("server:idle-connections")
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        HALF_A_HEAD,
        b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /health HT",
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1",
    ],
    ids=["nothing", "half-a-head", "half-a-second-head", "half-a-body"],
)
def test_a_connection_without_a_request_is_closed_however_slowly_it_sends(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_IDLE_SECONDS", 0.3)

    async def keep_one() -> None:
        async with served() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)

            async def drip() -> None:
                with contextlib.suppress(ConnectionError):
                    while True:
                        writer.write(b"a")
                        await writer.drain()
                        await asyncio.sleep(0.05)

            dripping = asyncio.create_task(drip() if sent else asyncio.sleep(0))
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(20):
                    await reader.read(-1)
            dripping.cancel()
            writer.close()

    asyncio.run(keep_one())


@pytest.mark.requirement("server:unread-answers")
def test_an_answer_that_nobody_reads_is_dropped_with_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_UNREAD_SECONDS", 0.3)
    kept: list[connections.ListenerConnection] = []
    add = ListenerConnectionTable.add
    monkeypatch.setattr(
        ListenerConnectionTable, "add", lambda self, each: kept.append(each) or add(self, each)
    )

    async def read_nothing() -> None:
        async with (
            served() as port,
            httpx2.AsyncClient(headers=BEARER | JSON_AND_EVENTS, timeout=30) as client,
        ):
            opened = await client.post(
                f"http://127.0.0.1:{port}/mcp",
                json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}},
            )
            fields = {**BEARER, **JSON_AND_EVENTS, "host": "localhost", "content-length": "52"}
            fields["mcp-session-id"] = opened.headers["mcp-session-id"]
            head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            body = '{"jsonrpc":"2.0","id":1,"method":"tools/call"}'.ljust(52)
            with contextlib.closing(
                connect(port, f"POST /mcp HTTP/1.1\r\n{head}\r\n{body}".encode())
            ):
                await eventually_async(
                    lambda: kept[-1].flow is not None and kept[-1].flow.write_paused,
                    "its answer waits",
                )
                await eventually_async(
                    lambda: kept[-1].transport.get_write_buffer_size() == 0, "its answer is dropped"
                )
                assert kept[-1].transport.is_closing()

    asyncio.run(read_nothing())


async def status_of(head: str) -> int:
    """Return the status that a server answers to the head of a request with."""
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode())
        async with asyncio.timeout(20):
            line = await reader.readline()
        writer.close()
        return int(line.split()[1])


@pytest.mark.requirement("server:refused-unread")
@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ("Host: evil.example\r\nContent-Length: 1000", 421),
        ("Host: localhost\r\nOrigin: http://evil.example\r\nContent-Length: 1000", 403),
        ("Host: localhost\r\nContent-Length: 1000\r\nTransfer-Encoding: chunked", 400),
    ],
)
def test_what_is_refused_by_its_head_is_refused_before_its_body(fields: str, status: int) -> None:
    head = f"POST /mcp HTTP/1.1\r\nAuthorization: {BEARER['authorization']}\r\n{fields}\r\n\r\n"
    assert asyncio.run(status_of(head)) == status


@pytest.mark.requirement("server:long-bodies")
def test_long_requests_at_once_have_a_bound_and_short_ones_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asgi, "_MAX_HELD", 600_000)
    head = f"POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: {BEARER['authorization']}\r\n"

    async def status(reader: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(20):
            return (await reader.readline()).split()[1]

    async def ask() -> None:
        async with served() as port, contextlib.AsyncExitStack() as stack:

            async def send(declared: int, sent: int) -> asyncio.StreamReader:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)
                writer.write(f"{head}Content-Length: {declared}\r\n\r\n".encode() + b" " * sent)
                await writer.drain()
                return reader

            waiting = [await send(500_000, 200_000) for _ in range(2)]
            asked = [asyncio.create_task(status(each)) for each in waiting]
            done, pending = await asyncio.wait(
                asked, timeout=20, return_when=asyncio.FIRST_COMPLETED
            )
            assert [each.result() for each in done] == [b"503"]
            assert await status(await send(1_000, 1_000)) == b"400"
            for each in pending:
                each.cancel()
        async with served() as port:
            for _ in range(2):  # What was answered makes room
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(f"{head}Content-Length: 250000\r\n\r\n".encode() + b" " * 250_000)
                assert await status(reader) == b"400"
                writer.close()

    asyncio.run(ask())


@pytest.mark.requirement("server:long-bodies")
def test_a_caller_whose_long_requests_last_leaves_room_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asgi, "_MAX_HELD", 600_000)

    async def ask() -> None:
        async with served() as port, contextlib.AsyncExitStack() as stack:

            async def send(caller: dict[str, str], sent: int) -> asyncio.StreamReader:
                """Send part of a body, so that it is held as long as the connection
                lasts; or all of it.
                """
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)
                fields = (
                    "Host: localhost\r\nAuthorization: "
                    f"{caller['authorization']}\r\nContent-Length: 200000\r\n"
                )
                writer.write(f"POST /mcp HTTP/1.1\r\n{fields}\r\n".encode() + b" " * sent)
                await writer.drain()
                return reader

            held = [asyncio.create_task((await send(BEARER, 199_999)).readline()) for _ in range(6)]
            done: set[asyncio.Task[bytes]] = set()
            pending = set(held)
            while len(done) < len(held) - 1:
                more, pending = await asyncio.wait(
                    pending, timeout=20, return_when=asyncio.FIRST_COMPLETED
                )
                assert more
                done |= more
            assert {(await each).split()[1] for each in done} == {b"503"}

            async with asyncio.timeout(20):
                answer = await (await send(OTHER, 200_000)).readline()
            assert answer.split()[1] == b"400", "it is no JSON, but it was read"
            for each in pending:
                each.cancel()

    asyncio.run(ask())


@pytest.mark.requirement("server:callers")
def test_a_caller_with_all_connections_keeps_no_other_one_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_MAX_CONNECTIONS", 20)
    head = "GET /mcp HTTP/1.1\r\nHost: localhost\r\n"

    async def ask() -> None:
        async with served() as port, contextlib.AsyncExitStack() as stack:

            async def come(
                caller: dict[str, str],
            ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
                """Connect, show a token, and stay."""
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)
                writer.write(f"{head}Authorization: {caller['authorization']}\r\n\r\n".encode())
                async with asyncio.timeout(20):
                    assert (await reader.readline()).split()[1] == b"400", (
                        "it has a token, and no session"
                    )
                return reader, writer

            early, writer = await come(OTHER)
            for _ in range(60):
                await come(BEARER)
            await come(OTHER)
            writer.write(f"{head}Authorization: {OTHER['authorization']}\r\n\r\n".encode())
            async with asyncio.timeout(20):
                rest = await early.readuntil(b"HTTP/1.1 400")
            assert rest, "the other caller's own connection was kept"

    asyncio.run(ask())


@pytest.mark.requirement("wrapper:hosts", "host:principals")
@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (f"Authorization: Bearer wrong\r\nAuthorization: {BEARER['authorization']}", 401),
        (
            f"Authorization: {OTHER['authorization']}\r\nAuthorization: {BEARER['authorization']}",
            401,
        ),
        (f"Authorization: {BEARER['authorization']}\r\nOrigin: http://evil.example", 403),
        (f"Authorization: {BEARER['authorization']}", 400),
    ],
)
def test_of_two_credentials_none_counts(fields: str, status: int) -> None:
    assert (
        asyncio.run(status_of(f"GET /mcp HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n"))
        == status
    )


@pytest.mark.requirement("wrapper:hosts")
@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [
        ("http://localhost:3000", True),
        ("HTTPS://[::1]", True),
        ("http://toolhost:8080", True),
        ("capacitor://localhost", False),
        ("chrome-extension://localhost", False),
        ("http://localhost.evil.example", False),
        ("http://localhost@evil.example", False),
        ("http://localhost\nx", False),
        ("localhost", False),
        ("null", False),
        ("", False),
    ],
)
def test_an_origin_is_a_page_of_an_allowed_host(origin: str, is_allowed: bool) -> None:
    assert is_allowed_origin(origin, {"toolhost:8080"}) is is_allowed


@pytest.mark.requirement("server:health-details")
@pytest.mark.parametrize(
    ("peer", "host", "has_details"),
    [
        ("127.0.0.1", "localhost:8080", True),
        ("::1", "[::1]:8080", True),
        ("10.0.0.7", "toolhost:8080", False),
        ("10.0.0.7", "localhost", False),
        ("127.0.0.1", "evil.example", False),
    ],
)
def test_health_tells_strangers_only_whether_all_is_well(
    peer: str, host: str, has_details: bool
) -> None:
    sent: list[dict[str, Any]] = []

    async def ask() -> None:
        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        server = StreamableHttpServer(Echo(), is_allowed_host=is_local, is_allowed_origin=is_local)
        app = McpApp(
            server, "/mcp", CALLERS.get, lambda: {"ok": True, "servers": {"payroll": "down"}}
        )
        scope = {
            "type": "http",
            "path": "/health",
            "headers": [(b"host", host.encode())],
            "client": (peer, 5),
        }
        await app(scope, asyncio.Event().wait, send)  # type: ignore[arg-type]

    asyncio.run(ask())
    assert sent[0]["status"] == 200
    assert (b"payroll" in sent[1]["body"]) is has_details
