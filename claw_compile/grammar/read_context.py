"""``context.blocks``: texts of the operator's for the system prompt (origin-compile.md 2.10).

Rules. The proxy leaves out a block whose cadence or placement it does not know, so that here they are errors. A list replaces
the pod's; ``[]`` suppresses it. ``context.channel`` belongs to the original: it is carried, and not acted on.
"""

from __future__ import annotations

from typing import Any, Literal

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Note, Span
from claw_compile.grammar.reading import Reading
from claw_compile.grammar.relations import Blocks
from claw_compile.reading.node import Entry, Node, ScalarNode
from claw_contract.context_files import MAX_BLOCK_CHARS, ContextBlock

BLOCK_KEYS = ("id", "kind", "text", "enabled", "cadence", "placement", "max-chars")
PLACEMENTS: tuple[Literal["before_feeds", "after_feeds"], ...] = ("before_feeds", "after_feeds")
LONGEST_ID = 200
DEFAULT_KIND = "context_block"


def read_context(reading: Reading, entry: Entry) -> Blocks | None:
    """``context``; None when it says nothing of blocks, so that the pod's are inherited."""
    entries = reading.keys(entry.value, "'context'", ("blocks", "channel"))
    if "blocks" not in entries:
        is_null = isinstance(entry.value, ScalarNode) and entry.value.is_null
        return Blocks(entry.key.span, ()) if is_null else None
    blocks: dict[str, ContextBlock] = {}
    places: dict[str, Span] = {}
    for item in reading.items(entries["blocks"].value, "'blocks'"):
        block = _block(reading, item)
        if block is not None and block.id in blocks:
            notes = [Note(places[block.id], "the first one is here")]
            reading.found.append(codes.BAD_BLOCK.at(item.span, "two blocks have the same 'id'", notes=notes))
        elif block is not None:
            blocks[block.id], places[block.id] = block, item.span
    return Blocks(entries["blocks"].key.span, tuple(blocks.values()))


def _block(reading: Reading, node: Node) -> ContextBlock | None:
    entries = reading.members(node, "a block", BLOCK_KEYS)
    if entries is None or not reading.require(entries, node.span, "a block", "id", "text"):
        return None
    name = reading.text(entries["id"].value, "'id'")
    text = reading.prose(entries["text"].value, "'text'")
    fields: dict[str, Any] = {"kind": DEFAULT_KIND}
    if "kind" in entries and (word := reading.text(entries["kind"].value, "'kind'")) is not None:
        fields["kind"] = word.text
    if "enabled" in entries:
        fields["enabled"] = reading.flag(entries["enabled"].value, "'enabled'")
    if "cadence" in entries:
        fields["cadence"] = reading.choice(entries["cadence"].value, "'cadence'", ("every_turn",)) or "every_turn"
    if "placement" in entries:
        fields["placement"] = reading.choice(entries["placement"].value, "'placement'", PLACEMENTS) or "after_feeds"
    most = reading.limit(entries["max-chars"].value, "'max-chars'") if "max-chars" in entries else None
    fields["max_chars"] = most or MAX_BLOCK_CHARS
    if name is None or text is None:
        return None
    if len(name.text) > LONGEST_ID or not text.strip():
        what = "'text' must not be empty" if not text.strip() else f"'id' has at most {LONGEST_ID} characters"
        reading.found.append(codes.BAD_BLOCK.at(node.span, what))
        return None
    if len(text.strip()) > fields["max_chars"]:
        message = f"the text has {len(text.strip())} characters, of which {fields['max_chars']} are shown"
        reading.found.append(codes.BLOCK_IS_CUT.at(entries["text"].value.span, message))
    return ContextBlock(id=name.text, text=text, **fields)
