"""The links to MCP servers: what a command and a URL have in common."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final, Protocol

from claw_mcp.supervisor import TimeLimits

CLIENT: Final = {"name": "claw-tools", "version": version("clawdapus")}
TIMING: Final = TimeLimits(call=1e9, start=5.0)  # The server's settings limit a call


class ServerLink(Protocol):
    """A connection that is made anew whenever it is lost."""

    @property
    def is_ready(self) -> bool: ...

    async def run(self) -> None:
        """Keep the connection until cancelled; nothing of it is left then."""

    async def list_tools(self) -> list[Any]:
        """Return the tools as the server lists them. Raise ``RpcError`` and ``DiscoveryError``."""

    async def call(self, params: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
        """Return the result of ``tools/call`` as JSON.

        ``headers`` repeat arguments for servers that speak HTTP in the stateless era.

        Raise ``RpcError``, which may be ``NoAnswerError``.
        """
