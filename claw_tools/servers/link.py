"""The links to MCP servers: what a command and a URL have in common."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final, Protocol

from claw_mcp.supervisor import TimeLimits

CLIENT: Final = {"name": "claw-tools", "version": version("clawdapus")}
TIMING: Final = TimeLimits(call=1e9, start=5.0)  # A call has the time of its server's settings
TOOLS_CHANGED: Final = "notifications/tools/list_changed"


class Link(Protocol):
    """A connection that is made anew whenever it is lost."""

    @property
    def is_ready(self) -> bool: ...

    async def run(self) -> None:
        """Keep the connection until cancelled; nothing of it is left then."""

    async def list_tools(self) -> list[Any]:
        """Return the tools as the server lists them. Raise ``RpcError`` and ``DiscoveryError``."""

    async def call(self, params: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
        """Return the result of ``tools/call`` as JSON.

        Raise ``RpcError``, which may be ``NoAnswerError``.

        ``headers`` repeat arguments, where the server speaks HTTP in the stateless era.
        """
