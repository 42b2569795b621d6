"""Discovery: one MCP server is asked who it is and which tools it has (docs/spec/mcp.md "Discovery").

Rules. Of both eras the handshake comes first, then the stateless one. A list of tools is bounded in pages, tools and bytes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from claw_contract.base import JsonObject
from claw_contract.redaction.redactor import Redactor
from claw_mcp import protocol
from claw_mcp.channels import MAX_BYTES, Channel, HttpChannel, HttpServer, Quotation, StdioChannel, StdioServer
from claw_mcp.protocol import RpcError

SECONDS = 30.0  # The time for everything
MAX_PAGES = 100
MAX_TOOLS = 1000
_MAX_CURSOR = 16 * 1024
_REFUSALS = {
    *(protocol.SERVER_ERROR, protocol.UNSUPPORTED_VERSION, protocol.INVALID_PARAMS, protocol.METHOD_NOT_FOUND),
    *(protocol.INVALID_REQUEST, protocol.HEADER_MISMATCH),
}
"""The errors that a server of the stateless era may give for ``initialize``."""


@dataclass(frozen=True)
class ServerListing:
    """The answer of a server: who it is, its protocol version, and its tools as it lists them."""

    server: JsonObject
    version: str
    tools: tuple[Any, ...]
    skipped_lines: int = 0


type Progress = Callable[[str], None]


async def discover(
    server: StdioServer | HttpServer, redactor: Redactor, progress: Progress, *, client: JsonObject, seconds: float = SECONDS
) -> ServerListing:
    """Return what the server lists. ``client`` has our name and version. Raise ``DiscoveryError``."""
    quotation = Quotation(redactor)
    opened = StdioChannel.open(server, quotation) if isinstance(server, StdioServer) else HttpChannel.open(server, quotation)
    stage = ["to start"]

    def report(step: str) -> None:
        stage[0] = step
        progress(step)

    async with opened as channel:
        try:
            async with asyncio.timeout(seconds):
                return await _Session(channel, client, report, quotation).listing()
        except TimeoutError:
            took = f"it took longer than {seconds:g} s {stage[0]}"
            raise await channel.failure(f"{took}: give it more time with --timeout, or see why it does not answer") from None


class _Session:
    """The questions of a discovery, in either era."""

    def __init__(self, channel: Channel, client: JsonObject, progress: Progress, quotation: Quotation) -> None:
        self._channel, self._client, self._progress, self._quotation = channel, client, progress, quotation
        self._size = 0
        self._server: Any = None

    async def listing(self) -> ServerListing:
        refusal = await self._start()
        try:
            tools = [tool async for tool in self._tools()]
        except RpcError as error:
            message, method = (str(refusal), "initialize") if refusal is not None else (str(error), "tools/list")
            raise await self._channel.failure(f"it refused '{method}': {self._quotation.text(message)}") from None
        server = self._server if isinstance(self._server, dict) else {}
        texts = {key: server[key] for key in ("name", "version") if isinstance(server.get(key), str)}
        return ServerListing(texts, self._channel.version, tuple(tools), self._channel.skipped_lines)

    async def _start(self) -> RpcError | None:
        """Do the handshake. Return the refusal of a server that may be of the stateless era."""
        self._progress("to answer 'initialize'")
        newest = protocol.HANDSHAKE_VERSIONS[0]
        params = {"protocolVersion": newest, "capabilities": {}, "clientInfo": self._client}
        try:
            result = await self._request("initialize", params)
        except RpcError as error:
            if error.code not in _REFUSALS:
                raise await self._channel.failure(f"it refused 'initialize': {self._quotation.text(str(error))}") from None
            self._channel.is_stateless, self._channel.version = True, protocol.STATELESS_VERSION
            return error
        version = result.get("protocolVersion")
        if version not in protocol.HANDSHAKE_VERSIONS:
            ours = ", ".join(protocol.VERSIONS)
            raise await self._channel.failure(
                f"it speaks version {self._quotation.text(str(version))} of MCP; known are {ours}"
            )
        self._channel.version, self._server = str(version), result.get("serverInfo")
        await self._channel.notify("notifications/initialized")
        return None

    async def _tools(self) -> AsyncIterator[Any]:
        cursor, seen, count, size = "", set[str](), 0, 0
        for page in range(1, MAX_PAGES + 1):
            self._progress(f"to list its tools, page {page}" if page > 1 else "to list its tools")
            result = await self._request("tools/list", {"cursor": cursor} if cursor else {})
            tools, cursor = await self._page(result)
            count, size = count + len(tools), size + self._size
            if count > MAX_TOOLS or size > MAX_BYTES:
                what = f"{MAX_TOOLS} tools" if count > MAX_TOOLS else f"{MAX_BYTES} bytes"
                raise await self._channel.failure(f"its list of tools has more than {what}: let the server offer fewer")
            for tool in tools:
                yield tool
            if not cursor:
                return
            if cursor in seen:
                raise await self._channel.failure(
                    f"page {page} of its tools leads back to an earlier one: a fault of the server"
                )
            seen.add(cursor)
        raise await self._channel.failure(f"its list of tools has more than {MAX_PAGES} pages: a fault of the server")

    async def _page(self, result: JsonObject) -> tuple[list[Any], str]:
        tools, cursor = result.get("tools"), result.get("nextCursor")
        if not isinstance(tools, list):
            raise await self._channel.failure("its answer to 'tools/list' has no list of tools: a fault of the server")
        if cursor is not None and not (isinstance(cursor, str) and len(cursor) <= _MAX_CURSOR):
            raise await self._channel.failure("the cursor of its tools is no text, or too long: a fault of the server")
        if self._channel.is_stateless and isinstance(meta := result.get("_meta"), dict):
            self._server = self._server or meta.get(protocol.SERVER_INFO_META)
        return tools, cursor or ""

    async def _request(self, method: str, params: JsonObject) -> JsonObject:
        """Return the result. Raise ``RpcError`` for an error response."""
        if self._channel.is_stateless:
            params = {**params, "_meta": protocol.stateless_meta(self._client)}
        answer = await self._channel.request(method, params)
        self._size = len(answer)
        result = protocol.read_object(answer)
        if not result or result.get("resultType", "complete") != "complete":
            raise await self._channel.failure(f"its answer to '{method}' is no complete result: a fault of the server")
        return result
