"""The tools that an MCP server lists, compared with what was compiled (docs/spec/mcp.md, "Drift").

No I/O.

A tool is called only while the server still lists it with the schema that was granted. Texts that
only describe are ignored: the model sees those that were compiled.
"""

from collections.abc import Iterator
from typing import Any

from claw_contract.base import JsonObject
from claw_contract.manifest import McpExecution, Tool
from claw_contract.transcript.text import as_line

MAX_PAGES = 100
MAX_TOOLS = 1000
MAX_LIST_BYTES = 4 << 20  # Of all pages together
_ANNOTATIONS = frozenset(
    {"title", "description", "$schema", "$comment", "$id", "examples", "default", "deprecated"}
)
_NAMED_SCHEMAS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
_ABSENT: Any = object()


class ToolListing:
    """The schemas of a server's tools by name. Of tools of the same name the first one counts."""

    def __init__(self) -> None:
        self._schemas: dict[str, Any] = {}
        self._problems: dict[str, tuple[Tool, str | None]] = {}

    def add_page(self, page: JsonObject) -> None:
        """Add the tools of one page; those beyond ``MAX_TOOLS`` are ignored."""
        tools = page.get("tools")
        for entry in tools if isinstance(tools, list) else ():
            name = entry.get("name") if isinstance(entry, dict) else None
            if isinstance(name, str) and len(self._schemas) < MAX_TOOLS:
                self._schemas.setdefault(name, entry.get("inputSchema"))

    def find_problem(self, tool: Tool) -> str | None:
        """Return in one line how the server's tool differs from the compiled one;
        None if it does not.
        """
        known = self._problems.get(tool.name)
        if known is None or known[0] is not tool:
            assert isinstance(tool.execution, McpExecution)
            known = self._problems[tool.name] = tool, self._compare(tool.execution.tool_name, tool)
        return known[1]

    def _compare(self, name: str, tool: Tool) -> str | None:
        if name not in self._schemas:
            return f"the server does not list {as_line(name)!r} any more"
        listed = self._schemas[name]
        if not isinstance(listed, dict):
            return f"the server lists {as_line(name)!r} without a schema"
        granted = {"type": "object", **tool.input_schema}
        place = next(find_differences(granted, {"type": "object", **listed}), None)
        if place is None:
            return None
        where = as_line(".".join(place))
        return (
            f"the server's inputSchema of {as_line(name)!r} is not the one that was compiled; "
            f"it differs at {where!r}"
        )


def find_differences(
    granted: Any, listed: Any, place: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the places at which two schemas differ in what they accept.

    >>> list(find_differences({"type": "string", "title": "a"}, {"type": "string"}))
    []
    """
    if isinstance(granted, dict) and isinstance(listed, dict) and place[-1:] != ("const",):
        is_schema = not _holds_names(place)
        for key in {**granted, **listed}:
            if not is_schema or key not in _ANNOTATIONS:
                yield from find_differences(
                    granted.get(key, _ABSENT), listed.get(key, _ABSENT), (*place, key)
                )
    elif not _is_equal(granted, listed, place):
        yield place


def _holds_names(place: tuple[str, ...]) -> bool:
    """Return whether the keys of the object at a place are names that the schema's
    author chose, and no keywords.
    """
    return bool(place) and place[-1] in _NAMED_SCHEMAS and not _holds_names(place[:-1])


def _is_equal(granted: Any, listed: Any, place: tuple[str, ...]) -> bool:
    if not isinstance(granted, list) or not isinstance(listed, list) or len(granted) != len(listed):
        return bool(granted == listed) and isinstance(granted, bool) == isinstance(listed, bool)
    if all(isinstance(each, str) for each in (*granted, *listed)):
        return sorted(granted) == sorted(listed)  # required, type, enum: their order means nothing
    below = (*place, "const" if place[-1:] == ("enum",) else "[]")
    pairs = zip(granted, listed, strict=True)
    return all(next(find_differences(one, other, below), None) is None for one, other in pairs)
