"""Anthropic messages: ``POST …/messages`` and ``…/messages/count_tokens``. The dialect, put together from its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from claw_mediate.core.continuity import calls_key, text_key
from claw_mediate.core.types import ModelResponse
from claw_mediate.dialects import sse
from claw_mediate.dialects.anthropic import request as anthropic_request
from claw_mediate.dialects.anthropic import response as anthropic_response
from claw_mediate.dialects.anthropic import stream as anthropic_stream
from claw_mediate.dialects.base import TERMINAL_TEXT, Keepalive, ProviderRequest, RunnerRequest, StreamOpening
from claw_state.continuity import Anchor

NAME: Final = "anthropic-messages"
MAX_TOOLS: Final = 10_000  # Anthropic names no limit; no manifest has more
_PING = sse.event(b'{"type":"ping"}', "ping")

read_request = anthropic_request.read_request
build_request = anthropic_request.build_request
add_context = anthropic_request.add_context
read_response = anthropic_response.read_response
write_response = anthropic_response.write_response
write_hidden_rounds = anthropic_response.write_hidden_rounds
summarize = anthropic_response.summarize
stream = anthropic_stream.stream


def write_request(request: ProviderRequest, hidden: Sequence[bytes]) -> bytes:
    """Return the body with hidden rounds behind the last message; a message that the runner began is continued."""
    if not hidden:
        return request.body
    first, *rest = hidden
    return request.with_messages(
        [anthropic_response.merge_messages(request.prefill, first) if request.prefill else first, *rest]
    )


def response_anchor(response: ModelResponse, request: RunnerRequest, *, terminal: bool) -> Anchor:
    """Return the anchor: by the native calls' ids where there are any, else by the text, with what the runner began of it."""
    if response.calls and not terminal:
        return Anchor(calls_key(call.id for call in response.calls), request.evidence.before)
    text = anthropic_response.response_text(response)
    text = text if text.strip() or not terminal else TERMINAL_TEXT
    return Anchor(text_key((request.prefill_text or "") + text), request.evidence.before)


def keepalive(note: str, kind: Keepalive, opening: StreamOpening) -> bytes:
    """Return ``event: ping``, as the API itself does; or a comment with the note. Neither opens the message."""
    del opening
    return sse.comment(note) if kind == "comment" else _PING


def stream_error(error: bytes) -> bytes:
    return sse.event(error, "error")


def error_body(body: bytes) -> bytes | None:
    """Return ``{"type": "error", "error": …}`` in one line, or None."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("error"), dict):
        return None
    return msgspec.json.encode({**document, "type": "error"})
