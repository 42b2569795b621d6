"""OpenAI's rules for a Responses request, whose violation is a 400 (measured and reported ones)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from tests.wires import Body

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_ID = 64
_CALLS = {"function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"}
_LED_TO = {
    "message",
    "reasoning",
    "mcp_approval_request",
    "web_search_call",
    "image_generation_call",
    *_CALLS,
}


def items_of(messages: Sequence[Body] | str) -> list[Body]:
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    return [item for message in messages for item in message.get("items", [message])]


def speaker(item: Body) -> str:
    kind = item.get("type", "message")
    if kind == "message":
        return str(item.get("role", "assistant"))  # A spoilt item has none
    return "tool" if kind.endswith(("_output", "_response")) else "assistant"


def check(request: Body, replies: Mapping[str, bytes]) -> None:
    assert "stream_options" not in request
    _check_tools(request)
    items = request.get("input") or []
    if isinstance(items, str):
        return
    named = request.get("previous_response_id")
    open_calls = [
        call_id for call_id, reply in replies.items() if named and json.loads(reply)["id"] == named
    ]
    for item in items:
        assert "items" not in item
        kind = item.get("type", "message")
        if kind in _CALLS:
            _check_call(item)
            open_calls.append(item["call_id"])
        elif kind.endswith("_call_output"):
            call_id = item["id"] if kind == "local_shell_call_output" else item["call_id"]
            assert call_id in open_calls, "each output answers a call before it, once"
            open_calls.remove(call_id)
        elif kind == "message":
            assert not open_calls or item["role"] == "assistant", (
                "No tool output found for function call"
            )
    assert not open_calls, "No tool output found for function call"
    _check_reasoning(items, is_kept=request.get("store") is not False)


def _check_tools(request: Body) -> None:
    tools = request.get("tools", ())
    names = [tool["name"] for tool in tools if "name" in tool]
    assert len(names) == len(set(names))
    assert len(tools) <= 128
    functions = [tool for tool in tools if tool["type"] == "function"]
    managed = [tool for tool in functions if "__" in tool["name"]]
    assert all(tool.get("strict") is not None for tool in managed), "strict is taken for true"
    choice = request.get("tool_choice")
    assert choice is None or names, "a choice needs tools"
    if not isinstance(choice, dict):
        assert choice in {"auto", "required", "none", None}
        return
    chosen = choice["tools"] if choice["type"] == "allowed_tools" else [choice]
    assert {one["name"] for one in chosen} <= set(names)


def _check_call(item: Body) -> None:
    assert 0 < len(item["call_id"]) <= _MAX_ID
    if item["type"] != "function_call":
        return
    assert _NAME.fullmatch(item["name"]), item
    # OpenAI accepts any text; others parse it.
    assert not item["arguments"].strip() or isinstance(json.loads(item["arguments"]), dict), item


def _check_reasoning(items: Sequence[Body], *, is_kept: bool) -> None:
    for item, behind in pairwise([*items, None]):
        if item is not None and item.get("type") == "reasoning":
            assert is_kept or item.get("encrypted_content") or item["id"].endswith("_kept"), (
                "Items are not persisted when `store` is set to false"
            )
            assert behind is not None, "reasoning without its required following item"
            assert behind.get("type", "message") in _LED_TO, "reasoning without its following item"
