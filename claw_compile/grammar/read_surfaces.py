"""``surfaces``: what an agent reaches beside its tools (spec/compile.md "Defaults"; origin-compile.md 2.4).

Rules. ``service://X``, ``volume://N [ro|rw]``, ``host:///abs [ro|rw]``, ``channel://P``, ``egress://``. Without a mode a volume
or host is read-only. The map form is for ``channel://`` only, and holds the runner's configuration of that channel.
"""

from __future__ import annotations

import re
from typing import cast

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quoted
from claw_compile.grammar.pod import Access, Listed, Scheme, Surface
from claw_compile.grammar.read_list import read_list
from claw_compile.grammar.reader import Reading
from claw_compile.parsing.node import Entry, MapNode, Node

SCHEMES = ("service", "volume", "host", "channel", "egress")
CHANNEL = "channel://"
CHANNEL_KEYS = ("allow_from_handles", "allow_from_services", "guilds", "dm")
_SURFACE = re.compile(r"(?P<scheme>[a-z]+)://(?P<target>\S*)(\s+(?P<mode>\S+))?\s*")
_ACCESS: dict[str, Access] = {"ro": "ro", "read-only": "ro", "rw": "rw", "read-write": "rw"}
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def read_surfaces(reading: Reading, entry: Entry) -> Listed[Surface]:
    """``surfaces`` or ``surfaces-defaults``."""
    return read_list(reading, entry, _surface)


def _surface(reading: Reading, node: Node) -> Surface | None:
    channel: MapNode | None = None
    if isinstance(node, MapNode) and len(node.entries) == 1 and node.entries[0].key.text.startswith(CHANNEL):
        channel = _channel(reading, node.entries[0])
        node = node.entries[0].key
    word = reading.text(node, "a surface")
    if word is None:
        return None
    match = _SURFACE.fullmatch(word.text)
    problem = _problem(match) if match else "it has no 'scheme://'"
    if match is None or problem:
        reading.found.append(codes.BAD_SURFACE.at(node.span, f"{quoted(word.shown)} is not a surface: {problem}"))
        return None
    scheme = cast("Scheme", match["scheme"])
    mode = _ACCESS[match["mode"] or "ro"] if scheme in {"volume", "host"} else None
    return Surface(scheme, match["target"], node.span, word.shown, mode, channel)


def _problem(match: re.Match[str]) -> str | None:
    scheme, target, mode = match["scheme"], match["target"], match["mode"]
    if scheme not in SCHEMES:
        return "unknown scheme"
    if scheme != "egress" and not target:
        return "it names no target"
    if scheme == "host" and (not target.startswith("/") or ".." in target.split("/")):
        return "the path is not absolute"
    if scheme == "volume" and not _VOLUME.fullmatch(target):
        return "a volume's name is [A-Za-z0-9][A-Za-z0-9_.-]*"
    if mode and (scheme not in {"volume", "host"} or mode not in _ACCESS):
        return "a mode that it does not take"
    return None


def _channel(reading: Reading, entry: Entry) -> MapNode | None:
    """What the runner is told of the channel: it is carried as it is, so that only its first level is judged."""
    node = reading.mapping(entry.value, "a channel's configuration")
    if node is None:
        return None
    entries = reading.keys(node, "a channel", CHANNEL_KEYS)
    if "allow_from_handles" in entries:
        reading.flag(entries["allow_from_handles"].value, "'allow_from_handles'")
    if "allow_from_services" in entries:
        reading.texts(entries["allow_from_services"].value, "'allow_from_services'")
    for key in ("guilds", "dm"):
        if key in entries:
            reading.mapping(entries[key].value, quoted(key))
    return node
