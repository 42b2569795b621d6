"""A server of MCP in this process, with callers that show a token."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from claw_mcp import listening
from claw_mcp.asgi import McpApp
from claw_mcp.server import StreamableHttpServer

TOKEN = "token-of-the-proxy-0123456789"
BEARER = {"authorization": f"Bearer {TOKEN}"}
OTHER = {"authorization": "Bearer token-of-another-0123456789"}
CALLERS = {BEARER["authorization"]: "a", OTHER["authorization"]: "b"}


class Echo:
    """A ``Backend`` with long answers."""

    async def describe(self, _request: Any) -> dict[str, Any]:
        return {"capabilities": {}, "serverInfo": {"name": "echo", "version": "1"}}

    async def answer(self, _request: Any) -> bytes:
        return b'{"text":"%b"}' % (b"x" * (8 << 20))

    def end_session(self, _session: Any) -> None:
        """Keep nothing."""


def is_local(name: str) -> bool:
    return "evil" not in name


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[int]:
    """The port of a server in this process."""
    server = StreamableHttpServer(Echo(), is_allowed_host=is_local, is_allowed_origin=is_local)
    app = McpApp(server, "/mcp", CALLERS.get, lambda: {"ok": True, "part": "fine"})
    ending = asyncio.Event()
    listener = listening.listen("127.0.0.1", 0)
    serving = asyncio.create_task(listening.serve(app, listener, wait(ending)))
    yield listener.getsockname()[1]
    ending.set()
    await serving


async def wait(event: asyncio.Event) -> None:
    await event.wait()
