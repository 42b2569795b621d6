"""OpenAI chat completions: ``POST …/chat/completions``. The dialect, put together from its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from claw_mediate.core.continuity import calls_key, text_key
from claw_mediate.core.types import ModelResponse
from claw_mediate.dialects import sse
from claw_mediate.dialects.base import TERMINAL_TEXT, Keepalive, ProviderRequest, RunnerRequest, StreamOpening
from claw_mediate.dialects.openai import functions as openai_functions
from claw_mediate.dialects.openai import request as openai_request
from claw_mediate.dialects.openai import response as openai_response
from claw_mediate.dialects.openai import stream as openai_stream
from claw_mediate.dialects.openai.wire_types import read_message, visible_text
from claw_state.continuity import Anchor

NAME: Final = "openai-chat"
MAX_TOOLS: Final = 128  # OpenAI's limit of tools in one request

read_request = openai_request.read_request
build_request = openai_request.build_request
add_context = openai_request.add_context
read_response = openai_response.read_response
write_response = openai_response.write_response
write_hidden_rounds = openai_response.write_hidden_rounds
summarize = openai_response.summarize
stream = openai_stream.stream


def write_request(request: ProviderRequest, hidden: Sequence[bytes]) -> bytes:
    return request.with_messages(hidden)


def response_anchor(response: ModelResponse, request: RunnerRequest, *, terminal: bool) -> Anchor:
    """Return the anchor: by the native calls' ids where there are any, else by the text."""
    if terminal or not response.calls:
        text = visible_text(read_message.decode(response.message)) or TERMINAL_TEXT * terminal
        return Anchor(text_key(text), request.evidence.before)
    key = (
        openai_functions.handoff_key(response.calls[0])
        if request.uses_functions
        else calls_key(call.id for call in response.calls)
    )
    return Anchor(key, request.evidence.before)


def keepalive(note: str, kind: Keepalive, opening: StreamOpening) -> bytes:
    """Return a comment, which every SDK skips; native: a chunk whose delta is empty."""
    return sse.comment(note) if kind == "comment" else openai_stream.empty_chunk(opening)


def stream_error(error: bytes) -> bytes:
    return sse.event(error) + sse.DONE


def error_body(body: bytes) -> bytes | None:
    """Return ``{"error": …}`` in one line, or None."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if not isinstance(document, dict) or not document.get("error"):
        return None
    return msgspec.json.encode({"error": document.pop("error"), **document})
