"""The snapshot that ``claw discover`` writes: a descriptor of version 2 with a server's tools
(docs/spec/mcp.md "Discovery").

Rules. The same list of tools gives the same bytes: tools stand in the order of their names, and a
schema keeps its order. A tool that the compiler would refuse, or whose name the server lists twice,
stands in ``x-claw-discovery.ungrantable`` with the reason, so that it costs no other tool. What
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
_PARTS = {"description": "description", "inputSchema": "schema", "annotations": "annotations"} | {
    "outputSchema": "output schema",
    "title": "title",
}
_MAX_NAME = 128
_INVISIBLE = re.compile(r"[^\n\x20-\x7e]")


@dataclass(frozen=True)
class UngrantableTool:
    """A tool that no agent can be granted. ``tool`` is None where a snapshot can't hold it."""

    name: str
    reason: str
    tool: JsonObject | None

    def document(self) -> JsonObject:
        return {"name": self.name, "reason": self.reason} | (
            {"tool": self.tool} if self.tool is not None else {}
        )


@dataclass(frozen=True)
class SnapshotChange:
    """One tool that differs between two snapshots; an effect is None where the tool
    is not there.
    """

    tool: str
    before: Effect | None
    after: Effect | None
    parts: tuple[str, ...] = ()

    @property
    def kind(self) -> Literal["added", "removed", "changed"]:
        return "added" if self.before is None else "removed" if self.after is None else "changed"


def build_snapshot(
    listed: Sequence[Any], mcp_path: str, origin: JsonObject, previous: JsonObject | None
) -> tuple[JsonObject, tuple[UngrantableTool, ...]]:
    """Return the snapshot of what a server lists, and the tools that it keeps back.

    ``origin``: of what it was taken.
    """
    counts = Counter(_name(each, index) for index, each in enumerate(listed))
    grantable: list[JsonObject] = []
    ungrantable: list[UngrantableTool] = []
    for index, entry in enumerate(listed):
        name, tool = _name(entry, index), _known_members(entry)
        reason = _protocol_objection(entry, counts[name]) or _objection(tool)
        if reason is None:
            grantable.append(tool)
        else:
            ungrantable.append(_held_back(name, reason, tool))
    grantable.sort(key=lambda tool: str(tool["name"]))
    ungrantable.sort(key=lambda each: (each.name, _canonical(each.tool)))
    kept = {key: value for key, value in (previous or {}).items() if key in _MEMBERS_OF_A_PERSON}
    left_out = [each.document() for each in ungrantable]
    metadata = origin | {"digest": sha256(_canonical([grantable, left_out]).encode())}
    document = {
        "version": 2,
        **kept,
        "mcp": {"transport": "streamable_http", "path": mcp_path},
        "tools": grantable,
        METADATA: metadata | ({"ungrantable": left_out} if left_out else {}),
    }
    return document, tuple(ungrantable)


def render_snapshot(document: JsonObject) -> bytes:
    r"""Return the bytes of a snapshot's file.

    Characters that nobody sees are escaped, so that a review shows them.

    >>> render_snapshot({"a": "é" + chr(0x202E)}).decode()
    '{\n  "a": "é\\u202e"\n}\n'
    """
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return _INVISIBLE.sub(
        lambda sign: sign[0] if sign[0].isprintable() else json.dumps(sign[0])[1:-1], text
    ).encode()


def _name(entry: Any, index: int) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return (
        escape_controls(name[:_MAX_NAME]).replace("\n", "\\n")
        if isinstance(name, str) and name
        else f"tools[{index}]"
    )


def _known_members(entry: Any) -> JsonObject:
    """Return what MCP defines of a tool, and no member that only our descriptors have.

    Null is as good as absent.
    """
    members = entry if isinstance(entry, dict) else {}
    return {key: members[key] for key in _TOOL_MEMBERS if members.get(key) is not None}


def _protocol_objection(entry: Any, times: int) -> str | None:
    """Return why the tool can't be called by its name alone; None where it can."""
    if times > 1:
        return f"the server lists this name {times} times"
    execution = entry.get("execution") if isinstance(entry, dict) else None
    needs_task = isinstance(execution, dict) and execution.get("taskSupport") == "required"
    return "it runs as a task of MCP only, and the proxy starts none" if needs_task else None


