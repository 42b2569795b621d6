"""Views of Anthropic messages: wire JSON that is read and never rebuilt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec


class Block(msgspec.Struct):
    """A content block of any type."""

    type: str = ""
    text: Any = None
    id: Any = None
    name: Any = None
    input: msgspec.Raw = msgspec.Raw(b"{}")


type Content = str | list[Block] | None


class Message(NamedTuple):
    """A message. ``content`` is None where it is absent, or of a form that we do not know."""

    role: Any
    content: Content


read_content: msgspec.json.Decoder[Content] = msgspec.json.Decoder(Content.__value__)
read_block = msgspec.json.Decoder(Block)


def visible_text(content: Content) -> str:
    """Return the visible text of a content: a string, blocks, or nothing. Thinking is not part of it."""
    return "".join(text_blocks(content))


def text_blocks(content: Content) -> Sequence[str]:
    """Return the same, block by block."""
    if isinstance(content, str):
        return [content]
    return [block.text for block in content or () if block.type == "text" and isinstance(block.text, str)]


def call_ids(content: Content) -> Sequence[str]:
    """Return the ids of the calls in a content."""
    if not isinstance(content, list):
        return ()
    return [block.id if isinstance(block.id, str) else "" for block in content if block.type == "tool_use"]
