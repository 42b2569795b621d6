"""MCP sessions that another worker has.

A session lives in one process, and its requests may reach any (decision 0035). Its id begins with
the number of its worker. A request for another's session goes there as it came, with the agent's
token, since that worker's listener is an entrance like this one; the answer goes back as it comes.
If that worker has died, another has its place and listener, and answers 404, as a proxy that was
restarted does.
"""

import re
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import httpx2

from claw_mcp.protocol import SESSION_ID, SSE_TYPE
from claw_mediate.core.http import Request, RunnerResponse, refuse
from claw_mediate.http.client import ConnectionPool, Response
from claw_mediate.http.headers import end_to_end, raw_headers
from claw_mediate.workers import worker as workers

_IDLE_SECONDS = 5.0
_NUMBERED = re.compile("([1-9][0-9]{0,3})-[0-9a-f]+")


class SessionRouter:
    """The way to the worker that has a session."""

    def __init__(self) -> None:
        """Route between the workers of this proxy, if it has any."""
        self.prefix = ""
        self._others: dict[int, int] = {}  # The port of each other worker, by its number
        worker = workers.current()
        if worker is not None:
            self.prefix = f"{worker.number}-"
            for number, port in worker.place.ports.items():
                if number != worker.number:
                    self._others[number] = port

        self._pool = ConnectionPool(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), idle=_IDLE_SECONDS)

    def find(self, request: Request) -> int | None:
        """Return the port of the worker that has the session; None if this one decides."""
        if not self._others:
            return None

        ids = request.header(SESSION_ID)
        match = _NUMBERED.fullmatch(ids[0]) if len(ids) == 1 else None
        return self._others.get(int(match[1])) if match is not None else None

    async def ask(self, port: int, request: Request) -> RunnerResponse:
        """Send a request on, and return the answer as it comes.

        Cancelled when the client leaves.
        """
        stack = AsyncExitStack()
        headers = raw_headers(end_to_end(request.headers))
        worker = f"http://127.0.0.1:{port}"
        stream = self._pool.stream(
            request.method, worker, headers, request.body or None, path=request.path
        )
        try:
            response = await stack.enter_async_context(stream)
        except httpx2.HTTPError:
            message = "the worker that has this session ended; ask again"
            return refuse(request.path, 502, "worker_died", message)

        # The client may leave before it reads a chunk. Closing a generator that has not begun would
        # not close the stack, so it is brought to its first ``yield`` here.
        chunks = _chunks(response, stack)
        await anext(chunks)

        is_stream = response.headers.get("content-type", "").startswith(SSE_TYPE)
        return RunnerResponse(
            response.status_code,
            end_to_end(response.headers.multi_items()),
            chunks,
            streaming=is_stream,
        )

    async def close(self) -> None:
        await self._pool.close()


async def _chunks(response: Response, stack: AsyncExitStack) -> AsyncGenerator[bytes]:
    """Yield b"", then the chunks of the body; close the stack at the end, or when closed."""
    async with stack:
        yield b""
        async for chunk in response.aiter_raw():
            yield chunk
