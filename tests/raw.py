"""A provider that fails on the wire: a real socket with a script of bytes for each request.

An ordinary HTTP server can't break off in the middle of its headers; this one does exactly what its
script says.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from claw_mediate.providers.key_answers import USER_AGENT

type Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""The treatment of one request that has been read."""

_CHUNK = b"10000\r\n" + b" " * 65_536 + b"\r\n"


def head(status: int = 200, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", "connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answers(status: int, body: bytes, content_type: str = "application/json", *headers: str) -> Act:
    """Send a whole response."""
    return bytes_only(
        head(status, f"content-type: {content_type}", f"content-length: {len(body)}", *headers)
        + body * (status != 204)
    )


def bytes_only(data: bytes) -> Act:
    """Send these bytes, then end the connection."""

    async def act(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return act


def resets_after(data: bytes) -> Act:
    """Send these bytes, then reset the connection."""

    async def act(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        writer.transport.abort()

    return act


def hangs_after(data: bytes) -> Act:
    """Send these bytes, then nothing for as long as the client stays."""

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await reader.read()

    return act


def repeats_for_ever(start: bytes, more: bytes = _CHUNK) -> Act:
    """Send a response without an end."""

    async def act(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(more)
            await writer.drain()

    return act


def held(act: Act, go: asyncio.Event) -> Act:
    """Wait for the event before this act."""

    async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await act(reader, writer)

    return waits


@dataclass
class Peer:
    """A server that records its requests and follows its script; the last act is repeated."""

    script: list[Act] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    questions: list[bytes] = field(default_factory=list)
    """The proxy's own questions about keys, which get no answer and are not among
    the received requests.
    """
    port: int = 0
    prefix: str = ""
    """The prefix of its paths; other requests come from processes that take this
    port for theirs.
    """
    _server: asyncio.Server | None = None
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.prefix}"

    async def start(self) -> None:
        listener = socket.create_server(
            ("127.0.0.1", self.port)
        )  # asyncio would look up the address in a new thread
        self.port = listener.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, sock=listener)

    def refuse(self) -> None:
        """Close the listener, so that connections are refused."""
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
            lengths = [
                line[15:]
                for line in received.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            ]
            received += await reader.readexactly(int(lengths[0])) if lengths else b""
            if f" {self.prefix}/".encode() not in received.partition(b"\r\n")[0]:
                return
            if USER_AGENT.encode() in received:
                self.questions.append(received)
                return
            self.received.append(received)
            act = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            await act(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has left, or the test is over
        finally:
            self._serving.discard(task)
            writer.close()
