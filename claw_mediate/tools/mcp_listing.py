"""The tools that an MCP server lists, compared with what was compiled (docs/spec/mcp.md "Drift").

No I/O.

Rules. A tool is called only while the server still lists it with the schema that was granted. Texts
that only describe are ignored: the model sees those that were compiled. Of a list that is above a
limit, or breaks off, the tools that were read count, and the others are refused with the reason.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from claw_contract.manifest import McpExecution, Tool
from claw_contract.transcript.text import as_line

_ANNOTATIONS = frozenset(
    {"title", "description", "$schema", "$comment", "$id", "examples", "default", "deprecated"}
)
_NAMED_SCHEMAS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
_ABSENT: Any = object()
_CHANGED = (
    "The service has changed this tool since it was granted, so that it is not called. "
    "Use another tool."
)


class ToolDrift(NamedTuple):
    """The reason why a tool is not called: for the log, and in one sentence for the model."""

    reason: str
    message: str = _CHANGED


class ToolListing:
    """The schemas of a server's tools by name. Of tools of the same name the first one counts."""

    def __init__(self, entries: Iterable[Any] = (), fault: str = "") -> None:
        """Take the entries of a list; those that name no tool are ignored.

        ``fault``: why the list is not whole ("its list of tools has more than …"), "" if it is.
        """
        self._fault = fault
        self._schemas: dict[str, Any] = {}
        self._drifts: dict[str, tuple[Tool, ToolDrift | None]] = {}

        for entry in entries:
            name = entry.get("name") if isinstance(entry, dict) else None
            if isinstance(name, str):
                self._schemas.setdefault(name, entry.get("inputSchema"))

    def find_drift(self, tool: Tool) -> ToolDrift | None:
        """Return how the server's tool differs from the compiled one; None if it does not."""
        known = self._drifts.get(tool.name)
        if known is not None and known[0] is tool:
            return known[1]

        drift = self._compare(tool)
        self._drifts[tool.name] = tool, drift
        return drift

    def _compare(self, tool: Tool) -> ToolDrift | None:
        assert isinstance(tool.execution, McpExecution)
        name = tool.execution.tool_name
        shown = repr(as_line(name))

        if name not in self._schemas:
            if self._fault:
                return _not_read(shown, self._fault)
            return ToolDrift(f"the server does not list {shown} any more")

        listed = self._schemas[name]
        if not isinstance(listed, dict):
            return ToolDrift(f"the server lists {shown} without a schema")

        granted = {"type": "object", **tool.input_schema}
        place = next(find_differences(granted, {"type": "object", **listed}), None)
        if place is None:
            return None

        where = as_line(".".join(place))
        return ToolDrift(
            f"the server's inputSchema of {shown} is not the one that was compiled; "
            f"it differs at {where!r}"
        )


def _not_read(shown: str, fault: str) -> ToolDrift:
    """Return the reason for a tool that is not among those that were read of a list."""
    return ToolDrift(
        f"{shown} is not in what was read of the server's list: {fault}",
        f"The service's list of tools could not be read in full ({fault}), and this tool is not in "
        "the part that was read, so that it is not called. Use another tool.",
    )


def find_differences(
    granted: Any, listed: Any, place: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the places at which two schemas differ in what they accept.

    >>> list(find_differences({"type": "string", "title": "a"}, {"type": "string"}))
    []
    """
    are_objects = isinstance(granted, dict) and isinstance(listed, dict)
    if not are_objects or place[-1:] == ("const",):
        if not _is_equal(granted, listed, place):
            yield place
        return

    is_schema = not _holds_names(place)
    for key in {**granted, **listed}:
        if is_schema and key in _ANNOTATIONS:
            continue
        yield from find_differences(
            granted.get(key, _ABSENT), listed.get(key, _ABSENT), (*place, key)
        )


def _holds_names(place: tuple[str, ...]) -> bool:
    """Return whether an object's keys are names that the schema's author chose, not keywords."""
    return bool(place) and place[-1] in _NAMED_SCHEMAS and not _holds_names(place[:-1])


def _is_equal(granted: Any, listed: Any, place: tuple[str, ...]) -> bool:
    """Return whether two values that are not both schemas accept the same."""
    are_lists = isinstance(granted, list) and isinstance(listed, list)
    if not are_lists or len(granted) != len(listed):
        # In Python, True equals 1.
        return bool(granted == listed) and isinstance(granted, bool) == isinstance(listed, bool)

    if all(isinstance(each, str) for each in (*granted, *listed)):
        return sorted(granted) == sorted(listed)  # required, type, enum: their order means nothing

    # The items of ``enum`` are plain values, like that of ``const``: no key in them is an
    # annotation, so nothing is ignored.
    is_enum = place[-1:] == ("enum",)
    place_of_item = (*place, "const" if is_enum else "[]")
    for one, other in zip(granted, listed, strict=True):
        if any(True for _ in find_differences(one, other, place_of_item)):
            return False
    return True
