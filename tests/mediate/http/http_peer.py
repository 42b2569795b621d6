"""Peers of our own client of HTTP/1.1 that misbehave in any way: scripted byte by
byte, on real sockets.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from claw_mediate.http.bounded_body import read_bounded
from claw_mediate.http.client import ConnectionPool

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
type Serve = Callable[..., Awaitable[Wire]]
type ServerScript = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


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


@asynccontextmanager
async def serving() -> AsyncIterator[Serve]:
    """Yield the function that starts such a peer."""
    servers: list[asyncio.Server] = []

    async def start(
        play: ServerScript | None = None, *, says: bytes = OK, secure: ssl.SSLContext | None = None
    ) -> Wire:
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


async def request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        (line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")),
        b"0",
    )
    return head + await reader.readexactly(int(length))


async def asked(
    connections: ConnectionPool, url: str, body: bytes | None = b"{}", path: str = ""
) -> tuple[int, bytes]:
    async with connections.stream(
        "GET" if body is None else "POST", url, [(b"x-a", b"1")], body, path=path
    ) as response:
        return response.status_code, (await read_bounded(response, 1 << 24, 1 << 24))[0]
