"""The blocks of a message as the events of a stream, and the blocks of those events.

    event of the API                 channel     text
    ───────────────────────────────  ──────────  ────────────────────
    content_block_start              start       –
    content_block_delta
      text_delta                     text        ``text``
      thinking_delta                 thinking    ``thinking``
      input_json_delta               input       ``partial_json``
      citations_delta                citations   –
      signature_delta                signature   –
      a type that we do not know     the type    –
    content_block_stop               stop        –

A block starts without what its deltas bring. Blocks of types without deltas start whole.
"""

from collections.abc import Iterator, Mapping
from io import StringIO
from typing import Any, Final

import msgspec

from claw_mediate.core.reply_events import EventKind, ReplyEvent
from claw_mediate.dialects import sse
from claw_mediate.dialects.members import Members, as_raw, string_member

BLOCK_START: Final = "content_block_start"
BLOCK_DELTA: Final = "content_block_delta"
BLOCK_STOP: Final = "content_block_stop"
STOP: Final = "stop"
"""The channel of the end of a block."""

TEXT_MEMBERS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
}
"""The types of those deltas that bring text, and the member that has it."""

_CHANNELS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "input",
    "citations_delta": "citations",
    "signature_delta": "signature",
}
INPUT_TYPES: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
"""The types of blocks whose ``input`` comes in deltas."""

_KINDS: Final[Mapping[str, EventKind]] = {
    "tool_use": "call",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
}
_TEXT_EVENTS: Final = {
    delta: {"type": BLOCK_DELTA, "delta": {"type": delta}} for delta in TEXT_MEMBERS
}
_STOP_EVENT: Final = {"type": BLOCK_STOP}


def block_kind(block_type: str) -> EventKind:
    """Return the kind of the events of a block. Only ``tool_use`` is a call for the client."""
    return _KINDS.get(block_type, "content")


def text_event(kind: EventKind, piece: int, delta_type: str, text: str) -> ReplyEvent:
    """Return a delta of a type of ``TEXT_MEMBERS``."""
    return ReplyEvent(kind, piece, _TEXT_EVENTS[delta_type], _CHANNELS[delta_type], text)


def delta_event(kind: EventKind, piece: int, delta: Mapping[str, Any]) -> ReplyEvent:
    """Return a delta without text."""
    channel = _CHANNELS.get(delta["type"], delta["type"])
    return ReplyEvent(kind, piece, {"type": BLOCK_DELTA, "delta": delta}, channel)


def stop_event(kind: EventKind, piece: int) -> ReplyEvent:
    """Return the end of a block. That of a call is a part of the call."""
    return ReplyEvent("call" if kind == "call" else "closing", piece, _STOP_EVENT, STOP)


def start_events(block: Members, piece: int) -> Iterator[ReplyEvent]:
    """Yield a block's start, and the deltas of what it holds, without its stop.

    ``block`` has a ``type``.
    """
    block_type = string_member(block, "type") or ""
    kind = block_kind(block_type)
    deltas: Iterator[ReplyEvent] = iter(())
    started: dict[str, Any]

    if block_type == "text" and string_member(block, "text") is not None:
        started = _empty_block(block, text="")
        deltas = _text_deltas(block, piece)
    elif block_type == "thinking" and string_member(block, "thinking") is not None:
        started = _empty_block(block, thinking="", signature="")
        deltas = _thinking_deltas(block, piece)
    elif block_type in INPUT_TYPES and block.get("input", b"")[:1] == b"{":
        started = _empty_block(block, input={})
        deltas = _split_text(kind, piece, "input_json_delta", block["input"].decode())
    else:
        started = {**as_raw(block)}

    yield ReplyEvent(kind, piece, {"type": BLOCK_START, "content_block": started}, "start")
    yield from deltas


def _empty_block(block: Members, **empty: Any) -> dict[str, Any]:
    """Return a block without the members that its deltas bring, which are ``empty``."""
    started: dict[str, Any] = {**as_raw(block), **empty}
    if _citations(block):
        started["citations"] = []
    return started


def _text_deltas(block: Members, piece: int) -> Iterator[ReplyEvent]:
    yield from _split_text("content", piece, "text_delta", string_member(block, "text") or "")

    for citation in _citations(block):
        yield delta_event("content", piece, {"type": "citations_delta", "citation": citation})


def _thinking_deltas(block: Members, piece: int) -> Iterator[ReplyEvent]:
    thinking = string_member(block, "thinking") or ""
    yield from _split_text("reasoning", piece, "thinking_delta", thinking)

    signature = string_member(block, "signature")
    if signature:
        yield delta_event("reasoning", piece, {"type": "signature_delta", "signature": signature})


def _split_text(kind: EventKind, piece: int, delta_type: str, text: str) -> Iterator[ReplyEvent]:
    for part in sse.split_text(text):
        yield text_event(kind, piece, delta_type, part)


def _citations(block: Members) -> list[msgspec.Raw]:
    raw = block.get("citations", b"")
    return msgspec.json.decode(raw, type=list[msgspec.Raw]) if raw[:1] == b"[" else []


class BlockBuilder:
    """Puts the events of one block together."""

    def __init__(self) -> None:
        self._members: dict[str, Any] = {}
        # A text comes in many small parts, each of which would cost ten times its length.
        self._texts: dict[str, StringIO] = {}
        self._citations: list[Any] = []

    def add(self, event: ReplyEvent) -> None:
        """Add the next event of the block, of which the first is its start."""
        match event.channel:
            case "text" | "thinking" | "input" as channel:
                if channel not in self._texts:
                    self._texts[channel] = StringIO()
                self._texts[channel].write(event.text)
            case "start":
                self._members = {**event.data["content_block"]}
            case "citations":
                self._citations.append(event.data["delta"]["citation"])
            case "signature":
                # SDKs keep the last one.
                self._members["signature"] = event.data["delta"]["signature"]
            case _ if event.kind == "content" and "delta" in event.data:
                self._add_unknown(event.data["delta"])
            case _:
                pass

    def build(self) -> dict[str, Any]:
        """Return the members of the block, for ``msgspec.json.encode``."""
        members = {**self._members}
        for channel, parts in self._texts.items():
            text = parts.getvalue()
            if channel != "input":
                members[channel] = text
            elif text.strip():
                members[channel] = _read_input(text)

        if self._citations:
            members["citations"] = self._citations
        return members

    def _add_unknown(self, delta: Mapping[str, Any]) -> None:
        """Take the members of a delta of an unknown type: of each, the last one counts.

        So ``compaction_delta``, which comes once, is put together as SDKs do it. The identity of a
        block is never changed.
        """
        self._members |= {
            name: value
            for name, value in delta.items()
            if name not in {"type", "id", "name", "tool_use_id"}
        }


def _read_input(text: str) -> msgspec.Raw | str:
    """Return an input in its own spelling; as a text if it is no JSON, and so never an object."""
    try:
        return msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text
