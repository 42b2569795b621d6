"""A provider that fails on the wire: a real socket, whose script says byte for byte what it does to each request.

An HTTP server can't be told to break off in the middle of its headers; this one does what it is told, and nothing else.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

type Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What is done to one request that has been read."""

_CHUNK = b"10000\r\n" + b" " * 65_536 + b"\r\n"


def head(status: int = 200, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", "connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answers(status: int, body: bytes, content_type: str = "application/json", *headers: str) -> Act:
    """A whole response."""
    return bytes_only(
        head(status, f"content-type: {content_type}", f"content-length: {len(body)}", *headers) + body * (status != 204)
    )


def bytes_only(data: bytes) -> Act:
    """These bytes, then the end of the connection."""

    async def act(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return act


def resets_after(data: bytes) -> Act:
    """These bytes, then a reset of the connection."""

    async def act(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    return act


def hangs_after(data: bytes) -> Act:
    """These bytes, then nothing for as long as the client stays."""

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await reader.read()

    return act


def repeats_for_ever(start: bytes, more: bytes = _CHUNK) -> Act:
    """A response without an end."""

    async def act(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(more)
            await writer.drain()

    return act


def held(act: Act, go: asyncio.Event) -> Act:
    """Only when the test says so."""

    async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await act(reader, writer)

    return waits


@dataclass
class Peer:
    """A server that notes what it receives, and does what its script says; the last act is done for ever."""

    script: list[Act] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    port: int = 0
    prefix: str = ""
    """Of the paths that are meant for it; other processes knock at ports that they take for theirs."""
    _server: asyncio.Server | None = None
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.prefix}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """From now on nobody listens at the address."""
        assert self._server is not None
        self._server.close()

    async def stop(self) -> None:
        self.refuse()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            received = await reader.readuntil(b"\r\n\r\n")
            lengths = [line[15:] for line in received.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            received += await reader.readexactly(int(lengths[0])) if lengths else b""
            if f" {self.prefix}/".encode() not in received.partition(b"\r\n")[0]:
                return
            self.received.append(received)
            act = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            await act(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client had enough, or the test is over
        finally:
            self._serving.discard(task)
            writer.close()
