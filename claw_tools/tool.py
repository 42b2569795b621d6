"""The base of all tools (docs/spec/tools-host.md "Interfaces")."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from claw_contract.base import JsonObject

READ_ONLY: Final[Mapping[str, Any]] = MappingProxyType({"readOnlyHint": True})
"""The annotations of a tool that changes nothing."""


class Tool(ABC):
    """One tool of one principal. It can reach only what it was given when it was made."""

    name: str
    description: str
    parameters: JsonObject
    """JSON Schema, draft 2020-12: an object with ``additionalProperties: false``.

    Arguments are checked against it before ``execute``.
    """
    annotations: Mapping[str, Any] = MappingProxyType({"readOnlyHint": False})
    """MCP's annotations. From ``readOnlyHint`` the compiler makes the effect of a call."""
    max_seconds: float = 60.0
    """The time after which a call is cancelled, whatever it does."""

    @abstractmethod
    async def execute(self, args: JsonObject) -> Any:
        """Return the result as JSON data, or ``msgspec.Raw``; ``args`` fit ``parameters``.

        Raise ``ToolError``.

        A call that is cancelled leaves nothing that runs, and nothing half written.
        """
