"""A client's session with one MCP server, in either era.

Rules. The handshake is tried first; a server that refuses it is asked in the stateless way. A list
of tools is bounded in pages, tools and bytes.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from claw_contract.base import JsonObject
from claw_mcp import protocol
from claw_mcp.channels import MAX_BYTES, Channel
from claw_mcp.protocol import RpcError

MAX_PAGES: Final = 100
MAX_TOOLS: Final = 1000
_MAX_CURSOR = 16 * 1024
_REFUSALS = {
    *(
        protocol.SERVER_ERROR,
        protocol.UNSUPPORTED_VERSION,
        protocol.INVALID_PARAMS,
        protocol.METHOD_NOT_FOUND,
    ),
    *(protocol.INVALID_REQUEST, protocol.HEADER_MISMATCH),
}
"""The errors that a server of the stateless era may give for ``initialize``."""


class ClientSession:
    """The questions that both eras have.

    ``server``: what it says of itself; ``refusal``: of the handshake, if it has none.
    """

    def __init__(self, channel: Channel, client: JsonObject) -> None:
        """Ask over ``channel``; ``client`` has our name and version."""
        self._channel, self._client = channel, client
        self._size = 0
        self.server: Any = None
        self.refusal: RpcError | None = None

    async def start(self) -> None:
        """Do the handshake, or find that the server has none.

        Raise ``RpcError``, and the channel's failure.
        """
        newest = protocol.HANDSHAKE_VERSIONS[0]
        params = {"protocolVersion": newest, "capabilities": {}, "clientInfo": self._client}
        try:
            result = await self._request("initialize", params)
        except RpcError as error:
            if error.code not in _REFUSALS:
                raise
            self.refusal = error
            self._go_stateless()
            return
        version, self.server = result.get("protocolVersion"), result.get("serverInfo")
        if version == protocol.STATELESS_VERSION:
            self._go_stateless()
            return
        if version not in protocol.HANDSHAKE_VERSIONS:
            shown, ours = self._channel.quotation.text(str(version)), ", ".join(protocol.VERSIONS)
            raise await self._channel.failure(f"it speaks version {shown} of MCP; known are {ours}")
        self._channel.version = str(version)
        await self._channel.notify("notifications/initialized")

    def _go_stateless(self) -> None:
        self._channel.is_stateless, self._channel.version = True, protocol.STATELESS_VERSION

    async def tools(self, on_page: Callable[[int], None] = lambda _: None) -> AsyncIterator[Any]:
        """Yield the tools as the server lists them. Raise ``RpcError``, and the channel's failure.

        ``on_page`` is called with the number of each page that is asked for.
        """
        cursor, seen, count, size = "", set[str](), 0, 0
        for page in range(1, MAX_PAGES + 1):
            on_page(page)
            tools, cursor = await self._page(
                await self._request("tools/list", {"cursor": cursor} if cursor else {})
            )
            count, size = count + len(tools), size + self._size
            if count > MAX_TOOLS or size > MAX_BYTES:
                what = f"{MAX_TOOLS} tools" if count > MAX_TOOLS else f"{MAX_BYTES} bytes"
                raise await self._channel.failure(
                    f"its list of tools has more than {what}: let the server offer fewer"
                )
            for tool in tools:
                yield tool
            if not cursor:
                return
            if cursor in seen:
                raise await self._channel.failure(
                    f"page {page} of its tools leads back to an earlier one: a fault of the server"
                )
            seen.add(cursor)
        raise await self._channel.failure(
            f"its list of tools has more than {MAX_PAGES} pages: a fault of the server"
        )

    def params(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the params of a request, with what its era wants there."""
        return (
            {**params, "_meta": protocol.stateless_meta(self._client)}
            if self._channel.is_stateless
            else params
        )

    async def _page(self, result: JsonObject) -> tuple[list[Any], str]:
        tools, cursor = result.get("tools"), result.get("nextCursor")
        if not isinstance(tools, list):
            raise await self._channel.failure(
                "its answer to 'tools/list' has no list of tools: a fault of the server"
            )
        if cursor is not None and not _is_cursor(cursor):
            raise await self._channel.failure(
                "the cursor of its tools is no text, or too long: a fault of the server"
            )
        if self._channel.is_stateless and isinstance(meta := result.get("_meta"), dict):
            self.server = self.server or meta.get(protocol.SERVER_INFO_META)
        return tools, cursor or ""

    async def _request(self, method: str, params: JsonObject) -> JsonObject:
        answer = await self._channel.request(method, self.params(params))
        self._size = len(answer)
        result = protocol.read_object(answer)
        if not result or result.get("resultType", "complete") != "complete":
            raise await self._channel.failure(
                f"its answer to '{method}' is no complete result: a fault of the server"
            )
        return result


def _is_cursor(cursor: Any) -> bool:
    """Return whether it is text that can be sent back: half a surrogate pair can't."""
    try:
        return isinstance(cursor, str) and len(cursor.encode()) <= _MAX_CURSOR
    except UnicodeEncodeError:
        return False
