"""The parts of a stream's events one by one, whatever their protocol."""

from __future__ import annotations

import json
from typing import Any

from tests.wires import Body, Wire, anthropic, openai, responses


def word_of(event: Body) -> str:
    """Return the piece of visible text that an event of a stream has; "" if it has none."""
    delta = event.get("delta")
    if event.get("type") == "response.output_text.delta":
        return str(delta)
    if isinstance(delta, dict) and delta.get("type") == "text_delta":
        return str(delta["text"])
    choices = event.get("choices") or [{}]
    return choices[0].get("delta", {}).get("content") or ""


def data_of(event: bytes) -> Body:
    """Return the document of one event; {} if it has none."""
    lines = [line[6:] for line in event.split(b"\n") if line.startswith(b"data: {")]
    return json.loads(lines[0]) if lines else {}


def text_of(stream: bytes) -> str:
    """Return all visible text in the whole events of a stream, which may have no end."""
    return "".join(word_of(data_of(event)) for event in stream.split(b"\n\n")[:-1])


def error_event(wire: Wire) -> bytes:
    """Return how a provider ends a stream in which it fails."""
    told: Any = {"type": "server_error", "code": "server_error", "message": "The server failed."}
    if wire is openai:
        return b"data: %b\n\ndata: [DONE]\n\n" % json.dumps({"error": told}).encode()
    if wire is anthropic:
        error = anthropic.error("api_error", "The server failed.")
        return b"event: error\ndata: %b\n\n" % json.dumps(error).encode()
    failed = responses.response(status="failed", error={"code": "server_error", "message": "No."})
    event = {"type": "response.failed", "sequence_number": 99, "response": failed}
    return b"event: response.failed\ndata: %b\n\n" % json.dumps(event).encode()
