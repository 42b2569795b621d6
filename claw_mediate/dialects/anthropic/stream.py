"""A finished Anthropic message as one well-formed stream (docs/spec/mediation.md section 6).

One ``message_start``, block indexes 0, 1, 2 … without gaps, every block type with its own deltas (text and its citations,
thinking and its signature, the input of calls), all other blocks whole; ``message_delta`` with the stop reason and the usage,
``message_stop``. Members that we do not know travel as they are. The usage is always there: an SDK breaks without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from claw_mediate.dialects import sse
from claw_mediate.dialects.base import RunnerRequest, StreamOpening
from claw_mediate.dialects.sse import (
    Members,
    as_raw,
    split_array,
    split_object,
    split_text,
    string_member,
    without_line_breaks,
)

_FINAL_MEMBERS = ("stop_reason", "stop_sequence")


def stream(body: bytes, request: RunnerRequest, opening: StreamOpening | None = None) -> Iterator[bytes]:
    del request, opening
    message = split_object(without_line_breaks(body))
    usage = _usage(message.get("usage"))
    final = as_raw({name: message.pop(name, b"null") for name in _FINAL_MEMBERS})
    content = split_array(message.pop("content"))
    opening_message: dict[str, Any] = {
        **as_raw(message),
        "content": [],
        **dict.fromkeys(_FINAL_MEMBERS),
        "usage": {**usage, "output_tokens": 0},
    }
    yield _event("message_start", message=opening_message)
    for index, block in enumerate(content):
        start, deltas = _block(split_object(block))
        yield _event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta=final, usage=usage)
    yield _event("message_stop")


def _block(block: Members) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """Return the beginning of a block, and the deltas that complete it."""
    match string_member(block, "type"):
        case "text" if string_member(block, "text") is not None:
            return _empty_block(block, text=""), _text_deltas(block)
        case "thinking" if string_member(block, "thinking") is not None:
            return _empty_block(block, thinking="", signature=""), _thinking_deltas(block)
        case "tool_use" | "server_tool_use" | "mcp_tool_use" if block.get("input", b"")[:1] == b"{":
            return _empty_block(block, input={}), _input_deltas(block)
        case _:
            return as_raw(block), iter(())


def _empty_block(block: Members, **empty: Any) -> dict[str, Any]:
    return {**as_raw(block), **empty, **({"citations": []} if _citations(block) else {})}


def _text_deltas(block: Members) -> Iterator[dict[str, Any]]:
    for piece in split_text(string_member(block, "text") or ""):
        yield {"type": "text_delta", "text": piece}
    for citation in _citations(block):
        yield {"type": "citations_delta", "citation": citation}


def _thinking_deltas(block: Members) -> Iterator[dict[str, Any]]:
    for piece in split_text(string_member(block, "thinking") or ""):
        yield {"type": "thinking_delta", "thinking": piece}
    if signature := string_member(block, "signature"):
        yield {"type": "signature_delta", "signature": signature}


def _input_deltas(block: Members) -> Iterator[dict[str, Any]]:
    for piece in split_text(block["input"].decode()):
        yield {"type": "input_json_delta", "partial_json": piece}


def _citations(block: Members) -> list[msgspec.Raw]:
    raw = block.get("citations")
    return msgspec.json.decode(raw, type=list[msgspec.Raw]) if raw is not None and raw[:1] == b"[" else []


def _usage(raw: bytes | None) -> dict[str, Any]:
    usage = msgspec.json.decode(raw) if raw is not None else None
    counts = {"input_tokens": 0, "output_tokens": 0}
    return {**counts, **usage} if isinstance(usage, dict) else counts


def _event(name: str, **members: Any) -> bytes:
    return sse.event(msgspec.json.encode({"type": name, **members}), name)
