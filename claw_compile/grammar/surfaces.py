"""``surfaces``: what an agent reaches beside its tools (docs/spec/compile.md "Defaults").

Rules. ``service://X``, ``volume://N [ro|rw]``, ``host:///abs [ro|rw]``, ``channel://P``, ``egress://``. Without a mode a volume
or host is read-only. The map form is for ``channel://`` only, and holds the runner's configuration of that channel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quote
from claw_compile.grammar.pod import Access, Scheme, Surface
from claw_compile.grammar.reader import Reader
from claw_compile.grammar.shapes import AnyMapping, Flag, Key, ListOf, Members, Place, Record, Schema, SpreadList, Text
from claw_compile.parsing.node import MapNode, Node

SCHEMES = ("service", "volume", "host", "channel", "egress")
_CHANNEL = "channel://"
_VOLUME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_ACCESS: dict[str, Access] = {"ro": "ro", "read-only": "ro", "rw": "rw", "read-write": "rw"}
_SURFACE = re.compile(r"(?P<scheme>[a-z]+)://(?P<target>\S*)(\s+(?P<mode>\S+))?\s*")
_MODE_SCHEMA = rf"(?:\s+(?:{'|'.join(_ACCESS)}))?\s*"
_SURFACE_SCHEMA = "|".join(
    (
        r"service://\S+\s*",
        rf"volume://{_VOLUME}{_MODE_SCHEMA}",
        rf"host:///(?!\S*(?:/\.\.|^\.\.)(?:/|\s|$))(?!\.\.(?:/|\s|$))\S*{_MODE_SCHEMA}",
        r"channel://\S+\s*",
        r"egress://\S*\s*",
    )
)

_CHANNEL_KEYS = (
    Key("allow_from_handles", Flag(), "Whether those with a handle may write to the agent."),
    Key("allow_from_services", ListOf(Text()), "Which services may write to the agent."),
    Key("guilds", AnyMapping(), "Guilds of the channel, as its runner takes them."),
    Key("dm", AnyMapping(), "Direct messages, as the runner takes them."),
)


def _build_channel(members: Members) -> MapNode | None:
    """Check the first level of a channel's configuration; the runner gets it as it is."""
    for key in _CHANNEL_KEYS:
        members[key]
    return members.node if isinstance(members.node, MapNode) else None


_CHANNEL_RECORD = Record(_CHANNEL_KEYS, _build_channel, "a channel", is_nullable=True)


@dataclass(frozen=True)
class _SurfaceShape:
    """One entry of ``surfaces``."""

    def read(self, reader: Reader, node: Node, place: Place) -> Surface | None:
        channel: MapNode | None = None
        if isinstance(node, MapNode) and len(node.entries) == 1 and node.entries[0].key.text.startswith(_CHANNEL):
            channel = _CHANNEL_RECORD.read(reader, node.entries[0].value, place)
            node = node.entries[0].key
        word = reader.text(node, "a surface")
        if word is None:
            return None
        match = _SURFACE.fullmatch(word.text)
        problem = _problem(match) if match else "it has no 'scheme://'"
        if match is None or problem:
            reader.report(codes.BAD_SURFACE, node.span, f"{quote(word.shown)} is not a surface: {problem}")
            return None
        scheme = cast("Scheme", match["scheme"])
        mode = _ACCESS[match["mode"] or "ro"] if scheme in {"volume", "host"} else None
        return Surface(scheme, match["target"], node.span, word.shown, mode, channel)

    def json_schema(self) -> Schema:
        channel: Schema = {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "propertyNames": {"pattern": rf"^{_CHANNEL}\S+\s*$"},
            "additionalProperties": _CHANNEL_RECORD.json_schema(),
        }
        return {"anyOf": [Text(_SURFACE_SCHEMA).json_schema(), channel]}


def _problem(match: re.Match[str]) -> str | None:
    scheme, target, mode = match["scheme"], match["target"], match["mode"]
    if scheme not in SCHEMES:
        return "unknown scheme"
    if scheme != "egress" and not target:
        return "it names no target"
    if scheme == "host" and (not target.startswith("/") or ".." in target.split("/")):
        return "the path is not absolute"
    if scheme == "volume" and not re.fullmatch(_VOLUME, target):
        return f"a volume's name is {_VOLUME}"
    if mode and (scheme not in {"volume", "host"} or mode not in _ACCESS):
        return "it takes no such mode"
    return None


SURFACES = SpreadList(_SurfaceShape())
DEFAULT_SURFACES = SpreadList(_SurfaceShape(), is_default=True)
