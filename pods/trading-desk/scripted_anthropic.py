"""The SCRIPTED model's other wire: Anthropic messages in, the same decision, an Anthropic message out."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

from scripted_intents import Reply

type Json = dict[str, Any]


def as_chat(body: Json) -> Json:
    """The request as the decision reads it: tools and messages of a chat completion."""
    tools = [
        {"type": "function", "function": {**tool, "parameters": tool.get("input_schema", {})}}
        for tool in body.get("tools") or []
    ]
    choice = (body.get("tool_choice") or {}).get("type", "auto")
    messages = [said for message in body["messages"] for said in _chat_messages(message)]
    return {**body, "tools": tools, "messages": messages, "tool_choice": {"any": "required"}.get(choice, choice)}


def _chat_messages(message: Json) -> Iterator[Json]:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [
        {"id": block["id"], "function": {"name": block["name"], "arguments": json.dumps(block["input"])}}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    for block in blocks:
        if block["type"] == "tool_result":
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": block["content"]}
    if text or calls:
        yield {"role": message["role"], "content": text or None, **({"tool_calls": calls} if calls else {})}


def message(reply: Reply, usage: Json, model: str) -> Json:
    content: list[Json] = [{"type": "text", "text": reply.text}] if reply.text else []
    content += [
        {"type": "tool_use", "id": f"toolu_{secrets.token_hex(12)}", "name": call.name, "input": call.arguments}
        for call in reply.calls
    ]
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
    }
