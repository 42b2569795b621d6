"""Tools that come from elsewhere: an MCP server, or a third party's package.

``CompositeToolProvider`` is all of them as one. Specification: docs/spec/tools-host.md "Providers".

Rules. A namespace is ``[a-z0-9][a-z0-9-]{0,31}``, and is taken once. It has no ``__``, so that a
tool is ``{namespace}__{tool}`` to its callers, and the first ``__`` of a name ends the namespace. A
name that no model could call, or that no pod could grant, is made fit, with a digest at its end. A
tool whose schema can't be used is left out.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec

from claw_contract.base import JsonObject
from claw_contract.json_schema import find_schema_problem
from claw_contract.names import TOOL_NAME
from claw_contract.toolhost_file import NAMESPACE, RESERVED_NAMESPACE
from claw_tools.tool import Tool

ENTRY_POINTS: Final = "claw.tool_providers"
"""The entry point group of third parties.

Each entry is a factory without arguments that returns a ``ToolProvider``.
"""
_NEEDED: Final = ("namespace", "list_tools", "call_tool")
_MAX_REASON: Final = 300  # Characters
SEPARATOR: Final = "__"
MAX_CALL_SECONDS: Final = 600.0
MAX_TOOLS: Final = 1_000  # Of one provider
_MAX_NAME: Final = 48  # The limit that TOOL_NAME sets
_DIGEST_LENGTH: Final = 8
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_MAX_SHOWN_NAME: Final = 64
_MAX_PROBLEM: Final = 256


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


class NamespaceError(ValueError):
    """A namespace that can't be used. One sentence, with the remedy."""


class ProvidedTool(Tool):
    """A tool of a provider, under the name that callers use."""

    max_seconds = MAX_CALL_SECONDS

    def __init__(self, provider: ToolProvider, definition: ToolDefinition) -> None:
        """Call ``definition`` at ``provider``."""
        self._provider = provider
        self._own_name = definition.name
        self.name = published_name(provider.namespace, definition.name)
        self.description = definition.description
        self.annotations = definition.annotations
        self.parameters: JsonObject = {"type": "object", **definition.parameters}

    async def execute(self, args: JsonObject) -> Any:
        return await self._provider.call_tool(self._own_name, args)


@dataclass(slots=True)
class _Source:
    provider: ToolProvider
    is_internal: bool
    tools: dict[str, ProvidedTool]


class CompositeToolProvider:
    """The tools of all providers, as they were last listed."""

    def __init__(self) -> None:
        """Start without providers."""
        self._sources: dict[str, _Source] = {}

    def register(self, provider: ToolProvider, *, internal: bool = False) -> None:
        """Add a provider, whose tools are not listed yet. Raise ``NamespaceError``.

        ``internal``: its tools are seen only by requests whose globs name them.
        """
        namespace = provider.namespace
        if not isinstance(namespace, str) or not re.fullmatch(NAMESPACE, namespace):
            raise NamespaceError(
                f"the namespace {str(namespace)[:_MAX_SHOWN_NAME]!r} must be {NAMESPACE}: give it "
                "another name"
            )

        if namespace == RESERVED_NAMESPACE or namespace in self._sources:
            raise NamespaceError(
                f"the namespace {namespace!r} is taken: give the server or provider another name"
            )
        self._sources[namespace] = _Source(provider, internal, {})

    async def refresh(self, namespace: str) -> list[str]:
        """List a provider's tools anew; return why some are left out, one sentence each.

        Raise the provider's ``ToolError``.
        """
        source = self._sources[namespace]
        problems: list[str] = []
        listed: dict[str, ProvidedTool] = {}
        for definition in await source.provider.list_tools():
            is_full = len(listed) == MAX_TOOLS
            problem = "there are too many" if is_full else _find_problem(definition)
            if problem is not None:
                name = str(definition.name)[:_MAX_SHOWN_NAME]
                problems.append(f"the tool {name!r} is left out: {problem[:_MAX_PROBLEM]}")
                continue

            tool = ProvidedTool(source.provider, definition)
            listed[tool.name] = tool
        source.tools = listed
        return problems

    def clear(self, namespace: str) -> None:
        """Offer none of a provider's tools until they are listed again."""
        self._sources[namespace].tools = {}

    def find(self, name: str) -> tuple[Tool, bool] | None:
        """Return a tool, and True if it is internal; None if no tool has this name."""
        source = self._sources.get(name.partition(SEPARATOR)[0])
        if source is None or name not in source.tools:
            return None
        return source.tools[name], source.is_internal

    def tools(self) -> Iterator[tuple[Tool, bool]]:
        """Yield each tool, and True if it is internal."""
        for source in self._sources.values():
            for tool in source.tools.values():
                yield tool, source.is_internal


def _find_problem(definition: ToolDefinition) -> str | None:
    """Return why a tool can't be offered, or None."""
    members = [
        definition.name,
        definition.description,
        definition.parameters,
        dict(definition.annotations),
    ]
    try:
        msgspec.json.encode(members)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return "what it says of itself is no JSON"
    return find_schema_problem(definition.parameters)


def published_name(namespace: str, name: str) -> str:
    """Return the name of a provider's tool for callers.

    It has at most 48 letters, digits, ``_`` and ``-``.

    >>> published_name("time", "get_current_time"), published_name("x", "a.b")
    ('time__get_current_time', 'x__a_b_d191bf19')
    """
    plain = f"{namespace}{SEPARATOR}{name}"
    if TOOL_NAME.fullmatch(plain):
        return plain

    digest = hashlib.sha256(plain.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    beginning = _UNSAFE.sub("_", plain)[: _MAX_NAME - _DIGEST_LENGTH - 1]
    return f"{beginning}_{digest}"
