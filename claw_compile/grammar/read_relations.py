"""``feeds``, ``skills`` and ``memory`` (spec/compile.md "Grammar"; origin-compile.md 2.6, 2.9).

Rules. A feed is known by its name, or by ``service/name`` where several services declare it; a mapping declares one of its own.
A skill is a path. A memory is one service, replaced whole: a time-out that is left out is the contract's, not the pod's.
"""

from __future__ import annotations

import re

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quoted
from claw_compile.grammar.pod import Listed
from claw_compile.grammar.read_list import read_list
from claw_compile.grammar.reader import Reading
from claw_compile.grammar.relations import MEMORY_TIMEOUT_MS, Feed, MemoryOf, NamedFeed, OwnFeed, Skill
from claw_compile.parsing.node import Entry, MapNode, Node, ScalarNode

FEED_KEYS = ("name", "source", "path", "ttl", "description")
_PATH = re.compile(r"/[^\s#\\]*")
LONGEST_NAME = 200


def read_feeds(reading: Reading, entry: Entry) -> Listed[Feed]:
    """``feeds`` or ``feeds-defaults``."""
    return read_list(reading, entry, _feed)


def _feed(reading: Reading, node: Node) -> Feed | None:
    if isinstance(node, ScalarNode):
        name = reading.text(node, "a feed")
        return NamedFeed(name) if name else None
    entries = reading.members(node, "a feed", FEED_KEYS)
    if entries is None or not reading.require(entries, node.span, "a feed", "name", "source", "path"):
        return None
    name = reading.text(entries["name"].value, "'name'")
    source = reading.text(entries["source"].value, "'source'")
    path = reading.text(entries["path"].value, "'path'")
    ttl = reading.limit(entries["ttl"].value, "'ttl'") if "ttl" in entries else None
    description = reading.prose(entries["description"].value, "'description'") if "description" in entries else ""
    if path is not None and not (_PATH.fullmatch(path.text) and ".." not in path.text.split("?")[0].split("/")):
        reading.found.append(codes.BAD_PATH.at(path.span, f"{quoted(path.shown)} is no path of a service"))
        return None
    if name is not None and len(name.text) > LONGEST_NAME:
        reading.found.append(codes.BAD_VALUE.at(name.span, f"a feed's name has at most {LONGEST_NAME} characters"))
        return None
    return OwnFeed(name, source, path, ttl, description or "", node.span) if name and source and path else None


def read_skills(reading: Reading, entry: Entry) -> Listed[Skill]:
    """``skills`` or ``skills-defaults``."""
    return read_list(reading, entry, _skill)


def _skill(reading: Reading, node: Node) -> Skill | None:
    path = reading.text(node, "a skill")
    return Skill(path) if path else None


def read_memory(reading: Reading, entry: Entry) -> MemoryOf:
    """``memory`` or ``memory-defaults``."""
    node, what = entry.value, quoted(entry.key.text)
    if isinstance(node, ScalarNode) and node.is_null:
        return MemoryOf(entry.key.span, None)
    entries = reading.keys(node, what, ("service", "timeout-ms"))
    service = None
    if isinstance(node, MapNode) and reading.require(entries, node.span, what, "service"):
        service = reading.text(entries["service"].value, "'service'")
    timeout = reading.limit(entries["timeout-ms"].value, "'timeout-ms'") if "timeout-ms" in entries else None
    return MemoryOf(entry.key.span, service, timeout or MEMORY_TIMEOUT_MS)
