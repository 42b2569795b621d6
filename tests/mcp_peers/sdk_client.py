"""A client of the official MCP SDK, version 1 or 2, for tests.

The SDK's own Python runs it; ``sdk.py`` beside it starts it.

It reads a JSON list of jobs from stdin, each with ``url`` and ``bearer``, or ``command`` and
``env`` for stdio, ``mode`` ("auto" or "legacy"; SDK 2 only), and ``calls``, a list of ``[name,
arguments]``. It does them all at once, each with a connection of its own. It writes a JSON list of
outcomes, each with ``server``, ``version``, ``tools``, and ``results``. A result is as the SDK has
it, or ``{"error": {"code", "message"}}``. An error of the connection is ``{"failure": text}``
instead of an outcome.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

try:
    from mcp.shared.exceptions import MCPError
except ImportError:
    from mcp.shared.exceptions import McpError as MCPError

SDK = int(version("mcp").partition(".")[0])
warnings.simplefilter("ignore")


def headers_of(job: dict[str, Any]) -> dict[str, str]:
    return ({"authorization": f"Bearer {job['bearer']}"} if job.get("bearer") else {}) | job.get(
        "headers", {}
    )


@asynccontextmanager
async def connect(job: dict[str, Any]) -> AsyncIterator[tuple[Any, dict[str, Any]]]:
    """Yield a client, and what the server says of itself."""
    if "command" in job:
        from mcp import ClientSession, StdioServerParameters
        from mcp.client.stdio import stdio_client

        command, *args = job["command"]
        server = StdioServerParameters(command=command, args=args, env=job["env"])
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            opening = await session.initialize()
            yield session, {"server": opening.serverInfo.name, "version": opening.protocolVersion}
        return
    if SDK == 1:
        from mcp import ClientSession
        from mcp.client.streamable_http import streamablehttp_client

        streams = streamablehttp_client(job["url"], headers=headers_of(job))
        async with streams as (read, write, _), ClientSession(read, write) as session:
            opening = await session.initialize()
            yield session, {"server": opening.serverInfo.name, "version": opening.protocolVersion}
        return
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async with httpx2.AsyncClient(headers=headers_of(job), timeout=60, trust_env=False) as http:
        transport = streamable_http_client(job["url"], http_client=http)
        async with Client(transport, mode=job.get("mode", "auto")) as client:
            yield client, {"server": client.server_info.name, "version": client.protocol_version}


async def run(job: dict[str, Any]) -> dict[str, Any]:
    async with connect(job) as (client, about):
        tools = (await client.list_tools()).tools
        results = [await call(client, name, arguments) for name, arguments in job.get("calls", [])]
        return about | {"tools": [dump(tool) for tool in tools], "results": results}


async def call(client: Any, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return dump(await client.call_tool(name, arguments))
    except MCPError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}


def dump(model: Any) -> dict[str, Any]:
    return json.loads(model.model_dump_json(by_alias=True, exclude_none=True))


def reason(error: BaseException) -> str:
    """Return the causes of an error, of which the SDK makes groups within groups."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(reason(each) for each in error.exceptions)
    return f"{type(error).__name__}: {error}"


async def outcome_of(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return await run(job)
    except Exception as error:  # noqa: BLE001 - the test reads it
        return {"failure": reason(error)}


async def outcomes_of(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return await asyncio.gather(*(outcome_of(job) for job in jobs))


def main() -> None:
    json.dump(asyncio.run(outcomes_of(json.load(sys.stdin))), sys.stdout)


if __name__ == "__main__":
    main()
