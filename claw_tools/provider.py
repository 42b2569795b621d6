"""Tools that come from elsewhere: an MCP server, or a third party's package
(docs/spec/tools-host.md "Providers").

Rules. A namespace is ``[a-z0-9][a-z0-9-]{0,31}``, and so has no ``__``: a tool is
``{namespace}__{tool}`` to its callers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from claw_contract.base import JsonObject

ENTRY_POINTS: Final = "claw.tool_providers"
"""The entry point group of third parties: each is a factory without arguments that
returns a ``ToolProvider``.
"""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as its provider lists it. ``parameters`` is JSON Schema, ``annotations`` are MCP's."""

    name: str
    description: str
    parameters: JsonObject
    annotations: Mapping[str, Any] = MappingProxyType({})


class ToolProvider(Protocol):
    """A source of tools."""

    namespace: str

    async def list_tools(self) -> Sequence[ToolDefinition]:
        """Return the tools that can be called now. Raise ``ToolError``."""

    async def call_tool(self, name: str, args: JsonObject) -> Any:
        """Return the result as JSON data, or ``msgspec.Raw``; ``name`` is the provider's own.

        Raise ``ToolError``.
        """
