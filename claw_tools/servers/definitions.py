"""The tools of an MCP server, as it lists them. No I/O.

Rules. Nothing of a server is trusted: an entry that can't be used is left out, and costs no other
tool. Of tools of the same name the first one counts.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject
from claw_tools.provider import ToolDefinition

_MAX_NAME = 128
_MAX_DESCRIPTION = 16 << 10  # Characters
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def read_definitions(entries: Iterable[Any]) -> dict[str, ToolDefinition]:
    """Return the tools by name, in the server's order."""
    tools: dict[str, ToolDefinition] = {}
    for entry in entries:
        tool = _read(entry) if isinstance(entry, dict) else None
        if tool is not None:
            tools.setdefault(tool.name, tool)
    return tools


def _read(entry: JsonObject) -> ToolDefinition | None:
    name, description, schema = (
        entry.get("name"),
        entry.get("description", ""),
        entry.get("inputSchema"),
    )
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not isinstance(schema, dict):
        return None
    text = description[:_MAX_DESCRIPTION] if isinstance(description, str) else ""
    tool = ToolDefinition(name, text, schema, _annotations(entry.get("annotations")))
    return tool if _is_writable(tool) else None


def _annotations(value: Any) -> Mapping[str, Any]:
    known = value if isinstance(value, dict) else {}
    return {name: known[name] for name in _HINTS if isinstance(known.get(name), bool)}


def _is_writable(tool: ToolDefinition) -> bool:
    """Return whether a tool can be sent on as JSON: half a surrogate pair and too
    deep a schema can't.
    """
    try:
        msgspec.json.encode([tool.name, tool.description, tool.parameters])
    except (ValueError, RecursionError):  # UnicodeEncodeError is of the former
        return False
    return True
