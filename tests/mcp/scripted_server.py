"""An MCP server at the level of bytes: honest unless a script says otherwise.

It runs in a thread of the test's process.

``scripts`` holds by method what answers the next messages; afterwards the honest answer is given
again.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http.client import responses
from typing import Any

STATELESS = "2026-07-28"
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
SERVER_INFO = {"name": "scripted", "version": "1.2"}
ECHO = {
    "name": "echo",
    "description": "Say it again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}

type Script = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Exchange:
    """One request to the server, and the way to answer it."""

    server: ScriptedServer
    method: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def message(self) -> Any:
        return json.loads(self.body) if self.body else {}

    @property
    def rpc(self) -> str:
        """The JSON-RPC method; empty for a response."""
        return self.message.get("method", "") if self.method == "POST" else self.method

    @property
    def session(self) -> str:
        return self.headers.get("mcp-session-id", "")

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def respond(
        self, status: int, body: bytes = b"", *headers: str, content_type: str = "application/json"
    ) -> None:
        lines = [
            f"HTTP/1.1 {status} {responses.get(status, 'Odd')}",
            f"content-length: {len(body)}",
            *headers,
        ]
        lines += [f"content-type: {content_type}"] if body else []
        await self.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def reply(self, message: dict[str, Any], *headers: str, status: int = 200) -> None:
        """A message as JSON, or as the only event of a stream."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        if not self.server.streams or status != 200:
            await self.respond(status, body, *headers)
        else:
            await self.begin_stream(*headers)
            await self.event(body)
            await self.end_stream()

    async def result(self, result: Any, *headers: str) -> None:
        if self.server.is_stateless and isinstance(result, dict):
            meta = {"io.modelcontextprotocol/serverInfo": SERVER_INFO}
            result = {"resultType": "complete", "_meta": meta, **result}
        await self.reply({"id": self.message["id"], "result": result}, *headers)

    async def error(self, code: int, message: str, data: Any = None, status: int = 200) -> None:
        error = {"code": code, "message": message, **({} if data is None else {"data": data})}
        await self.reply({"id": self.message.get("id"), "error": error}, status=status)

    async def begin_stream(self, *headers: str) -> None:
        lines = [
            "HTTP/1.1 200 OK",
            "content-type: text/event-stream",
            "transfer-encoding: chunked",
            *headers,
            "",
            "",
        ]
        await self.write("\r\n".join(lines).encode())

    async def event(self, message: bytes | dict[str, Any]) -> None:
        body = (
            message
            if isinstance(message, bytes)
            else json.dumps({"jsonrpc": "2.0", **message}).encode()
        )
        await self.chunk(b"event: message\ndata: " + body + b"\n\n")

    async def chunk(self, data: bytes) -> None:
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def end_stream(self) -> None:
        await self.write(b"0\r\n\r\n")

    def reset(self) -> None:
        """Break the connection."""
        self.writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.writer.transport.abort()

    async def until_left(self) -> None:
        """Wait until the client closes the connection."""
        while await self.reader.read(65536):
            pass


@dataclass
class ScriptedServer:
    """The server. ``versions``: those that it speaks, the preferred one first."""

    versions: tuple[str, ...] = HANDSHAKE
    tools: list[dict[str, Any]] = field(default_factory=lambda: [ECHO])
    streams: bool = False
    has_sessions: bool = True
    scripts: dict[str, list[Script]] = field(default_factory=dict)
    received: list[Exchange] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a client left while its answer was being made."""
    port: int = 0
    connections: int = 0
    _count: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_stateless(self) -> bool:
        return self.versions[0] == STATELESS

    def start(self) -> ScriptedServer:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    def says(self, method: str, *scripts: Script) -> None:
        self.scripts.setdefault(method, []).extend(scripts)

    def of(self, method: str) -> list[Exchange]:
        """The messages of that method, so far."""
        return [exchange for exchange in self.received if exchange.rpc == method]

    def forget_sessions(self) -> None:
        """As after a restart."""
        self.sessions.clear()

    async def _run(self, ready: threading.Event) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 24)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._over.wait()
        for listener in server.sockets:
            self._loop.remove_reader(listener.fileno())  # Accept no more, while the server is open
        await asyncio.sleep(
            0
            # An accepted connection joins the server: of a closed one it would fail, and leave its
            # socket
        )
        server.close()
        await self._close_connections()

    async def _close_connections(self) -> None:
        """Let connections that were just accepted get their tasks, which then close them."""
        while accepting := {task for task in asyncio.all_tasks() if not _is_serving(task)} - {
            asyncio.current_task()
        }:
            await asyncio.wait(accepting)  # type: ignore[type-var]
        await asyncio.sleep(0)  # A task that is cancelled before it has begun closes nothing
        serving = [task for task in asyncio.all_tasks() if _is_serving(task)]
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)  # An aborted transport closes its socket in the next turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (exchange := await self._read(reader, writer)) is not None:
                self.received.append(exchange)
                await self._answer(exchange)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            writer.transport.abort()

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Exchange | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode().split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Exchange(self, first.split(" ")[0], headers, body, reader, writer)

    async def _answer(self, exchange: Exchange) -> None:
        scripts = self.scripts.get(exchange.rpc)
        if scripts:
            await scripts.pop(0)(exchange)
        elif (
            not self.is_stateless
            and self.has_sessions
            and exchange.rpc != "initialize"
            and exchange.session not in self.sessions
        ):
            status = 404 if exchange.session else 400
            error = {
                "jsonrpc": "2.0",
                "id": None,
                "error": {"code": -32600, "message": "Session not found"},
            }
            await exchange.respond(status, json.dumps(error).encode())
        else:
            await self._answer_honestly(exchange)

    async def _answer_honestly(self, exchange: Exchange) -> None:
        match exchange.rpc:
            case "DELETE":
                self.sessions.discard(exchange.session)
                await exchange.respond(200)
            case "initialize":
                await self._initialize(exchange)
            case "tools/list":
                await exchange.result({"tools": self.tools})
            case "tools/call":
                arguments = exchange.message["params"]["arguments"]
                await exchange.result(
                    {"content": [{"type": "text", "text": f"you said {json.dumps(arguments)}"}]}
                )
            case _:
                await exchange.respond(202)

    async def _initialize(self, exchange: Exchange) -> None:
        if self.is_stateless:
            await exchange.error(
                -32022, "Unsupported protocol version", {"supported": [STATELESS]}, status=400
            )
            return
        asked = exchange.message["params"]["protocolVersion"]
        version = asked if asked in self.versions else self.versions[0]
        headers = []
        if self.has_sessions:
            self._count += 1
            session = f"session-{self._count}-of-the-server"
            self.sessions.add(session)
            headers = [f"mcp-session-id: {session}"]
        result = {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": SERVER_INFO,
        }
        await exchange.result(result, *headers)


def _is_serving(task: asyncio.Task[Any]) -> bool:
    return getattr(task.get_coro(), "__name__", "") == "_serve"


def says(
    body: bytes, status: int = 200, content_type: str = "application/json", *headers: str
) -> Script:
    async def say(exchange: Exchange) -> None:
        await exchange.respond(status, body, *headers, content_type=content_type)

    return say


def streams(*chunks: bytes, ends: bool = True) -> Script:
    async def say(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for chunk in chunks:
            await exchange.chunk(chunk.replace(b"ID", str(exchange.message["id"]).encode()))
        if ends:
            await exchange.end_stream()
        else:
            await exchange.until_left()

    return say
