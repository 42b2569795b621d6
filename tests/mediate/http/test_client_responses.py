"""Responses that our own client of HTTP/1.1 reads, whole and broken ones."""

from __future__ import annotations

import asyncio
import gzip

import httpx2
import pytest

from claw_mediate.http.client import ConnectionPool
from tests.mediate.http.http_peer import OK, Serve, asked, request

pytestmark = pytest.mark.requirement("connections:http")


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


async def test_a_response_without_a_length_ends_with_its_connection(
    serve: Serve, connections: ConnectionPool
) -> None:
    async def until_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nok")
        writer.close()

    wire = await serve(until_close)
    for _ in range(2):
        assert await asked(connections, wire.url) == (200, b"ok")
    assert wire.made == 2


async def test_a_peer_may_answer_before_it_has_read_everything(
    serve: Serve, connections: ConnectionPool
) -> None:
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


async def test_a_connection_that_is_reset_is_no_end_of_a_body(
    serve: Serve, connections: ConnectionPool
) -> None:
    async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf of it")
        await writer.drain()
        await read.wait()
        writer.get_extra_info("socket").setsockopt(
            1, 13, b"\1\0\0\0\0\0\0\0"
        )  # SO_LINGER with no time: a reset
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
