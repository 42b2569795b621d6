"""The snapshot that ``claw discover`` writes: a version 2 descriptor with a server's tools.

Specification: docs/spec/mcp.md "Discovery".

Rules. The same list of tools gives the same bytes: tools are in the order of their names, and a
schema keeps its order. A tool that the compiler would refuse, or whose name the server lists twice,
is in ``x-claw-discovery.ungrantable`` with the reason, so that it costs no other tool. What
only a person can have added to a snapshot is kept.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from claw_compile.descriptors.descriptor import FIRST_TOOL, read_descriptor
from claw_compile.descriptors.lock import sha256
from claw_compile.diagnostics.diagnostic import escape_controls
from claw_compile.parsing.json_reader import read_json
from claw_compile.parsing.node import Source
from claw_contract.base import JsonObject
from claw_contract.descriptor import DescriptorTool
from claw_contract.manifest import Effect

METADATA = "x-claw-discovery"
_TOOL_MEMBERS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_MEMBERS_OF_A_PERSON = ("description", "auth", "skill", "feeds", "endpoints", "memory")
_PARTS = {
    "description": "description",
    "inputSchema": "schema",
    "annotations": "annotations",
    "outputSchema": "output schema",
    "title": "title",
}
"""The members of a tool, as a change of them is shown; in this order."""
_MAX_NAME = 128
_INVISIBLE = re.compile(r"[^\n\x20-\x7e]")


@dataclass(frozen=True)
class UngrantableTool:
    """A tool that no agent can be granted. ``tool`` is None where a snapshot can't hold it."""

    name: str
    reason: str
    tool: JsonObject | None

    def document(self) -> JsonObject:
        document: JsonObject = {"name": self.name, "reason": self.reason}
        if self.tool is not None:
            document["tool"] = self.tool
        return document


@dataclass(frozen=True)
class SnapshotChange:
    """One tool that differs between two snapshots.

    ``before`` and ``after`` are its effects; None where the tool is not there.
    """

    tool: str
    before: Effect | None
    after: Effect | None
    parts: tuple[str, ...] = ()

    @property
    def kind(self) -> Literal["added", "removed", "changed"]:
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        return "changed"


def build_snapshot(
    listed_tools: Sequence[Any], mcp_path: str, origin: JsonObject, previous: JsonObject | None
) -> tuple[JsonObject, tuple[UngrantableTool, ...]]:
    """Return the snapshot of what a server lists, and the tools that can't be granted.

    ``origin``: the server that was asked, as members of ``x-claw-discovery``.
    """
    grantable: list[JsonObject] = []
    ungrantable: list[UngrantableTool] = []
    counts = Counter(_name(each, index) for index, each in enumerate(listed_tools))
    for index, entry in enumerate(listed_tools):
        name = _name(entry, index)
        tool = _known_members(entry)
        reason = _protocol_objection(entry, counts[name]) or _objection(tool)
        if reason is None:
            grantable.append(tool)
        else:
            ungrantable.append(_make_ungrantable(name, reason, tool))

    # A server may list its tools in any order. Those without a name are told apart by their text.
    grantable.sort(key=lambda tool: str(tool["name"]))
    ungrantable.sort(key=lambda each: (each.name, _canonical(each.tool)))

    by_person = {
        key: value for key, value in (previous or {}).items() if key in _MEMBERS_OF_A_PERSON
    }
    left_out = [each.document() for each in ungrantable]
    metadata = origin | {"digest": sha256(_canonical([grantable, left_out]).encode())}
    if left_out:
        metadata["ungrantable"] = left_out

    document = {
        "version": 2,
        **by_person,
        "mcp": {"transport": "streamable_http", "path": mcp_path},
        "tools": grantable,
        METADATA: metadata,
    }
    return document, tuple(ungrantable)


def render_snapshot(document: JsonObject) -> bytes:
    r"""Return the bytes of a snapshot's file.

    Characters that nobody sees are escaped, so that a review shows them.

    >>> render_snapshot({"a": "é" + chr(0x202E)}).decode()
    '{\n  "a": "é\\u202e"\n}\n'
    """
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return _INVISIBLE.sub(_escape, text).encode()


def _escape(character: re.Match[str]) -> str:
    if character[0].isprintable():
        return character[0]
    return json.dumps(character[0])[1:-1]


def _name(entry: Any, index: int) -> str:
    """Return a tool's name as it is safe to show: bounded, on one line, without control characters.

    A tool without a name has its index in the list.
    """
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        return f"tools[{index}]"
    return escape_controls(name[:_MAX_NAME]).replace("\n", "\\n")


def _known_members(entry: Any) -> JsonObject:
    """Return what MCP defines of a tool, and no member that only our descriptors have.

    A member that is null counts as absent: servers write out what they leave empty.
    """
    members = entry if isinstance(entry, dict) else {}
    return {key: members[key] for key in _TOOL_MEMBERS if members.get(key) is not None}


def _protocol_objection(entry: Any, times: int) -> str | None:
    """Return why the tool can't be called by its name alone; None where it can."""
    if times > 1:
        return f"the server lists this name {times} times"

    execution = entry.get("execution") if isinstance(entry, dict) else None
    if isinstance(execution, dict) and execution.get("taskSupport") == "required":
        return "it runs as a task of MCP only, and the proxy starts none"
    return None


