"""The ASGI application: what is refused unread, and how much is held."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from claw_mcp import asgi
from claw_mcp.asgi import McpApp, is_allowed_origin
from claw_mcp.server import StreamableHttpServer
from claw_mcp.wrapper import Wrapper, read_settings
from tests.mcp.served import BEARER, CALLERS, OTHER, Echo, is_local, served


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


@pytest.mark.requirement("wrapper:http")
async def test_a_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asgi._BODY_SECONDS == 30
    monkeypatch.setattr(asgi, "_BODY_SECONDS", 0.01)
    sent: list[dict[str, Any]] = []

    async def never() -> dict[str, Any]:
        return await asyncio.get_running_loop().create_future()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    app = Wrapper(read_settings({}, ["true"])).app
    await app(
        {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"host", b"localhost")]},
        never,
        send,
    )
    assert sent[0]["status"] == 408
