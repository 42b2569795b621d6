"""A provider for real agents, in the three protocols they speak: it calls one tool once, and then
says what came of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import Peer

type Event = tuple[str, dict[str, Any]]

MODEL = "gpt-5.1"


@dataclass
class ClientModel(Peer):
    """Calls the tool whose name ends in ``tool`` with ``arguments``, where it is
    offered; ``offered`` is what was.
    """

    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    marker: str = "the result"
    """A text that only the tool's result contains: the request that has it is
    answered with text.
    """
    offered: set[str] = field(default_factory=set)
    has_result: bool = False

    async def answer(self, request: Request) -> Response:
        """Answer as the path says; other paths get an empty object, since agents
        ask for much beside a model.
        """
        body = await request.body()
        if request.method != "POST" or not body.startswith(b"{"):
            return JSONResponse({})
        asked = json.loads(body)
        names = [name for tool in asked.get("tools") or () for name in names_of(tool)]
        self.offered |= set(names)
        self.has_result = self.has_result or self.marker in body.decode()
        name = (
            ""
            if self.has_result
            else next((name for name in names if name.endswith(self.tool)), "")
        )
        path = request.url.path
        dialect = next((each for each in _DIALECTS if path.endswith(each)), None)
        if dialect is None:
            return JSONResponse({})
        words = f"The tool says: {self.marker}." if self.has_result else "Hi."
        events = list(_DIALECTS[dialect](name, json.dumps(self.arguments), words))
        if dialect == "/responses" and not asked.get("stream"):
            return JSONResponse(events[-1][1]["response"])
        text = "".join(
            f"event: {kind}\ndata: {json.dumps(data)}\n\n"
            if kind
            else f"data: {json.dumps(data)}\n\n"
            for kind, data in events
        )
        return Response(
            text + ("data: [DONE]\n\n" if dialect == "/chat/completions" else ""),
            media_type="text/event-stream",
        )


def names_of(tool: dict[str, Any]) -> Iterator[str]:
    """Yield the names that a model may call; Codex puts the tools of a server into a namespace."""
    if tool.get("type") == "namespace":
        yield from (f"{tool['name']}/{inner['name']}" for inner in tool["tools"])
    else:
        yield tool.get("function", tool).get("name") or tool.get("type", "")


def _anthropic(name: str, arguments: str, text: str) -> Iterator[Event]:
    usage = {"input_tokens": 9, "output_tokens": 9}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "usage": usage,
    }
    yield (
        "message_start",
        {
            "type": "message_start",
            "message": message | {"stop_reason": None, "stop_sequence": None},
        },
    )
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": text}
    if name:
        block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": arguments}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}
    yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    reason = {"stop_reason": "tool_use" if name else "end_turn", "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": reason, "usage": usage}
    yield "message_stop", {"type": "message_stop"}


def _chat(name: str, arguments: str, text: str) -> Iterator[Event]:
    delta: dict[str, Any] = {"role": "assistant", "content": text}
    if name:
        call = {
            "index": 0,
            "id": "call1",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        delta = {"role": "assistant", "content": None, "tool_calls": [call]}
    common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    yield "", common | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    yield (
        "",
        common
        | {
            "choices": [
                {"index": 0, "delta": {}, "finish_reason": "tool_calls" if name else "stop"}
            ],
            "usage": usage,
        },
    )


def _responses(name: str, arguments: str, text: str) -> Iterator[Event]:
    space, _, inner = name.rpartition("/")
    item: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
    }
    item["content"] = [{"type": "output_text", "text": text, "annotations": []}]
    if name:
        item = {
            "id": "fc_1",
            "type": "function_call",
            "call_id": "call1",
            "name": inner,
            "arguments": arguments,
        }
        item |= {"namespace": space} if space else {}
    usage = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}
    usage |= {
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    response = {
        "id": "resp_1",
        "object": "response",
        "model": MODEL,
        "output": [item],
        "usage": usage,
    }
    yield (
        "response.created",
        {
            "type": "response.created",
            "response": response | {"status": "in_progress", "output": []},
        },
    )
    yield (
        "response.output_item.done",
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    )
    yield (
        "response.completed",
        {"type": "response.completed", "response": response | {"status": "completed"}},
    )


_DIALECTS = {"/messages": _anthropic, "/chat/completions": _chat, "/responses": _responses}
