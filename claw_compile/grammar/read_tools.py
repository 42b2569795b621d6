"""``tools``, ``surfaces`` and ``tool-policy``, of a service or of the pod's defaults (spec/compile.md "Grammar")."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Note, quoted
from claw_compile.grammar.pod import All, Cllama, Grant, Limits, Listed, Spread, Surface
from claw_compile.grammar.reading import Reading, is_spread
from claw_compile.reading.node import Entry, ListNode, MapNode, Node, ScalarNode
from claw_contract.manifest import TIMEOUT_PER_TOOL_MS, TOTAL_TIMEOUT_MS, Policy

GRANT_KEYS = ("service", "allow", "deny")
LIMIT_KEYS = ("max-rounds", "timeout-per-tool-ms", "total-timeout-ms", "max-tool-result-bytes", "max-parallel")
MODES = ("base-url", "proxy", "transparent")
_SURFACE = re.compile(r"(?P<scheme>[a-z]+)://(?P<target>\S*)(\s+(?P<mode>\S+))?\s*")
_MODES = {"ro", "rw", "read-only", "read-write"}


def read_grants(reading: Reading, entry: Entry) -> Listed[Grant]:
    """``tools`` or ``tools-defaults``."""
    return _listed(reading, entry, _grant)


def read_surfaces(reading: Reading, entry: Entry) -> Listed[Surface]:
    """``surfaces`` or ``surfaces-defaults``."""
    return _listed(reading, entry, _surface)


def _listed[T](reading: Reading, entry: Entry, read: Callable[[Reading, Node], T | None]) -> Listed[T]:
    what = quoted(entry.key.text)
    entries: list[T | Spread] = []
    first: Spread | None = None
    for item in reading.items(entry.value, what):
        if not is_spread(item):
            if (value := read(reading, item)) is not None:
                entries.append(value)
        elif entry.key.text.endswith("-defaults"):
            message = f"'...' in {what}: these are the defaults themselves"
            reading.found.append(codes.SPREAD_WITHOUT_DEFAULTS.at(item.span, message))
        elif first is not None:
            notes = [Note(first.span, "the first one is here")]
            reading.found.append(codes.SPREAD_TWICE.at(item.span, f"'...' twice in {what}", notes=notes))
        else:
            first = Spread(item.span)
            entries.append(first)
    return Listed(entry.key.span, tuple(entries))


def _grant(reading: Reading, node: Node) -> Grant | None:
    if isinstance(node, ScalarNode):
        name = quoted(node.shown)
        help_text = f"to grant all its tools write '- service: {name[1:-1]}' with 'allow: all'"
        reading.found.append(codes.ALLOW_MISSING.at(node.span, f"{name} is not a grant", help_text=help_text))
        return None
    entries = reading.keys(node, "a grant", GRANT_KEYS)
    if not isinstance(node, MapNode):
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


def _surface(reading: Reading, node: Node) -> Surface | None:
    if isinstance(node, MapNode) and len(node.entries) == 1 and node.entries[0].key.text.startswith("channel://"):
        node = node.entries[0].key
    word = reading.text(node, "a surface")
    if word is None:
        return None
    match = _SURFACE.fullmatch(word.text)
    problem = _surface_problem(match) if match else "it has no 'scheme://'"
    if match is None or problem:
        reading.found.append(codes.BAD_SURFACE.at(node.span, f"{quoted(word.shown)} is not a surface: {problem}"))
        return None
    return Surface(match["scheme"], match["target"], node.span)


def _surface_problem(match: re.Match[str]) -> str | None:
    scheme, target, mode = match["scheme"], match["target"], match["mode"]
    if scheme not in {"service", "volume", "host", "channel", "egress"}:
        return "unknown scheme"
    if scheme != "egress" and not target:
        return "it names no target"
    if scheme == "host" and not target.startswith("/"):
        return "the path is not absolute"
    if mode and (scheme not in {"volume", "host"} or mode not in _MODES):
        return "a mode that it does not take"
    return None


def read_cllama(reading: Reading, entry: Entry) -> Cllama:
    """``cllama``: a name, a list of names, or ``{proxy, mode}``; also ``cllama-defaults``."""
    node, what = entry.value, quoted(entry.key.text)
    if isinstance(node, MapNode):
        later = ("env",) if entry.key.text == "cllama-defaults" else ()
        entries = reading.keys(node, what, ("proxy", "mode"), later)
        if "mode" in entries and reading.choice(entries["mode"].value, "'mode'", MODES) in {"proxy", "transparent"}:
            reading.postpone(entries["mode"].key, "cllama.mode")
        if "proxy" not in entries:
            reading.found.append(codes.MISSING_KEY.at(node.span, f"{what} needs 'proxy'"))
            return Cllama(entry.key.span, ())
        node, what = entries["proxy"].value, "'proxy'"
    if isinstance(node, ListNode) or (isinstance(node, ScalarNode) and node.is_null):
        names = reading.texts(node, what)
    else:
        name = reading.text(node, what)
        names = (name,) if name else ()
    return Cllama(entry.key.span, tuple(name.text for name in names))


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
