"""OpenAI chat completions: ``POST …/chat/completions``. The dialect, put together from its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from claw_mediate import wire
from claw_mediate.continuity import calls_anchor, text_anchor
from claw_mediate.dialects import openai_reply, openai_request, openai_stream, sse
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.openai_views import read_message, visible_text
from claw_mediate.model import Reply, Round

NAME: Final = "openai-chat"
MOST_TOOLS: Final = 128
"""How many tools OpenAI takes in one request."""

read_request = openai_request.read_request
offer = openai_request.offer
read_reply = openai_reply.read_reply
write_reply = openai_reply.write_reply
hidden_messages = openai_reply.hidden_messages
stream = openai_stream.stream


def write_request(offered: bytes, rounds: Sequence[Round]) -> bytes:
    """Hidden rounds go behind the last message."""
    if not rounds:
        return offered
    place = next(member for member in wire.members(offered) if member.name == "messages")
    messages = wire.appended(offered[place.start : place.end], hidden_messages(rounds, replayed=False))
    return wire.spliced(offered, [(place.start, place.end, messages)])


def reply_anchor(reply: Reply, request: RunnerRequest) -> str:
    """By the native calls' ids where there are any, else by the text and what was said before it."""
    message = read_message.decode(reply.message)
    if message.tool_calls:
        return calls_anchor(call.id for call in reply.calls)
    before = openai_request.users_said(request.body)
    return text_anchor(visible_text(message), before)


def keepalive(note: str) -> bytes:
    """A comment: every SDK skips it (reference/gateways.md section 2.8)."""
    return sse.comment(note)


def stream_error(error: bytes) -> bytes:
    """The error as data, then the end."""
    return sse.event(error) + sse.DONE


def error_body(body: bytes) -> bytes | None:
    """``{"error": …}`` in one line, or None."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return msgspec.json.encode(document) if isinstance(document, dict) and document.get("error") else None