def _objection(tool: JsonObject) -> str | None:
    """Return why the compiler refuses the tool: its first error; None where it has none."""
    descriptor = {"version": 2, "mcp": {"path": "/mcp"}, "tools": [tool]}
    try:
        text = render_snapshot(descriptor).decode()
    except (RecursionError, ValueError):
        return "it can't be written as JSON"

    # A compile will read the file, so the tool is checked as it reads there.
    checked = read_json(Source("", text)).then(lambda root: read_descriptor("", root))
    for diagnostic in checked.diagnostics:
        if diagnostic.is_error:
            return f"{diagnostic.code.name}: {diagnostic.message.removeprefix(FIRST_TOOL)}"
    return None


def _make_ungrantable(name: str, reason: str, tool: JsonObject) -> UngrantableTool:
    """Return the tool with all its members, if the file that holds them can be read again."""
    place = {METADATA: {"ungrantable": [{"tool": tool}]}}
    try:
        is_readable = read_json(Source("", render_snapshot(place).decode())).value is not None
    except (RecursionError, ValueError):
        is_readable = False
    return UngrantableTool(name, reason, tool if is_readable else None)


def ungrantable_reason(metadata: JsonObject | None, name: str) -> str | None:
    """Return why a tool that the server lists can't be granted.

    Return None for one that can be, and for one that the snapshot doesn't have.
    """
    ungrantable = (metadata or {}).get("ungrantable")
    if not isinstance(ungrantable, list):
        return None

    for each in ungrantable:
        if isinstance(each, dict) and each.get("name") == name:
            return str(each.get("reason"))
    return None


def read_snapshot(data: bytes) -> JsonObject | None:
    """Return the document of an earlier snapshot; None for what is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def is_same(before: JsonObject | None, after: JsonObject) -> bool:
    """Return whether two snapshots say the same. The order of keys does not matter."""
    return before is not None and _is_equal(before, after)


def changed_tools(before: JsonObject | None, after: JsonObject) -> tuple[SnapshotChange, ...]:
    """Return the tools that were added, removed or changed, by name."""
    old_tools = _tools(before or {})
    new_tools = _tools(after)

    changes: list[SnapshotChange] = []
    for name in sorted({*old_tools, *new_tools}):
        old = old_tools.get(name)
        new = new_tools.get(name)
        if not _is_equal(old, new):
            parts = tuple(_changed_parts(old, new))
            changes.append(SnapshotChange(name, _effect(old), _effect(new), parts))
    return tuple(changes)


def changed_origin(before: JsonObject | None, after: JsonObject) -> tuple[str, ...]:
    """Return the names of what else differs.

    They are ``command``, ``args``, ``image``, ``server``, ``ungrantable`` and ``mcp``.
    """
    old = _metadata(before or {})
    new = _metadata(after)
    # The digest covers the tools, and their changes are told by ``changed_tools``.
    names = [
        name
        for name in dict.fromkeys((*old, *new))
        if name != "digest" and not _is_equal(old.get(name), new.get(name))
    ]

    if before is not None and not _is_equal(before.get("mcp"), after.get("mcp")):
        names.append("mcp")
    return tuple(dict.fromkeys(names))


def server_of(document: JsonObject | None) -> str:
    """Return name and version of the server, as a snapshot has them; "" where it has none."""
    server = _metadata(document or {}).get("server")
    if not isinstance(server, dict):
        return ""

    words = (server.get("name"), server.get("version"))
    return " ".join(str(word) for word in words if word)


def _tools(document: JsonObject) -> Mapping[str, JsonObject]:
    tools = document.get("tools")
    if not isinstance(tools, list):
        return {}
    return {str(tool.get("name")): tool for tool in tools if isinstance(tool, dict)}


def _metadata(document: JsonObject) -> JsonObject:
    metadata = document.get(METADATA)
    return metadata if isinstance(metadata, dict) else {}


def _effect(tool: JsonObject | None) -> Effect | None:
    if tool is None:
        return None
    try:
        return DescriptorTool.model_validate(tool).effect
    except ValidationError:
        return "unknown"


def _changed_parts(old: JsonObject | None, new: JsonObject | None) -> Iterator[str]:
    """Yield the parts of a tool that differ; of its schema also the properties."""
    if old is None or new is None:
        return

    for key in dict.fromkeys((*_PARTS, *old, *new)):
        if _is_equal(old.get(key), new.get(key)):
            continue

        part = _PARTS.get(key, key)
        more = property_changes(old.get(key), new.get(key)) if key == "inputSchema" else ""
        yield f"{part} ({more})" if more else part


def property_changes(old: Any, new: Any) -> str:
    """Return the properties that a schema gained, lost and changed: ``+limit -max ~url``."""
    before = old.get("properties") if isinstance(old, dict) else None
    after = new.get("properties") if isinstance(new, dict) else None
    if not isinstance(before, dict) or not isinstance(after, dict):
        return ""

    new_names = after.keys() - before.keys()
    old_names = before.keys() - after.keys()
    common = before.keys() & after.keys()
    changed_names = {key for key in common if not _is_equal(before[key], after[key])}
    words = [
        *(f"+{name}" for name in sorted(new_names)),
        *(f"-{name}" for name in sorted(old_names)),
        *(f"~{name}" for name in sorted(changed_names)),
    ]
    return " ".join(words)


def _is_equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON: 1 is not true, and keys have no order."""
    return _canonical(one) == _canonical(other)


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))
