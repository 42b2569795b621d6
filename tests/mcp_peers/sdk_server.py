"""A server of the official MCP SDK, version 1 or 2, for tests.

The SDK's own Python runs it; ``sdk.py`` beside it starts it.

Each call that it executes is a line of ``calls.jsonl`` in its folder, and each HTTP request a line
of ``requests.jsonl``.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import warnings
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from pydantic import BaseModel, Field

try:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver import Image as Picture

    IS_SDK_2 = True
except ModuleNotFoundError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer
    from mcp.server.fastmcp import Image as Picture

    IS_SDK_2 = False

from mcp.types import ToolAnnotations

MODERN = "2026"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
READS = ToolAnnotations(readOnlyHint=True)
# SDK 2 warns of what the newest revision of the protocol has no more.
warnings.simplefilter("ignore")


class Answer(BaseModel):
    """The form with which ``asks_back`` asks the user."""

    word: str


class Position(BaseModel):
    """The result of ``structured``."""

    symbol: str
    shares: int


def build(home: Path, **options: Any) -> MCPServer:
    """Return the server with all its tools."""
    server = MCPServer("sdk-server", "Tools for tests.", log_level="ERROR", **options)
    for add in (_add_simple, _add_slow, _add_asking):
        add(server, home)
    return server


def note(home: Path, file: str, **entry: Any) -> None:
    """Append one line to a file of the server's folder."""
    with (home / file).open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(entry) + "\n")


def _add_simple(server: MCPServer, home: Path) -> None:
    @server.tool(annotations=READS)
    def echo(text: str) -> str:
        """Return the text."""
        note(home, "calls.jsonl", tool="echo", text=text)
        return text

    @server.tool(annotations=READS, structured_output=False)
    def add(a: int, b: int) -> str:
        """Return the sum of two integers of any size."""
        note(home, "calls.jsonl", tool="add", a=a, b=b)
        return str(a + b)

    @server.tool()
    def write(text: str) -> str:
        """Keep the text, and return the number of texts that are kept."""
        note(home, "calls.jsonl", tool="write", text=text)
        return str((home / "calls.jsonl").read_text(encoding="utf-8").count('"tool": "write"'))

    @server.tool(annotations=READS)
    def image() -> Picture:
        """Return an image of one pixel."""
        note(home, "calls.jsonl", tool="image")
        return Picture(data=PNG, format="png")

    @server.tool(annotations=READS)
    def structured(symbol: str, shares: int = 3) -> Position:
        """Return an object that an output schema describes."""
        note(home, "calls.jsonl", tool="structured", symbol=symbol)
        return Position(symbol=symbol, shares=shares)

    @server.tool(annotations=READS)
    def big(size: int) -> str:
        """Return a text of so many characters."""
        note(home, "calls.jsonl", tool="big", size=size)
        return "x" * size

    @server.tool(annotations=READS)
    def routed(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        """Return the region, which the newest protocol also wants in the header
        Mcp-Param-Region.
        """
        note(home, "calls.jsonl", tool="routed", region=region)
        return region

    @server.tool(annotations=READS)
    def fails(message: str = "it failed") -> str:
        """Fail with the message."""
        note(home, "calls.jsonl", tool="fails", message=message)
        raise _tool_error()(message)

    @server.tool()
    def dies() -> str:
        """End the server's process before there is an answer."""
        note(home, "calls.jsonl", tool="dies")
        os._exit(1)


def _add_slow(server: MCPServer, home: Path) -> None:
    @server.tool()
    async def slow(seconds: float, context: Context, steps: int = 3) -> str:
        """Wait, with progress, then note that the call is done; a cancelled call is noted, too."""
        note(home, "calls.jsonl", tool="slow", seconds=seconds)
        try:
            for step in range(steps):
                await context.report_progress(step, steps)
                await asyncio.sleep(seconds / steps)
        except asyncio.CancelledError:
            note(home, "calls.jsonl", tool="slow", cancelled=True)
            raise
        note(home, "calls.jsonl", tool="slow", done=True)
        return "done"


def _add_asking(server: MCPServer, home: Path) -> None:
    @server.tool(structured_output=False)
    async def asks_back(what: str, context: Context) -> Any:
        """Ask the client for ``ping``, ``roots`` or ``elicitation``, and return
        what it says within a second.
        """
        note(home, "calls.jsonl", tool="asks_back", what=what)
        if IS_SDK_2 and context.protocol_version >= MODERN:
            return _input_required()
        try:
            async with asyncio.timeout(1):  # in the mode "json" the SDK sends some requests nowhere
                return await _ask(what, context)
        except Exception as error:  # noqa: BLE001 - what the client refuses is the answer
            return f"refused {error!r}"


async def _ask(what: str, context: Context) -> str:
    if what == "ping":
        return f"pong {(await context.session.send_ping()).model_dump_json(exclude_none=True)}"
    if what == "roots":
        return f"roots {len((await context.session.list_roots()).roots)}"
    return f"user {(await context.elicit('A word?', Answer)).action}"


def _input_required() -> Any:
    """Return the result of a call that needs an answer of the user first, in the stateless era."""
    from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

    schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    params = ElicitRequestFormParams(message="A word?", requested_schema=schema)
    return InputRequiredResult(input_requests={"word": ElicitRequest(params=params)})


def _tool_error() -> type[Exception]:
    if IS_SDK_2:
        from mcp.server.mcpserver.exceptions import ToolError
    else:
        from mcp.server.fastmcp.exceptions import ToolError
    return ToolError


class Recorder:
    """ASGI middleware that notes each request, and answers 401 to one without the
    bearer that is asked for.
    """

    def __init__(self, app: Any, home: Path, bearer: str) -> None:
        self._app, self._home, self._bearer = app, home, bearer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        body = bytearray()

        async def received() -> Any:
            message = await receive()
            body.extend(message.get("body", b""))
            if message["type"] == "http.request" and not message.get("more_body"):
                note(
                    self._home,
                    "requests.jsonl",
                    method=scope["method"],
                    headers=headers,
                    body=_read(bytes(body)),
                )
            return message

        if scope["method"] != "POST":
            note(self._home, "requests.jsonl", method=scope["method"], headers=headers, body=None)
            received = receive
        if self._bearer and headers.get("authorization") != f"Bearer {self._bearer}":
            await send(
                {
                    "type": "http.response.start",
                    "status": 401,
                    "headers": [(b"content-length", b"0")],
                }
            )
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, received, send)


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("latin-1")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["json", "sse", "stateless", "stdio"])
    parser.add_argument("home", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--bearer", default="")
    options = parser.parse_args()
    if options.mode == "stdio":
        build(options.home).run("stdio")
        return
    how = {"json_response": options.mode != "sse", "stateless_http": options.mode == "stateless"}
    app = (
        build(options.home).streamable_http_app(**how)
        if IS_SDK_2
        else build(options.home, **how).streamable_http_app()
    )
    recorded = Recorder(app, options.home, options.bearer)
    uvicorn.run(
        recorded,
        host="127.0.0.1",
        port=options.port,
        log_level="error",
        timeout_graceful_shutdown=1,
    )


if __name__ == "__main__":
    main()
