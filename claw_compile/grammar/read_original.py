"""Keys of the original system that nothing here acts on (spec/compile.md "Grammar").

Rules. They are known, carried as they are written into pod-manifest.json, and earn one warning each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from claw_compile.grammar.reader import Reading
from claw_compile.parsing.node import Entry, ListNode, MapNode, Node, ScalarNode
from claw_compile.parsing.scalars import typed

ORIGINAL_POD_KEYS = (
    *("handles-defaults", "channel-memory", "principals", "master", "alert-webhooks", "alert-mentions"),
    *("sequential-conformance", "claw-api"),
)
ORIGINAL_SERVICE_KEYS = ("handles", "invoke", "persona", "include", "channel-memory", "claw-api", "hermes")

LARGEST_EXACT = 2**53
"""JavaScript knows no larger integer exactly, and ids of channels are larger."""


def read_original(reading: Reading, entries: Mapping[str, Entry], keys: tuple[str, ...]) -> Mapping[str, Node]:
    """What is carried of a pod or of a service, by key; ``context.channel`` too."""
    carried: dict[str, Node] = {}
    for key in keys:
        if key in entries:
            reading.carry(entries[key].key)
            carried[key] = entries[key].value
    context = entries.get("context")
    channel = context.value.get("channel") if context and isinstance(context.value, MapNode) else None
    if channel is not None:
        reading.carry(channel.key, "context.channel")
        carried["context.channel"] = channel.value
    return carried


def carried_data(node: Node) -> Any:
    """What is carried, as JSON data. Variables keep their names, and numbers their spelling where a reader might change it."""
    match node:
        case ScalarNode():
            value = typed(node.text) if node.plain else node.text
            if value is None or isinstance(value, bool):
                return value
            exact = isinstance(value, int) and abs(value) <= LARGEST_EXACT and str(value) == node.text
            return value if exact else node.text
        case ListNode():
            return [carried_data(item) for item in node.items]
        case MapNode():
            return {entry.key.text: carried_data(entry.value) for entry in sorted(node.entries, key=_name)}
    assert_never(node)


def _name(entry: Entry) -> str:
    return entry.key.text
