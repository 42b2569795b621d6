"""Hidden rounds that a request has no room for, as one line a call (spec section 7): Anthropic."""

from __future__ import annotations

import msgspec

from claw_mediate.core import json_splice, summary
from claw_mediate.dialects.anthropic.wire_types import read_block
from claw_mediate.dialects.body_edits import compact

_THOUGHT = ("thinking", "redacted_thinking")


def shortened(messages: bytes) -> bytes:
    """Hidden messages with their calls and how each went; what was said, sent and answered is left out.

    What was thought before a call stays: it is signed, and the API takes the call with all of it or not at all.
    """
    array = b"[%b]" % messages
    return b",".join(_message(array[start:end]) for start, end in json_splice.elements(array))


def _message(message: bytes) -> bytes:
    read = json_splice.Object(message)
    content = read.value("content") or b"[]"
    blocks = [_block(content[start:end]) for start, end in json_splice.elements(content)]
    return read.edited({"content": b"[%b]" % b",".join(filter(None, blocks))})


def _block(block: bytes) -> bytes:
    view = read_block.decode(block)
    if view.type == "tool_use":
        less = summary.arguments(bytes(view.input).decode())
        return block if less is None else json_splice.edited(block, {"input": compact(less)})
    if view.type == "tool_result":
        told = msgspec.json.decode(json_splice.Object(block).value("content") or b'""', type=str)
        return json_splice.edited(block, {"content": compact(summary.result(told))})
    return block if view.type in _THOUGHT else b""
