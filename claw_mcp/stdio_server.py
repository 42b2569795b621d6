"""One client of a streamable HTTP server, over standard input and output (docs/spec/mcp.md).

Rules. Nothing else in the process can use the wire: what reads standard input finds its end, and
what writes to standard output writes to standard error. A line is one message. When the input ends,
the client has left: what still runs then has two seconds.
"""

import asyncio
import contextlib
import logging
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from claw_contract.sse import SseReader
from claw_mcp.protocol import (
    INVALID_REQUEST,
    JSON_TYPE,
    METHOD,
    NAME,
    NAMED_METHODS,
    PROTOCOL_VERSION,
    SESSION_ID,
    SSE_TYPE,
    VERSION_META,
    MessageError,
    RpcError,
    RpcMessage,
    read_messages,
    read_object,
    write_error,
    write_header_value,
)
from claw_mcp.server import HttpRequest, StreamableHttpServer
from claw_mcp.stateless import members

_CHUNK: Final = 1 << 16
_MAX_EVENT = 1 << 30  # Our own answers
_DRAIN_SECONDS = 2.0
_HEADERS: Final = [
    ("host", "localhost"),
    ("accept", f"{JSON_TYPE}, {SSE_TYPE}"),
    ("content-type", JSON_TYPE),
]
_log = logging.getLogger(__name__)


class Wire:
    """Standard input and output, as they were when the process started."""

    def __init__(self) -> None:
        """Take both; what else uses them has ``/dev/null`` and standard error."""
        self._input, self._output = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        os.close(null)
        self._outgoing: queue.SimpleQueue[tuple[bytes, Callable[[OSError | None], Any]]] = (
            queue.SimpleQueue()
        )
        # A file may have no events, so one thread reads and another writes. They are daemons, since
        # either may block for ever.
        threading.Thread(target=self._write_all, name="stdout", daemon=True).start()

    async def lines(self, max_bytes: int) -> AsyncIterator[bytes | None]:
        """Yield each line without its end; None for one of more than ``max_bytes``.

        A line that is too long is read to its end, and not held.
        """
        line = bytearray()
        is_skipped = False
        async for chunk in self._chunks():
            first, *more = chunk.split(b"\n")
            line += first
            for part in more:
                yield None if is_skipped or len(line) > max_bytes else bytes(line)
                line = bytearray(part)
                is_skipped = False
            if len(line) > max_bytes:
                line = bytearray()
                is_skipped = True

    async def write(self, message: bytes) -> None:
        """Write a message, and wait until it is written.

        Raise ``OSError`` if nobody reads any more.
        """
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()

        def resolve(error: OSError | None) -> None:
            if not written.done():
                written.set_result(None) if error is None else written.set_exception(error)

        self._outgoing.put(
            (message + b"\n", lambda error: loop.call_soon_threadsafe(resolve, error))
        )
        await written

    def _write_all(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended
            while True:
                message, resolve = self._outgoing.get()
                rest = memoryview(message)
                try:
                    while rest:
                        rest = rest[os.write(self._output, rest) :]
                except OSError as error:
                    resolve(error)
                else:
                    resolve(None)

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Yield the input, until it ends or can't be read any more."""
        loop = asyncio.get_running_loop()
        chunks = asyncio.Queue[bytes](4)

        def read() -> None:
            with contextlib.suppress(RuntimeError):  # The loop has ended
                while True:
                    try:
                        chunk = os.read(self._input, _CHUNK)
                    except OSError:
                        chunk = b""
                    asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
                    if not chunk:
                        return

        threading.Thread(target=read, name="stdin", daemon=True).start()
        while chunk := await chunks.get():
            yield chunk


class StdioServer:
    """The client of the HTTP server: each line becomes a request, and each answer becomes lines."""

    def __init__(self, server: StreamableHttpServer, principal: str, wire: Wire) -> None:
        """Speak to ``server`` as ``principal``."""
        self._server = server
        self._principal = principal
        self._wire = wire
        self._session = ""
        self._running: dict[asyncio.Task[None], bytes] = {}  # With the ids of requests

    async def run(self) -> None:
        """Serve until the input ends, or nobody reads the output any more."""
        try:
            with contextlib.suppress(BrokenPipeError):
                await self._take_all()
            if self._running:
                await asyncio.wait(self._running, timeout=_DRAIN_SECONDS)
        finally:
            for task in self._running:
                task.cancel()

    async def _take_all(self) -> None:
        async for line in self._wire.lines(self._server.max_body):
            if line is None or line.strip():
                await self._take(line)

    async def _take(self, line: bytes | None) -> None:
        """Answer a line, or begin to; None is a line that was too long."""
        try:
            (message,) = read_messages(line or b"")  # an empty one is refused, like any bad line
        except (MessageError, ValueError):
            why = f"a message is one line of JSON-RPC, of at most {self._server.max_body} bytes"
            await self._wire.write(write_error(b"", RpcError(INVALID_REQUEST, why)))
            return
        assert line is not None

        request = HttpRequest("POST", "/", [*_HEADERS, *self._headers(message)], line)
        # A request runs beside the next lines. They wait for ``initialize``, whose session they
        # need, and for notifications.
        if message.is_request and message.method != "initialize":
            self._start(self._exchange(request), bytes(message.id))
            return

        # Over HTTP, a notification or a response may be refused; here nothing answers it.
        is_answered = not (message.is_notification or message.is_response)
        await self._exchange(request, is_answered=is_answered)

        if message.method == "notifications/initialized":
            listening = HttpRequest("GET", "/", [*_HEADERS, (SESSION_ID, self._session)])
            self._start(self._exchange(listening))
        elif message.method == "notifications/cancelled":
            self._cancel(bytes(members(message.params).get("requestId", b"")))

    def _headers(self, message: RpcMessage) -> list[tuple[str, str]]:
        """Return the headers that this message would have over HTTP."""
        params: Any = read_object(message.params)
        meta = params.get("_meta")
        version = meta.get(VERSION_META) if isinstance(meta, dict) else None
        if not isinstance(version, str):
            has_session = bool(self._session) and message.method != "initialize"
            return [(SESSION_ID, self._session)] if has_session else []

        headers = [(PROTOCOL_VERSION, version), (METHOD, message.method or "")]
        name = params.get(NAMED_METHODS.get(message.method or "", ""))
        if isinstance(name, str):
            headers.append((NAME, write_header_value(name)))
        return headers

    def _start(self, exchange: Coroutine[Any, Any, None], request_id: bytes = b"") -> None:
        # Started at once, so that the server knows of it before it reads the next line.
        task = asyncio.Task(exchange, loop=asyncio.get_running_loop(), eager_start=True)
        if not task.done():
            self._running[task] = request_id
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, OSError):
            _log.error("a message can't be answered", exc_info=error)

    def _cancel(self, request_id: bytes) -> None:
        """Cancel a request of the stateless era. In a session, the server itself cancels it."""
        for task, running in list(self._running.items()):
            if running and running == request_id and not self._session:
                task.cancel()

    async def _exchange(self, request: HttpRequest, *, is_answered: bool = True) -> None:
        """Send a request, and write all that answers it."""
        response = await self._server.handle(request, self._principal)
        headers = dict(response.headers)
        reader = SseReader(_MAX_EVENT)
        body = b""
        async with contextlib.aclosing(response.chunks) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                if headers.get("content-type") != SSE_TYPE:
                    body += chunk
                    continue
                for event in reader.feed(chunk):
                    await self._wire.write(event.data)

        self._session = headers.get(SESSION_ID, self._session)
        if body and is_answered:
            await self._wire.write(body)
