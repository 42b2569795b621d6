"""Parts of agents' prompts: ``feeds``, ``skills``, ``memory`` and ``context``.

The rules (docs/spec/compile.md, "Grammar"):

- A feed is named alone, or as ``service/name`` where several services declare it. A mapping
  declares a feed of the pod's own.
- A skill is a path.
- A memory is one service, replaced whole: a timeout that is left out is the contract's default, not
  the pod's.
- A list of context blocks replaces the pod's; ``[]`` suppresses it. The proxy leaves out a block
  whose cadence or placement it does not know, so here they are errors.
- ``context.channel`` belongs to the original system: it is carried, and not acted on.
"""

from typing import Literal

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Note, Span
from claw_compile.grammar import shapes
from claw_compile.grammar.pod import MEMORY_TIMEOUT_MS, ContextSetting, Feed, MemorySetting, OwnFeed
from claw_compile.grammar.reader import Reader, is_null
from claw_compile.parsing.node import Node
from claw_contract.context_files import MAX_BLOCK_CHARS, ContextBlock

# A path that may have a query. A segment ``..`` could lead out of the base URL's path.
_PATH = r"/(?!(?:[^?]*/)?\.\.(?:[/?]|$))[^\s#\\]*"
_MAX_NAME = 200

_NAME = shapes.Key("name", shapes.Text(max_length=_MAX_NAME), "The feed's name in the prompt.")
_SOURCE = shapes.Key("source", shapes.Text(), "The service that provides it.")
_FEED_PATH = shapes.Key(
    "path",
    shapes.Text(_PATH, "{shown} is no path of a service", codes.BAD_PATH),
    "Its path at the service; {claw_id} becomes the agent's id.",
)
_TTL = shapes.Key("ttl", shapes.Limit(), "How many seconds it may be reused.")
_DESCRIPTION = shapes.Key("description", shapes.Prose(), "What the feed contains.")


def _build_feed(members: shapes.Members) -> Feed | None:
    name = members[_NAME]
    source = members[_SOURCE]
    path = members[_FEED_PATH]
    ttl = members[_TTL]
    description = members[_DESCRIPTION] or ""

    if name is None or source is None or path is None:
        return None
    return OwnFeed(name, source, path, ttl, description, members.place.span)


_OWN_FEED = shapes.Record[Feed](
    (_NAME, _SOURCE, _FEED_PATH, _TTL, _DESCRIPTION),
    _build_feed,
    "a feed",
    required=(_NAME, _SOURCE, _FEED_PATH),
)
_FEED = shapes.ScalarOr[Feed](shapes.Text(name="a feed"), _OWN_FEED)
FEEDS = shapes.SpreadList[Feed](_FEED)
DEFAULT_FEEDS = shapes.SpreadList[Feed](_FEED, is_default=True)

_SKILL = shapes.Text(name="a skill")
SKILLS = shapes.SpreadList(_SKILL)
DEFAULT_SKILLS = shapes.SpreadList(_SKILL, is_default=True)

_SERVICE = shapes.Key(
    "service", shapes.Text(), "The service that remembers; its descriptor declares 'memory'."
)
_TIMEOUT = shapes.Key(
    "timeout-ms", shapes.Limit(), "How many milliseconds a turn waits for it.", MEMORY_TIMEOUT_MS
)


def _build_memory(members: shapes.Members) -> MemorySetting:
    timeout_ms = members[_TIMEOUT] or MEMORY_TIMEOUT_MS
    return MemorySetting(members.place.span, members[_SERVICE], timeout_ms)


MEMORY = shapes.Record((_SERVICE, _TIMEOUT), _build_memory, required=(_SERVICE,), is_nullable=True)

PLACEMENTS: tuple[Literal["before_feeds", "after_feeds"], ...] = ("before_feeds", "after_feeds")
_CADENCES: tuple[Literal["every_turn"], ...] = ("every_turn",)
_MAX_ID = 200


def _block_text(reader: Reader, text: str, node: Node) -> str | None:
    if text.strip():
        return text
    reader.report(codes.BAD_BLOCK, node.span, "'text' must not be empty")
    return None


_BLOCK_ID = shapes.Key(
    "id",
    shapes.Text(max_length=_MAX_ID, code=codes.BAD_BLOCK),
    "The block's name, unique in its list.",
)
_BLOCK_TEXT = shapes.Key(
    "text",
    shapes.Conversion(shapes.Prose(), _block_text, shapes.Text().json_schema()),
    "What is put into the system prompt.",
)
_KIND = shapes.Key("kind", shapes.Text(), "What the model is told that it is.", "context_block")
_ENABLED = shapes.Key("enabled", shapes.Flag(), "Whether it is shown.", default=True)
_CADENCE = shapes.Key("cadence", shapes.Choice(_CADENCES), "When it is shown.", "every_turn")
_PLACEMENT = shapes.Key(
    "placement", shapes.Choice(PLACEMENTS), "Where in the system prompt it goes.", "after_feeds"
)
_MAX_CHARS = shapes.Key(
    "max-chars", shapes.Limit(), "How many characters of it are shown.", MAX_BLOCK_CHARS
)


def _build_block(members: shapes.Members) -> tuple[Span, ContextBlock] | None:
    name = members[_BLOCK_ID]
    text = members[_BLOCK_TEXT]
    kind = members[_KIND]
    enabled = members[_ENABLED]
    cadence = members[_CADENCE] or "every_turn"
    placement = members[_PLACEMENT] or "after_feeds"
    max_chars = members[_MAX_CHARS] or MAX_BLOCK_CHARS
    if name is None or text is None:
        return None

    length = len(text.strip())
    if length > max_chars:
        message = f"the text has {length} characters, of which {max_chars} are shown"
        at = members.entries[_BLOCK_TEXT.name].value.span
        members.reader.report(codes.BLOCK_IS_CUT, at, message)

    block = ContextBlock(
        id=name.text,
        text=text,
        kind=kind.text if kind else _KIND.default,
        enabled=enabled,
        cadence=cadence,
        placement=placement,
        max_chars=max_chars,
    )
    return members.place.span, block


_BLOCK = shapes.Record(
    (_BLOCK_ID, _BLOCK_TEXT, _KIND, _ENABLED, _CADENCE, _PLACEMENT, _MAX_CHARS),
    _build_block,
    "a block",
    required=(_BLOCK_ID, _BLOCK_TEXT),
)
_BLOCKS = shapes.Key("blocks", shapes.ListOf(_BLOCK), "The operator's texts for the system prompt.")
_CHANNEL = shapes.Key(
    "channel",
    shapes.AnyValue(),
    "A key of the original system: carried, and not acted on.",
    deprecated=True,
)


def _build_context(members: shapes.Members) -> ContextSetting | None:
    """Return the blocks, or None to inherit the pod's when the context has none."""
    if _BLOCKS not in members:
        return ContextSetting(members.place.span, ()) if is_null(members.node) else None

    blocks: dict[str, ContextBlock] = {}
    places: dict[str, Span] = {}
    for span, block in members[_BLOCKS] or ():
        if block.id in blocks:
            notes = [Note(places[block.id], "the first one is here")]
            message = "two blocks have the same 'id'"
            members.reader.report(codes.BAD_BLOCK, span, message, notes=notes)
            continue

        blocks[block.id] = block
        places[block.id] = span

    key = members.entries[_BLOCKS.name].key
    return ContextSetting(key.span, tuple(blocks.values()))


CONTEXT = shapes.Record((_BLOCKS, _CHANNEL), _build_context, is_nullable=True)
