"""``tools`` and ``tool-policy``, of a service or of the pod's defaults (spec/compile.md "Grammar")."""

from __future__ import annotations

from typing import Any

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quoted
from claw_compile.grammar.pod import All, Grant, Limits, Listed
from claw_compile.grammar.read_list import read_list
from claw_compile.grammar.reader import Reading
from claw_compile.parsing.node import Entry, MapNode, Node, ScalarNode
from claw_contract.manifest import TIMEOUT_PER_TOOL_MS, TOTAL_TIMEOUT_MS, Policy

GRANT_KEYS = ("service", "allow", "deny")
LIMIT_KEYS = ("max-rounds", "timeout-per-tool-ms", "total-timeout-ms", "max-tool-result-bytes", "max-parallel")


def read_grants(reading: Reading, entry: Entry) -> Listed[Grant]:
    """``tools`` or ``tools-defaults``."""
    return read_list(reading, entry, _grant)


def _grant(reading: Reading, node: Node) -> Grant | None:
    if isinstance(node, ScalarNode):
        name = quoted(node.shown)
        help_text = f"to grant all its tools write '- service: {name[1:-1]}' with 'allow: all'"
        reading.found.append(codes.ALLOW_MISSING.at(node.span, f"{name} is not a grant", help_text=help_text))
        return None
    entries = reading.members(node, "a grant", GRANT_KEYS)
    if entries is None:
        return None
    if "service" not in entries:
        reading.found.append(codes.MISSING_KEY.at(node.span, "a grant needs 'service'"))
        return None
    service = reading.text(entries["service"].value, "'service'")
    allow = _allow(reading, entries.get("allow"), node)
    deny = reading.texts(entries["deny"].value, "'deny'") if "deny" in entries else ()
    return Grant(service, allow, deny, node.span) if service and allow else None


def _allow(reading: Reading, entry: Entry | None, grant: Node) -> All | tuple[ScalarNode, ...] | None:
    help_text = "write 'allow: all' or 'allow: [tool, …]'"
    if entry is None:
        reading.found.append(codes.ALLOW_MISSING.at(grant.span, "a grant needs 'allow'", help_text=help_text))
        return None
    node = entry.value
    if isinstance(node, ScalarNode) and not node.is_null:
        word = reading.text(node, "'allow'")
        if word is not None and word.text != "all":
            message = "'allow' is 'all' or a list of names"
            reading.found.append(codes.WRONG_TYPE.at(node.span, message, hint=f"[{quoted(word.shown)[1:-1]}]"))
        return All(node.span) if word and word.text == "all" else None
    if not reading.items(node, "'allow'"):
        if not isinstance(node, MapNode):
            reading.found.append(codes.ALLOW_MISSING.at(node.span, "'allow' is empty", help_text=help_text))
        return None
    names = reading.texts(node, "'allow'")
    mixed = [name for name in names if name.text == "all"]
    for name in mixed:
        message = "'all' stands in a list of names"
        reading.found.append(codes.ALL_MIXED_WITH_NAMES.at(name.span, message, help_text=help_text))
    return None if mixed else names


def read_limits(reading: Reading, entry: Entry) -> Limits:
    """``tool-policy`` or ``tool-policy-defaults``; a limit that is left out takes the contract's default."""
    entries = reading.keys(entry.value, quoted(entry.key.text), (*LIMIT_KEYS, "on-budget"))
    fields: dict[str, Any] = {}
    for name in LIMIT_KEYS:
        if name in entries and (number := reading.limit(entries[name].value, quoted(name))) is not None:
            fields[name.replace("-", "_")] = number
    if "on-budget" in entries:
        behavior = reading.choice(entries["on-budget"].value, "'on-budget'", ("finalize", "error"))
        if behavior is not None:
            fields["on_budget"] = behavior
    per_tool = fields.get("timeout_per_tool_ms", TIMEOUT_PER_TOOL_MS)
    total = fields.get("total_timeout_ms", TOTAL_TIMEOUT_MS)
    if total < per_tool:
        at = entries["total-timeout-ms" if "total-timeout-ms" in entries else "timeout-per-tool-ms"].value.span
        default = (
            "" if len({"total_timeout_ms", "timeout_per_tool_ms"} & fields.keys()) > 1 else " (one is the default)"
        )
        message = f"total-timeout-ms {total} is less than timeout-per-tool-ms {per_tool}{default}"
        reading.found.append(codes.TOTAL_BELOW_PER_TOOL.at(at, message))
    return Limits(entry.key.span, Policy(**fields))
