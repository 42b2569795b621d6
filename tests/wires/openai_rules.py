"""Rules of chat completions providers for a request, those of the strictest included."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tests.wires import Body

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check(request: Body, replies: Mapping[str, bytes]) -> None:
    usage = {"include_usage": True}
    assert request.get("stream_options") == (usage if request.get("stream") else None)
    _check_tools(request)
    open_calls: list[str] = []
    for message in request["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls, (
                "each result answers a call right before it, once"
            )
            content = message["content"]
            assert isinstance(content, str) or {part["type"] for part in content} == {"text"}
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls, "every call is answered right behind it"
        if message["role"] == "assistant":
            open_calls = _check_assistant(message, replies)
    assert not open_calls


def _check_tools(request: Body) -> None:
    names = [entry[entry["type"]]["name"] for entry in request.get("tools", ())]
    assert len(names) == len(set(names)) <= 128
    choice = request.get("tool_choice")
    assert choice is None or names, "a choice needs tools"
    if not isinstance(choice, dict):
        assert choice in {"auto", "required", "none", None}
        return
    chosen = choice["allowed_tools"]["tools"] if choice["type"] == "allowed_tools" else [choice]
    assert {one["function"]["name"] for one in chosen} <= set(names)


def _check_assistant(message: Body, replies: Mapping[str, bytes]) -> list[str]:
    calls = message.get("tool_calls")
    assert calls is None or calls, "no empty list of calls"
    assert calls or message["content"], "no empty message of the assistant's"
    for call in calls or ():
        assert _NAME.fullmatch(call["function"]["name"]), call
        arguments = call["function"]["arguments"]
        # OpenAI accepts any text; others parse it (vLLM, Mistral, Gemini through its OpenAI
        # interface).
        assert not arguments.strip() or isinstance(json.loads(arguments), dict), call
        _check_thought(message, replies[call["id"]])
    ids = [call["id"] for call in calls or ()]
    assert len(ids) == len(set(ids))
    return ids


def _check_thought(message: Body, reply: bytes) -> None:
    """Check that the thought before a call is sent back complete, if at all.

    OpenClaw joins the thoughts of a message by line breaks.
    """
    thought = json.loads(reply)["choices"][0]["message"].get("reasoning_content")
    sent = message.get("reasoning_content", thought)
    assert (sent or "").strip() == (thought or "").strip()
