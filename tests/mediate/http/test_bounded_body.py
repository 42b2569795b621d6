"""Bodies of peers are read up to a bound, packed or not."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from claw_mediate.http.bounded_body import read_bounded
from claw_mediate.http.client import ConnectionPool
from tests.mediate.http.http_peer import Serve, request

pytestmark = pytest.mark.requirement("service:too-large")


def response(body: bytes, *headers: bytes) -> bytes:
    head = [b"HTTP/1.1 200 OK", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join([*head, b"", b""]) + body


async def read(
    connections: ConnectionPool, url: str, keep: int, max_bytes: int
) -> tuple[bytes, int]:
    async with connections.stream("GET", url, [], None) as answer:
        return await read_bounded(answer, keep, max_bytes)


@pytest.mark.parametrize("packed", [False, True])
async def test_the_first_bytes_are_kept_and_the_whole_size_is_told(
    serve: Serve, connections: ConnectionPool, packed: bool
) -> None:
    body = b"0123456789" * 1000
    said = response(gzip.compress(body), b"content-encoding: gzip") if packed else response(body)
    wire = await serve(says=said)
    assert await read(connections, wire.url, 15, 1 << 20) == (b"012345678901234", len(body))
    assert await read(connections, wire.url, 1 << 20, 1 << 20) == (body, len(body))


async def test_a_small_body_that_unpacks_to_a_large_one_is_not_read_to_its_end(
    serve: Serve, connections: ConnectionPool
) -> None:
    bomb = gzip.compress(b"\0" * (64 << 20))
    wire = await serve(says=response(bomb, b"content-encoding: gzip"))
    kept, size = await read(connections, wire.url, 10, 1 << 20)
    assert kept == b"\0" * 10
    assert 1 << 20 < size < 8 << 20


async def test_a_body_without_an_end_is_given_up_once_it_is_too_long(
    serve: Serve, connections: ConnectionPool
) -> None:
    async def talks_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 1000)
            await writer.drain()

    wire = await serve(talks_on)
    kept, size = await read(connections, wire.url, 5, 10_000)
    assert kept == b"xxxxx"
    assert size > 10_000
