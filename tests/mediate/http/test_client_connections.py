"""The connections of our own client of HTTP/1.1: which request uses which, and who
waits for whom.
"""

from __future__ import annotations

import asyncio

import pytest

from claw_mediate.http.client import ConnectionPool, tls_context
from tests.mediate.http.http_peer import OK, Serve, asked, request

pytestmark = pytest.mark.requirement("connections:http")


async def test_what_is_sent_is_what_was_meant_and_nothing_else(
    serve: Serve, connections: ConnectionPool
) -> None:
    wire = await serve()
    await asked(connections, wire.url, b"{}", path="/chat?a=%2F")
    await asked(connections, f"{wire.url}/x?y=1", None)
    host = f"host: 127.0.0.1:{wire.port}\r\n".encode()
    assert (
        wire.heard[0]
        == b"POST /v1/chat?a=%2F HTTP/1.1\r\n" + host + b"x-a: 1\r\ncontent-length: 2\r\n\r\n{}"
    )
    assert wire.heard[1] == b"GET /v1/x?y=1 HTTP/1.1\r\n" + host + b"x-a: 1\r\n\r\n"
    await asked(connections, wire.url, path="/a%2F\udcff?é")
    assert wire.heard[2].startswith(b"POST /v1/a%2F%FF?%C3%A9 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "says",
    [
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 "
            b"OK\r\ncontent-length: 6\r\n\r\nforged"
        ),
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
)
async def test_what_comes_unasked_is_nobodys_answer(
    serve: Serve, connections: ConnectionPool, says: bytes
) -> None:
    wire = await serve(says=says)
    for _ in range(3):
        assert await asked(connections, wire.url) == (200, b"ok")
    assert wire.made == 3


async def test_an_answer_that_comes_before_its_question_is_not_taken_for_it(
    serve: Serve, connections: ConnectionPool
) -> None:
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


async def test_a_connection_that_the_peer_has_closed_is_not_used(
    serve: Serve, connections: ConnectionPool
) -> None:
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


async def test_a_connection_waits_for_so_long_and_no_longer(serve: Serve) -> None:
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


async def test_requests_side_by_side_have_connections_of_their_own(
    serve: Serve, connections: ConnectionPool
) -> None:
    wire = await serve()
    assert (
        await asyncio.gather(*(asked(connections, wire.url) for _ in range(30)))
        == [(200, b"ok")] * 30
    )
    made = wire.made
    assert (
        await asyncio.gather(*(asked(connections, wire.url) for _ in range(10)))
        == [(200, b"ok")] * 10
    )
    assert wire.made == made == 30


async def test_a_caller_that_is_cancelled_leaves_at_once(
    serve: Serve, connections: ConnectionPool
) -> None:
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


async def test_a_peer_that_sends_without_end_has_to_wait_for_its_reader(
    serve: Serve, connections: ConnectionPool
) -> None:
    async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            sent.append(65_536)
            draining = asyncio.ensure_future(writer.drain())
            await asyncio.wait([draining], timeout=0.1)
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
