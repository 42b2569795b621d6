"""Discovery: one MCP server is asked who it is and which tools it has
(docs/spec/mcp.md "Discovery").

Rules. All of it has one time. A server is ended, or its session, in every way out.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from claw_contract.base import JsonObject
from claw_contract.redaction.redactor import Redactor
from claw_mcp.channels import Channel, DiscoveryError, Quotation, StdioChannel, StdioServer
from claw_mcp.client_session import ClientSession
from claw_mcp.http_channel import HttpChannel, HttpServer
from claw_mcp.protocol import RpcError

SECONDS = 30.0  # The time for everything


@dataclass(frozen=True)
class ServerListing:
    """The answer of a server: who it is, its protocol version, and its tools as it lists them."""

    server: JsonObject
    version: str
    tools: tuple[Any, ...]
    skipped_lines: int = 0


type Progress = Callable[[str], None]


async def discover(
    server: StdioServer | HttpServer,
    redactor: Redactor,
    progress: Progress,
    *,
    client: JsonObject,
    seconds: float = SECONDS,
) -> ServerListing:
    """Return what the server lists. ``client`` has our name and version.

    Raise ``DiscoveryError``.
    """
    quotation = Quotation(redactor)
    opened = (
        StdioChannel.open(server, quotation)
        if isinstance(server, StdioServer)
        else HttpChannel.open(server, quotation)
    )
    stage = ["to start"]

    def report(step: str) -> None:
        stage[0] = step
        progress(step)

    async with opened as channel:
        try:
            async with asyncio.timeout(seconds):
                return await _Discovery(channel, client, report, quotation).listing()
        except TimeoutError:
            took = f"it took longer than {seconds:g} s {stage[0]}"
            raise await channel.failure(
                f"{took}: give it more time with --timeout, or see why it does not answer"
            ) from None


class _Discovery:
    """The questions of a discovery, in either era."""

    def __init__(
        self, channel: Channel, client: JsonObject, progress: Progress, quotation: Quotation
    ) -> None:
        self._channel, self._progress, self._quotation = channel, progress, quotation
        self._session = ClientSession(channel, client)

    async def listing(self) -> ServerListing:
        self._progress("to answer 'initialize'")
        try:
            await self._session.start()
        except RpcError as error:
            raise await self._refusal("initialize", error) from None
        try:
            tools = [tool async for tool in self._session.tools(self._report_page)]
        except RpcError as error:
            refusal = self._session.refusal
            raise await self._refusal(
                "initialize" if refusal else "tools/list", refusal or error
            ) from None
        server = self._session.server if isinstance(self._session.server, dict) else {}
        texts = {
            key: server[key] for key in ("name", "version") if isinstance(server.get(key), str)
        }
        return ServerListing(
            texts, self._channel.version, tuple(tools), self._channel.skipped_lines
        )

    def _report_page(self, page: int) -> None:
        self._progress(f"to list its tools, page {page}" if page > 1 else "to list its tools")

    async def _refusal(self, method: str, error: RpcError) -> DiscoveryError:
        return await self._channel.failure(
            f"it refused '{method}': {self._quotation.text(str(error))}"
        )
