"""Tools that come from elsewhere: an MCP server, or a third party's package
(docs/spec/tools-host.md "Providers").

Rules. A namespace is ``[a-z0-9][a-z0-9-]{0,31}``, and so has no ``__``: a tool is
``{namespace}__{tool}`` to its callers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Final, Protocol

from claw_contract.base import JsonObject

ENTRY_POINTS: Final = "claw.tool_providers"
"""The entry point group of third parties.

Each entry is a factory without arguments that returns a ``ToolProvider``.
"""
_NEEDED: Final = ("namespace", "list_tools", "call_tool")
_MAX_REASON: Final = 300  # Characters


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


class ProviderError(ValueError):
    """A provider that can't be loaded. One sentence, with the package and the remedy."""


def load_providers() -> list[ToolProvider]:
    """Return the providers of all installed packages, by the names of their entry points.

    Raise ``ProviderError``.
    """
    entries = sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name)
    return [_load(entry) for entry in entries]


def _load(entry: EntryPoint) -> ToolProvider:
    package = entry.dist.name if entry.dist is not None else "an unknown package"
    try:
        provider: ToolProvider = entry.load()()
        # ``hasattr`` may run code of the provider, too
        missing = [name for name in _NEEDED if not hasattr(provider, name)]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others
        reason = f"{type(error).__name__}: {error}"[:_MAX_REASON]
        raise ProviderError(
            f"the tool provider {entry.name!r} of {package} can't be loaded: {reason}"
        ) from None

    if missing:
        raise ProviderError(
            f"the tool provider {entry.name!r} of {package} has no {missing[0]!r}: see "
            "docs/tools-host.md"
        )
    return provider
