"""Anthropic messages: ``POST …/messages`` and ``…/messages/count_tokens``. The dialect, put together from its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from claw_mediate.core.continuity import calls_key, text_key
from claw_mediate.core.types import ModelResponse
from claw_mediate.dialects import sse
from claw_mediate.dialects.anthropic import request as anthropic_request
from claw_mediate.dialects.anthropic import response as anthropic_reply
from claw_mediate.dialects.anthropic import stream as anthropic_stream
from claw_mediate.dialects.base import TERMINAL_TEXT, Keepalive, ProviderRequest, RunnerRequest, StreamOpening
from claw_state.continuity import Anchor

NAME: Final = "anthropic-messages"
MAX_TOOLS: Final = 10_000
"""Anthropic names no limit; more is no manifest."""
_PING = sse.event(b'{"type":"ping"}', "ping")

read_request = anthropic_request.read_request
build_request = anthropic_request.build_request
add_context = anthropic_request.add_context
read_response = anthropic_reply.read_response
write_response = anthropic_reply.write_response
write_hidden_rounds = anthropic_reply.write_hidden_rounds
summarize = anthropic_reply.summarize
stream = anthropic_stream.stream


def write_request(offer: ProviderRequest, hidden: Sequence[bytes]) -> bytes:
    """Hidden rounds go behind the last message; one that the runner began is gone on with."""
    if not hidden:
        return offer.body
    first, *rest = hidden
    return offer.followed_by([anthropic_reply.merge_messages(offer.prefill, first) if offer.prefill else first, *rest])


def response_anchor(reply: ModelResponse, request: RunnerRequest, *, terminal: bool) -> Anchor:
    """By the native calls' ids where there are any, else by the text, with what the runner began of it."""
    if reply.calls and not terminal:
        return Anchor(calls_key(call.id for call in reply.calls), request.evidence.before)
    text = anthropic_reply.response_text(reply)
    text = text if text.strip() or not terminal else TERMINAL_TEXT
    return Anchor(text_key((request.begun or "") + text), request.evidence.before)


def keepalive(note: str, kind: Keepalive, opening: StreamOpening) -> bytes:
    """``event: ping``, as the API itself does; or a comment with the note. Neither opens the message."""
    del opening
    return sse.comment(note) if kind == "comment" else _PING


def stream_error(error: bytes) -> bytes:
    """The error as an event."""
    return sse.event(error, "error")


def error_body(body: bytes) -> bytes | None:
    """``{"type": "error", "error": …}`` in one line, or None."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("error"), dict):
        return None
    return msgspec.json.encode({**document, "type": "error"})
