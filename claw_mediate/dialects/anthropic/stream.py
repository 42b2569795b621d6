"""A finished message as one well-formed stream (docs/spec/mediation.md section 6).

It has one ``message_start``, block indexes 0, 1, 2 … without gaps, the deltas of each block type
that has some, and all other blocks whole. Members that we do not know are sent as they are. The
usage is always there: an SDK breaks without it.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from claw_mediate.dialects import sse
from claw_mediate.dialects.base import Keepalive, RunnerRequest, StreamOpening
from claw_mediate.dialects.members import (
    Members,
    as_raw,
    split_array,
    split_object,
    string_member,
    without_line_breaks,
)

_PING = sse.event(b'{"type":"ping"}', "ping")
_FINAL_MEMBERS = ("stop_reason", "stop_sequence")


def stream(
    body: bytes, _request: RunnerRequest, _opening: StreamOpening | None = None
) -> Iterator[bytes]:
    """Yield the events of a response."""
    message = split_object(without_line_breaks(body))
    usage = _usage(message.get("usage"))
    final = as_raw({name: message.pop(name, b"null") for name in _FINAL_MEMBERS})
    content = split_array(message.pop("content"))

    first_message: dict[str, Any] = {
        **as_raw(message),
        "content": [],
        **dict.fromkeys(_FINAL_MEMBERS),
        "usage": {**usage, "output_tokens": 0},
    }
    yield _event("message_start", message=first_message)

    for index, block in enumerate(content):
        start, deltas = _cut_block(split_object(block))
        yield _event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)

    yield _event("message_delta", delta=final, usage=usage)
    yield _event("message_stop")


def keepalive(note: str, kind: Keepalive, _opening: StreamOpening) -> bytes:
    """Return a comment, or, of the native kind, ``event: ping``, as the API itself sends it.

    Neither opens the message.
    """
    return sse.comment(note) if kind == "comment" else _PING


def stream_error(error: bytes, _opening: StreamOpening) -> bytes:
    """Return the event of an error that comes after the headers."""
    return sse.event(error, "error")


def _cut_block(block: Members) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """Return a block as it starts, and its deltas. A block of a type that has none starts whole."""
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
    """Return a block without the members that its deltas bring, which are ``empty``."""
    started: dict[str, Any] = {**as_raw(block), **empty}
    if _citations(block):
        started["citations"] = []
    return started


def _text_deltas(block: Members) -> Iterator[dict[str, Any]]:
    for part in sse.split_text(string_member(block, "text") or ""):
        yield {"type": "text_delta", "text": part}

    for citation in _citations(block):
        yield {"type": "citations_delta", "citation": citation}


def _thinking_deltas(block: Members) -> Iterator[dict[str, Any]]:
    for part in sse.split_text(string_member(block, "thinking") or ""):
        yield {"type": "thinking_delta", "thinking": part}

    signature = string_member(block, "signature")
    if signature:
        yield {"type": "signature_delta", "signature": signature}


def _input_deltas(block: Members) -> Iterator[dict[str, Any]]:
    for part in sse.split_text(block["input"].decode()):
        yield {"type": "input_json_delta", "partial_json": part}


def _citations(block: Members) -> list[msgspec.Raw]:
    raw = block.get("citations", b"")
    return msgspec.json.decode(raw, type=list[msgspec.Raw]) if raw[:1] == b"[" else []


def _usage(raw: bytes | None) -> dict[str, Any]:
    """Return the usage with the counts that every SDK expects."""
    usage = msgspec.json.decode(raw) if raw is not None else None
    counts = {"input_tokens": 0, "output_tokens": 0}
    return {**counts, **usage} if isinstance(usage, dict) else counts


def _event(name: str, **members: Any) -> bytes:
    return sse.event(msgspec.json.encode({"type": name, **members}), name)
