"""A client's session over a channel, for discovery and the tools host."""

from collections.abc import Callable, Mapping
from typing import Any

from claw_contract.base import JsonObject
from claw_mcp import protocol
from claw_mcp.channels import Channel
from claw_mcp.client_protocol import (
    AskServer,
    Conversation,
    NotifyServer,
    ServerAnswer,
    ServerFaultError,
    UnknownVersionError,
    converse,
)


class ClientSession:
    """One session with the server behind a channel."""

    def __init__(self, channel: Channel, client: JsonObject) -> None:
        """Ask over ``channel``; ``client`` has our name and version."""
        self._channel = channel
        self._client = client

    async def start(self) -> None:
        """Do the handshake, or find that the server has none.

        Raise ``RpcError``, and the channel's failure.
        """
        await self._converse(self._channel.protocol.open(self._client), self._exchange)

    async def list_tools(self, on_page: Callable[[int], None] = lambda _: None) -> list[Any]:
        """Return the tools as the server lists them. Raise ``RpcError``, and the channel's failure.

        ``on_page`` is called with the number of each page that is asked for.
        """
        tools: list[Any] = []
        pages = 0

        async def exchange(message: AskServer | NotifyServer) -> ServerAnswer:
            nonlocal pages
            pages += 1
            on_page(pages)
            return await self._exchange(message)

        await self._converse(self._channel.protocol.list_tools(tools), exchange)
        return tools

    def params(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the params of a request, with what its era wants there."""
        if not self._channel.protocol.is_stateless:
            return params
        return {**params, "_meta": protocol.stateless_meta(self._client)}

    async def _exchange(self, message: AskServer | NotifyServer) -> ServerAnswer:
        if isinstance(message, AskServer):
            message = AskServer(message.method, dict(self.params(message.params)))
        return await self._channel.exchange(message)

    async def _converse(
        self,
        conversation: Conversation[None],
        exchange: Callable[[AskServer | NotifyServer], Any],
    ) -> None:
        try:
            await converse(conversation, exchange)
        except UnknownVersionError as error:
            shown = self._channel.quotation.text(error.version)
            known = ", ".join(protocol.VERSIONS)
            raise await self._channel.failure(
                f"it speaks version {shown} of MCP; known are {known}"
            ) from None
        except ServerFaultError as error:
            raise await self._channel.failure(str(error)) from None
