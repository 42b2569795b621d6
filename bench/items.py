"""The messages of the bench over OpenAI Responses: the same words, tools and calls
as those of ``wire``, as items.

As the API does, each response repeats its request: the instructions and the tools.
"""

from __future__ import annotations

import json
from typing import Any

import wire

PATH = "/v1/responses"
_HEAD = {"id": "resp_bench", "object": "response", "created_at": 1, "model": "bench"}


def question(rounds: int, *, stream: bool) -> bytes:
    """Return the runner's request of ``wire.question`` in this protocol; the
    provider is to keep nothing of it.
    """
    asked = json.loads(wire.question(rounds, stream=stream))
    system, *messages = asked["messages"]
    members = {name: asked[name] for name in ("model", "stream", "temperature")}
    own = [_flat(tool) for tool in asked["tools"]]
    return json.dumps(
        {
            **members,
            "store": False,
            "instructions": system["content"],
            "input": messages,
            "tools": own,
        }
    ).encode()


def call(number: int) -> bytes:
    """Return the model's reply that calls a managed tool."""
    function = json.loads(wire.call(number))["choices"][0]["message"]["tool_calls"][0]
    item = {
        "type": "function_call",
        "id": f"fc_{number:024}",
        "call_id": function["id"],
        "status": "completed",
    }
    return json.dumps(_response([{**item, **function["function"]}], _tools())).encode()


def answer() -> bytes:
    return json.dumps(_response([_message(wire.TEXT)], _tools())).encode()


def events() -> list[bytes]:
    """Return the answer as a provider streams it: the pieces of ``wire.events``,
    and the events around them.
    """
    tools = _tools()[:1]
    whole = _response([_message(wire.TEXT)], tools)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    item, part = _message(""), {"content_index": 0, "output_index": 0, "item_id": "msg_bench"}
    deltas = [
        {"type": "response.output_text.delta", **part, "delta": piece, "logprobs": []}
        for piece in wire.pieces()
    ]
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **part, "part": item["content"][0]},
        *deltas,
        {"type": "response.output_text.done", **part, "text": wire.TEXT, "logprobs": []},
        {"type": "response.content_part.done", **part, "part": _message(wire.TEXT)["content"][0]},
        {"type": "response.output_item.done", "output_index": 0, "item": _message(wire.TEXT)},
        {"type": "response.completed", "response": whole},
    ]
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(told)]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in numbered]


def _response(output: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {"input_tokens": 1200, "output_tokens": 80, "total_tokens": 1280}
    none = dict.fromkeys(("error", "incomplete_details", "previous_response_id"))
    own = json.loads(question(0, stream=False))
    asked = {name: own[name] for name in ("instructions", "temperature", "store")} | {
        "tool_choice": "auto",
        "tools": tools,
    }
    return {
        **_HEAD,
        "status": "completed",
        **none,
        **asked,
        "parallel_tool_calls": True,
        "output": output,
        "usage": usage,
    }


def _message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {
        "type": "message",
        "id": "msg_bench",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def _tools() -> list[dict[str, Any]]:
    """Return the tools of a mediated request: the runner's own first."""
    return [_flat(tool) for tool in json.loads(wire.provider_request(0, 0))["tools"]]


def _flat(tool: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", **tool["function"], "strict": False}
