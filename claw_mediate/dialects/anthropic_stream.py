"""A finished Anthropic message as one well-formed stream (spec/mediation.md section 6).

One ``message_start``, block indexes 0, 1, 2 … without gaps, every block type with its own deltas (text and its citations,
thinking and its signature, the input of calls), all other blocks whole; ``message_delta`` with the stop reason and the usage,
``message_stop``. Members that we do not know travel as they are. The usage is always there: an SDK breaks without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from claw_mediate.dialects import sse
from claw_mediate.dialects.base import RunnerRequest

CHUNK = 48
"""Characters of text, or of a call's input, in one delta."""
_AT_THE_END = ("stop_reason", "stop_sequence")
_raw_members = msgspec.json.Decoder(dict[str, msgspec.Raw])

type _Raw = dict[str, bytes]


def stream(body: bytes, request: RunnerRequest) -> Iterator[bytes]:
    """The events of a response body that ``read_reply`` has accepted."""
    del request
    message = _members(_one_line(body))
    usage = _usage(message.get("usage"))
    ended = _verbatim({name: message.pop(name, b"null") for name in _AT_THE_END})
    content = msgspec.json.decode(message.pop("content"), type=list[msgspec.Raw])
    begun: dict[str, Any] = {
        **_verbatim(message),
        "content": [],
        **dict.fromkeys(_AT_THE_END),
        "usage": {**usage, "output_tokens": 0},
    }
    yield _event("message_start", message=begun)
    for index, block in enumerate(content):
        start, deltas = _block(_members(bytes(block)))
        yield _event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta=ended, usage=usage)
    yield _event("message_stop")


def _block(block: _Raw) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """How a block begins, and the deltas that complete it."""
    match _text(block, "type"):
        case "text" if _text(block, "text") is not None:
            return _begun(block, text=""), _text_deltas(block)
        case "thinking" if _text(block, "thinking") is not None:
            return _begun(block, thinking="", signature=""), _thinking_deltas(block)
        case "tool_use" | "server_tool_use" | "mcp_tool_use" if block.get("input", b"")[:1] == b"{":
            return _begun(block, input={}), _input_deltas(block)
        case _:
            return _verbatim(block), iter(())


def _begun(block: _Raw, **empty: Any) -> dict[str, Any]:
    return {**_verbatim(block), **empty, **({"citations": []} if _citations(block) else {})}


def _text_deltas(block: _Raw) -> Iterator[dict[str, Any]]:
    for piece in _pieces(_text(block, "text") or ""):
        yield {"type": "text_delta", "text": piece}
    for citation in _citations(block):
        yield {"type": "citations_delta", "citation": citation}


def _thinking_deltas(block: _Raw) -> Iterator[dict[str, Any]]:
    for piece in _pieces(_text(block, "thinking") or ""):
        yield {"type": "thinking_delta", "thinking": piece}
    if signature := _text(block, "signature"):
        yield {"type": "signature_delta", "signature": signature}


def _input_deltas(block: _Raw) -> Iterator[dict[str, Any]]:
    for piece in _pieces(block["input"].decode()):
        yield {"type": "input_json_delta", "partial_json": piece}


def _citations(block: _Raw) -> list[msgspec.Raw]:
    raw = block.get("citations")
    return msgspec.json.decode(raw, type=list[msgspec.Raw]) if raw is not None and raw[:1] == b"[" else []


def _text(block: _Raw, name: str) -> str | None:
    raw = block.get(name)
    return msgspec.json.decode(raw, type=str) if raw is not None and raw[:1] == b'"' else None


def _usage(raw: bytes | None) -> dict[str, Any]:
    usage = msgspec.json.decode(raw) if raw is not None else None
    counts = {"input_tokens": 0, "output_tokens": 0}
    return {**counts, **usage} if isinstance(usage, dict) else counts


def _members(document: bytes) -> _Raw:
    return {name: bytes(raw) for name, raw in _raw_members.decode(document).items()}


def _verbatim(members: _Raw) -> dict[str, Any]:
    return {name: msgspec.Raw(raw) for name, raw in members.items()}


def _one_line(body: bytes) -> bytes:
    """In JSON a line break can only be white space between tokens, and it would end an event."""
    return body.replace(b"\n", b" ").replace(b"\r", b" ")


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + CHUNK] for start in range(0, len(text), CHUNK))


def _event(name: str, **members: Any) -> bytes:
    return sse.event(msgspec.json.encode({"type": name, **members}), name)
