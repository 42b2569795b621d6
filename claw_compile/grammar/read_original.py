"""Keys of the original system that nothing here acts on (spec/compile.md "Grammar").

Rules. They are known, carried as they are written into pod-manifest.json (numbers keep their spelling, variables their names),
and earn one warning each.
"""

from __future__ import annotations

from collections.abc import Mapping

from claw_compile.grammar.reading import Reading
from claw_compile.reading.node import Entry, MapNode, Node

ORIGINAL_POD_KEYS = (
    *("handles-defaults", "channel-memory", "principals", "master", "alert-webhooks", "alert-mentions"),
    *("sequential-conformance", "claw-api"),
)
ORIGINAL_SERVICE_KEYS = ("handles", "invoke", "persona", "include", "channel-memory", "claw-api", "hermes")


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
