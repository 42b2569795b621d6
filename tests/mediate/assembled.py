"""What a runner makes of an answer: the message and usage of a body, or of a stream put together as a client does it."""

from __future__ import annotations

import json
from typing import Any


def of_body(body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return body["choices"][0]["message"], body["usage"]


def stream_error(stream: bytes) -> dict[str, Any] | None:
    errors = [line[6:] for line in stream.split(b"\n") if line.startswith(b'data: {"error"')]
    assert not errors or stream.endswith(b"data: [DONE]\n\n")
    return json.loads(errors[0])["error"] if errors else None


def of_stream(stream: bytes) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What a client makes of the stream."""
    message: dict[str, Any] = {"content": None}
    usage = None
    data = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: ")]
    assert data[-1] == b"[DONE]"
    for chunk in map(json.loads, data[:-1]):
        assert "error" not in chunk, chunk
        usage = chunk.get("usage") or usage
        for delta in (choice["delta"] for choice in chunk["choices"]):
            for key, value in delta.items():
                if key == "tool_calls":
                    _add_call(message.setdefault("tool_calls", []), value[0])
                elif key in {"content", "refusal"} and isinstance(value, str):
                    message[key] = (message.get(key) or "") + value
                else:
                    message.setdefault(key, value)
    return message, usage


def _add_call(made: list[dict[str, Any]], delta: dict[str, Any]) -> None:
    index = delta.pop("index")
    if index == len(made):
        made.append(delta)
    else:
        made[index]["function"]["arguments"] += delta["function"]["arguments"]
