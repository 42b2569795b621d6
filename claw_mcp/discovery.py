"""Discovery: one MCP server is asked who it is and which tools it has.

Specification: docs/spec/mcp.md "Discovery".

Rules. One time limit covers all of it. The server, or its session, is ended in every way out.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from claw_contract.base import JsonObject
from claw_contract.redaction.redactor import Redactor
from claw_mcp.channels import Channel, DiscoveryError, Quotation, ServerCommand, StdioChannel
from claw_mcp.client_session import ClientSession
from claw_mcp.http_channel import HttpChannel, HttpServer, StatusError
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
    server: ServerCommand | HttpServer,
    redactor: Redactor,
    progress: Progress,
    *,
    client: JsonObject,
    seconds: float = SECONDS,
) -> ServerListing:
    """Return what the server lists. ``client`` has our name and version.

    ``progress`` is called with what is waited for, such as "to list its tools". Raise
    ``DiscoveryError``.
    """
    quotation = Quotation(redactor)
    if isinstance(server, ServerCommand):
        opened = StdioChannel.open(server, quotation)
    else:
        opened = HttpChannel.open(server, quotation)
    current_step = "to start"

    def report(step: str) -> None:
        nonlocal current_step
        current_step = step
        progress(step)

    async with opened as channel:
        try:
            async with asyncio.timeout(seconds):
                return await _Discovery(channel, client, report).list_server()
        except TimeoutError:
            took = f"it took longer than {seconds:g} s {current_step}"
            raise await channel.failure(
                f"{took}: give it more time with --timeout, or see why it does not answer"
            ) from None


class _Discovery:
    """The questions of a discovery, in either era."""

    def __init__(self, channel: Channel, client: JsonObject, progress: Progress) -> None:
        self._channel = channel
        self._progress = progress
        self._session = ClientSession(channel, client)

    async def list_server(self) -> ServerListing:
        self._progress("to answer 'initialize'")
        try:
            await self._session.start()
        except RpcError as error:
            raise await self._refusal("initialize", error) from None

        tools = await self._list_tools()
        return ServerListing(
            self._describe_server(),
            self._channel.protocol.version,
            tuple(tools),
            self._channel.skipped_lines,
        )

    async def _list_tools(self) -> list[Any]:
        try:
            return await self._session.list_tools(self._report_page)
        except (RpcError, StatusError) as error:
            # After a refused handshake, the server was taken for one of the stateless era. It is
            # none, since this request fails, too. So what it said first is the reason.
            first_refusal = self._channel.protocol.refusal
            if first_refusal is not None:
                raise await self._refusal("initialize", first_refusal) from None
            if isinstance(error, RpcError):
                raise await self._refusal("tools/list", error) from None
            raise

    def _describe_server(self) -> JsonObject:
        """Return the server's name and version, as far as they are texts."""
        server = self._channel.protocol.server
        if not isinstance(server, dict):
            return {}
        return {key: server[key] for key in ("name", "version") if isinstance(server.get(key), str)}

    def _report_page(self, page: int) -> None:
        self._progress(f"to list its tools, page {page}" if page > 1 else "to list its tools")

    async def _refusal(self, method: str, error: RpcError) -> DiscoveryError:
        words = self._channel.quotation.text(str(error))
        return await self._channel.failure(f"it refused '{method}': {words}")