def _objection(tool: JsonObject) -> str | None:
    """Return why the compiler refuses the tool: its first error; None where it has none."""
    descriptor = {"version": 2, "mcp": {"path": "/mcp"}, "tools": [tool]}
    try:
        text = render_snapshot(descriptor).decode()
    except (RecursionError, ValueError):
        return "it can't be written as JSON"
    checked = read_json(Source("", text)).then(lambda root: read_descriptor("", root))
    error = next((each for each in checked.diagnostics if each.is_error), None)
    return (
        f"{error.code.name}: {error.message.removeprefix(FIRST_TOOL)}"
        if error is not None
        else None
    )


def _held_back(name: str, reason: str, tool: JsonObject) -> UngrantableTool:
    try:
        place = {METADATA: {"ungrantable": [{"tool": tool}]}}
        is_readable = read_json(Source("", render_snapshot(place).decode())).value is not None
    except (RecursionError, ValueError):
        is_readable = False
    return UngrantableTool(name, reason, tool if is_readable else None)


def ungrantable_reason(metadata: JsonObject | None, name: str) -> str | None:
    """Return why a tool that the server lists can't be granted; None for one that a
    snapshot does not hold back.
    """
    held_back = (metadata or {}).get("ungrantable")
    entries = (
        [each for each in held_back if isinstance(each, dict)]
        if isinstance(held_back, list)
        else []
    )
    return next((str(each.get("reason")) for each in entries if each.get("name") == name), None)


def read_snapshot(data: bytes) -> JsonObject | None:
    """Return the document of an earlier snapshot; None for what is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def is_same(before: JsonObject | None, after: JsonObject) -> bool:
    """Return whether two snapshots say the same. The order of keys does not matter."""
    return before is not None and _canonical(before) == _canonical(after)


def changed_tools(before: JsonObject | None, after: JsonObject) -> tuple[SnapshotChange, ...]:
    """Return the tools that were added, removed or changed, by name."""
    old, new = _tools(before or {}), _tools(after)
    return tuple(
        SnapshotChange(
            name,
            _effect(old.get(name)),
            _effect(new.get(name)),
            tuple(_parts(old.get(name), new.get(name))),
        )
        for name in sorted({*old, *new})
        if _canonical(old.get(name)) != _canonical(new.get(name))
    )


def changed_origin(before: JsonObject | None, after: JsonObject) -> tuple[str, ...]:
    """Return the names of what else differs: ``command``, ``args``, ``image``,
    ``server``, ``ungrantable``, ``mcp``.
    """
    old, new = _metadata(before or {}), _metadata(after)
    names = [
        name
        for name in (*old, *new)
        if name != "digest" and _canonical(old.get(name)) != _canonical(new.get(name))
    ]
    differs = before is not None and _canonical(before.get("mcp")) != _canonical(after.get("mcp"))
    return tuple(dict.fromkeys([*names, *(["mcp"] if differs else [])]))


def server_of(document: JsonObject | None) -> str:
    """Return name and version of the server, as a snapshot has them; "" where it has none."""
    server = _metadata(document or {}).get("server")
    words = (server.get("name"), server.get("version")) if isinstance(server, dict) else ()
    return " ".join(str(word) for word in words if word)


def _tools(document: JsonObject) -> Mapping[str, JsonObject]:
    tools = document.get("tools")
    entries = [each for each in tools if isinstance(each, dict)] if isinstance(tools, list) else []
    return {str(tool.get("name")): tool for tool in entries}


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


def _parts(old: JsonObject | None, new: JsonObject | None) -> Iterator[str]:
    if old is None or new is None:
        return
    for key in dict.fromkeys((*_PARTS, *old, *new)):
        if _canonical(old.get(key)) != _canonical(new.get(key)):
            more = property_changes(old.get(key), new.get(key)) if key == "inputSchema" else ""
            yield _PARTS.get(key, key) + (f" ({more})" if more else "")


def property_changes(old: Any, new: Any) -> str:
    """Return the properties that a schema gained, lost and changed: ``+limit -max ~url``."""
    before, after = (
        each.get("properties") if isinstance(each, dict) else None for each in (old, new)
    )
    if not isinstance(before, dict) or not isinstance(after, dict):
        return ""
    signs = [("+", after.keys() - before.keys()), ("-", before.keys() - after.keys())]
    signs.append(
        (
            "~",
            {
                key
                for key in before.keys() & after.keys()
                if _canonical(before[key]) != _canonical(after[key])
            },
        )
    )
    return " ".join(f"{sign}{name}" for sign, names in signs for name in sorted(names))


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))
