"""Many providers as one: a tool is ``{namespace}__{tool}`` (docs/spec/tools-host.md "Providers").

Rules. A namespace is taken once, and has no ``__``, so that the first ``__`` of a name ends it. A
name that no model could call, or that no pod could grant, is made fit, with a digest at its end. A
tool whose schema can't be used is left out.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject
from claw_contract.json_schema import find_schema_problem
from claw_contract.names import TOOL_NAME
from claw_tools.provider import ToolDefinition, ToolProvider
from claw_tools.tool import Tool

SEPARATOR: Final = "__"
MAX_CALL_SECONDS: Final = 600.0
MAX_TOOLS: Final = 1_000  # Of one provider
NAMESPACE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
RESERVED: Final = "builtin"
_MAX_NAME = 48
_DIGEST_LENGTH = 8
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class NamespaceError(ValueError):
    """A namespace that can't be used. One sentence, with the remedy."""


class ProvidedTool(Tool):
    """A tool of a provider, under the name that callers use."""

    max_seconds = MAX_CALL_SECONDS

    def __init__(self, provider: ToolProvider, definition: ToolDefinition) -> None:
        """Call ``definition`` at ``provider``."""
        self._provider, self._own_name = provider, definition.name
        self.name = published_name(provider.namespace, definition.name)
        self.description, self.annotations = definition.description, definition.annotations
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

        ``internal``: its tools are there only for requests that ask for them by globs.
        """
        namespace = provider.namespace
        if not isinstance(namespace, str) or not NAMESPACE.fullmatch(namespace):
            raise NamespaceError(
                f"the namespace {str(namespace)[:64]!r} must be "
                f"[a-z0-9][a-z0-9-]{{0,31}}: give it another name"
            )
        if namespace == RESERVED or namespace in self._sources:
            raise NamespaceError(
                f"the namespace {namespace!r} is taken: give the server or provider another name"
            )
        self._sources[namespace] = _Source(provider, internal, {})

    async def refresh(self, namespace: str) -> list[str]:
        """List a provider's tools anew; return why some are left out, one sentence each.

        Raise the provider's ``ToolError``.
        """
        source, problems = self._sources[namespace], []
        listed: dict[str, ProvidedTool] = {}
        for definition in await source.provider.list_tools():
            problem = (
                "there are too many" if len(listed) == MAX_TOOLS else _find_problem(definition)
            )
            if problem is not None:
                problems.append(
                    f"the tool {str(definition.name)[:64]!r} is left out: {problem[:256]}"
                )
                continue
            tool = ProvidedTool(source.provider, definition)
            listed[tool.name] = tool
        source.tools = listed
        return problems

    def clear(self, namespace: str) -> None:
        """Offer none of a provider's tools until they are listed again."""
        self._sources[namespace].tools = {}

    def find(self, name: str) -> tuple[Tool, bool] | None:
        """Return a tool, and True if it is internal; None where there is none of this name."""
        source = self._sources.get(name.partition(SEPARATOR)[0])
        tool = source.tools.get(name) if source is not None else None
        return None if source is None or tool is None else (tool, source.is_internal)

    def tools(self) -> Iterator[tuple[Tool, bool]]:
        """Yield each tool, and True if it is internal."""
        for source in self._sources.values():
            for tool in source.tools.values():
                yield tool, source.is_internal


def _find_problem(definition: ToolDefinition) -> str | None:
    """Return why a tool can't be offered."""
    try:
        msgspec.json.encode(
            [
                definition.name,
                definition.description,
                definition.parameters,
                dict(definition.annotations),
            ]
        )
    except (TypeError, ValueError, OverflowError, RecursionError):
        return "what it says of itself is no JSON"
    return find_schema_problem(definition.parameters)


def published_name(namespace: str, name: str) -> str:
    """Return the name of a provider's tool for callers: at most 48 letters, digits,
    ``_`` and ``-``.

    >>> published_name("time", "get_current_time"), published_name("x", "a.b")
    ('time__get_current_time', 'x__a_b_d191bf19')
    """
    plain = f"{namespace}{SEPARATOR}{name}"
    if TOOL_NAME.fullmatch(plain):
        return plain
    digest = hashlib.sha256(plain.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{_UNSAFE.sub('_', plain)[: _MAX_NAME - _DIGEST_LENGTH - 1]}_{digest}"
