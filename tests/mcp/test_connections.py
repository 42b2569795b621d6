"""Connections to the wrapper, and so to the tools host: peers that keep one for nothing."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from claw_mcp import connections
from claw_mcp.connections import ListenerConnectionTable
from tests.mcp.served import BEARER, OTHER, TOKEN, served
from tests.mcp.wrapped import JSON_AND_EVENTS, wrapper
from tests.waiting import eventually, eventually_async

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
