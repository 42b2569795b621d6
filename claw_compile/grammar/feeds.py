"""``feeds``, ``skills`` and ``memory`` (docs/spec/compile.md "Grammar").

Rules. A feed is known by its name, or by ``service/name`` where several services declare it; a mapping declares one of its own.
A skill is a path. A memory is one service, replaced whole: a time-out that is left out is the contract's, not the pod's.
"""

from __future__ import annotations

from claw_compile import codes
from claw_compile.grammar.pod import MEMORY_TIMEOUT_MS, Feed, MemorySetting, NamedFeed, OwnFeed, Skill
from claw_compile.grammar.shapes import Conversion, Key, Limit, Members, Prose, Record, ScalarOr, SpreadList, Text
from claw_compile.parsing.node import ScalarNode

_PATH = r"/(?!(?:[^?]*/)?\.\.(?:[/?]|$))[^\s#\\]*"
_MAX_NAME = 200

_NAME = Key("name", Text(max_length=_MAX_NAME), "What the model knows it by.")
_SOURCE = Key("source", Text(), "The service that has it.")
_FEED_PATH = Key(
    "path",
    Text(_PATH, "{shown} is no path of a service", codes.BAD_PATH),
    "Where the service has it; {claw_id} is the agent.",
)
_TTL = Key("ttl", Limit(), "For how many seconds it is good.")
_DESCRIPTION = Key("description", Prose(), "What it is.")


def _build_feed(members: Members) -> Feed | None:
    name, source, path = members[_NAME], members[_SOURCE], members[_FEED_PATH]
    ttl, description = members[_TTL], members[_DESCRIPTION] or ""
    if name is None or source is None or path is None:
        return None
    return OwnFeed(name, source, path, ttl, description, members.place.span)


_OWN_FEED = Record[Feed](
    (_NAME, _SOURCE, _FEED_PATH, _TTL, _DESCRIPTION), _build_feed, "a feed", required=(_NAME, _SOURCE, _FEED_PATH)
)
_FEED = ScalarOr[Feed](
    Conversion[ScalarNode, Feed](Text(name="a feed"), lambda _reader, name, _node: NamedFeed(name)), _OWN_FEED
)
FEEDS = SpreadList[Feed](_FEED)
DEFAULT_FEEDS = SpreadList[Feed](_FEED, is_default=True)

_SKILL = Conversion(Text(name="a skill"), lambda _reader, path, _node: Skill(path))
SKILLS = SpreadList(_SKILL)
DEFAULT_SKILLS = SpreadList(_SKILL, is_default=True)

_SERVICE = Key("service", Text(), "The service that remembers; its descriptor declares 'memory'.")
_TIMEOUT = Key("timeout-ms", Limit(), "How long a turn waits for it.", MEMORY_TIMEOUT_MS)


def _build_memory(members: Members) -> MemorySetting:
    return MemorySetting(members.place.span, members[_SERVICE], members[_TIMEOUT] or MEMORY_TIMEOUT_MS)


MEMORY = Record((_SERVICE, _TIMEOUT), _build_memory, required=(_SERVICE,), is_nullable=True)
