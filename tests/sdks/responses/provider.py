"""OpenAI's Responses API for real clients: it keeps what it is asked to keep, and
refuses what the API refuses.

Its model follows a case, which the last words of the user name (``case:hidden 17;``; the number is
that of the play).
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.peers import Peer
from tests.wires import Body, responses
from tests.wires.responses_refusals import (
    RefusedError,
    check_context,
    check_items,
    check_members,
    kind_of,
)
from tests.wires.responses_rules import items_of

FAILURES = 3
"""How often the model fails behind a write: as often as the proxy asks it, so that
the runner gets to know.
"""
NATIVE = {"shell": {"command": "ls"}, "exec_command": {"cmd": "echo three files"}}
"""The runner's own tool, by the names that clients give it, with the arguments of its call."""
_EVERYTHING = ("balance", "", "wait", "trade")
"""The calls of the case that has all scenarios in one turn; "" is the runner's own tool."""
_CASE = re.compile(r"case:(\w+) (\d+);")


@dataclass
class KeepingProvider(Peer):
    """The API's memory is ``responses`` (the whole context behind each id),
    ``conversations`` and ``kept`` (items by id).
    """

    responses: dict[str, list[Body]] = field(default_factory=dict)
    conversations: dict[str, list[Body]] = field(default_factory=dict)
    kept: dict[str, Body] = field(default_factory=dict)
    sealed: set[str] = field(default_factory=set)
    failed: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    """What was refused, in the words of the API."""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    async def answer(self, request: Request) -> Response:
        path = request.url.path
        if request.method != "POST":
            return JSONResponse({"object": "list", "data": []})
        body = json.loads(await request.body() or b"{}")
        if path.endswith("/conversations"):
            return JSONResponse(self._converse(body))
        try:
            check_members(body)
            context = self._context(body)
            answer = self._answer(body, context)
        except RefusedError as refused:
            self.refused.append(str(refused))
            return JSONResponse(refused.body, refused.status)
        if answer is None:
            failure = {
                "message": "The server had an error.",
                "type": "server_error",
                "param": None,
                "code": None,
            }
            return JSONResponse({"error": failure}, 500)
        return (
            StreamingResponse(_events(answer), media_type="text/event-stream")
            if body.get("stream")
            else JSONResponse(answer)
        )

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{next(self.numbers):048x}"

    def _converse(self, body: Body) -> Body:
        conversation = self._id("conv")
        self.conversations[conversation] = list(body.get("items") or ())
        return {"id": conversation, "object": "conversation", "created_at": 1, "metadata": {}}

    def _context(self, body: Body) -> list[Body]:
        """Return all that the model reads: what is kept, and the request's items behind it."""
        earlier = self._earlier(body)
        given = items_of(body.get("input") or [])
        if not given and not earlier:
            raise RefusedError(
                "Missing required parameter: 'input'.",
                code="missing_required_parameter",
                param="input",
            )
        check_items(given)
        context = earlier + [self._referenced(item) for item in given]
        check_context(context, self.kept, self.sealed)
        return context

    def _earlier(self, body: Body) -> list[Body]:
        if previous := body.get("previous_response_id"):
            if previous not in self.responses:
                message = f"Previous response with id '{previous}' not found."
                raise RefusedError(
                    message, code="previous_response_not_found", param="previous_response_id"
                )
            return self.responses[previous]
        if conversation := _id_of(body.get("conversation")):
            if conversation not in self.conversations:
                raise RefusedError(
                    f"Conversation with id '{conversation}' not found.",
                    param="conversation",
                    status=404,
                )
            return self.conversations[conversation]
        return []

    def _referenced(self, item: Body) -> Body:
        if kind_of(item) != "item_reference":
            return item
        if item["id"] not in self.kept:
            raise RefusedError(f"Item with id '{item['id']}' not found.", param="input", status=404)
        return self.kept[item["id"]]

    def _answer(self, body: Body, context: list[Body]) -> Body | None:
        """Return the response, and keep it where the request asks for that; None
        where the model fails.
        """
        made = self._next(body, context)
        if made is None:
            return None
        is_kept = body.get("store") is not False
        output = [
            self._reasoning(is_sealed="reasoning.encrypted_content" in (body.get("include") or ())),
            made,
        ]
        response = _response(body, self._id("resp"), output)
        if is_kept:
            self.responses[response["id"]] = context + output
            self.kept |= {item["id"]: item for item in output}
        if conversation := _id_of(body.get("conversation")):
            self.conversations[conversation] = context + output
        return response

    def _reasoning(self, *, is_sealed: bool) -> Body:
        item: Body = {
            "type": "reasoning",
            "id": self._id("rs"),
            "summary": [{"type": "summary_text", "text": "Hm."}],
        }
        if is_sealed:
            item["encrypted_content"] = f"sealed+{item['id']}=="
            self.sealed.add(item["encrypted_content"])
        return item

    def _next(self, body: Body, context: list[Body]) -> Body | None:
        """Return the model's next item, by the case and by how much of it is done;
        None: it fails.
        """
        last = max(place for place, item in enumerate(context) if item.get("role") == "user")
        case, number = _case(context[last])
        done = [
            item["output"] for item in context[last:] if kind_of(item) == "function_call_output"
        ]
        match case, len(done):
            case (("hidden" | "native"), 0):
                return self._call(body, "balance", {})
            case "native", 1:
                return self._call(body, _native(body), NATIVE[_native(body)])
            case "native", _:
                return self._words(
                    f"There are {'three' if 'three files' in done[1] else 'no'} files for {number}."
                )
            case "slow", 0:
                return self._call(body, "wait", {"play": number})
            case "write", 0:
                return self._call(body, "trade", {"play": number})
            case "everything", place if place < len(_EVERYTHING):
                tool = _EVERYTHING[place] or _native(body)
                return self._call(
                    body,
                    tool,
                    NATIVE.get(tool) or ({"play": number} if tool in {"wait", "trade"} else {}),
                )
            case (("write" | "everything"), _) if self.failed[number] < FAILURES:
                self.failed[number] += 1
                return None
            case "again", _:
                return self._words(f"I remember: {', '.join(_remembered(context)) or 'nothing'}.")
        return self._words(f"Done with {case} for {number}.")

    def _call(self, body: Body, tool: str, arguments: Body) -> Body:
        name = next((name for name in sorted(_names(body)) if name.endswith(tool)), None)
        if name is None:
            return self._words(f"I have no {tool}.")
        call = {
            "type": "function_call",
            "id": self._id("fc"),
            "call_id": self._id("call"),
            "name": name,
        }
        return {**call, "arguments": json.dumps(arguments), "status": "completed"}

    def _words(self, words: str) -> Body:
        content = [{"type": "output_text", "text": words, "annotations": [], "logprobs": []}]
        return {
            "type": "message",
            "id": self._id("msg"),
            "role": "assistant",
            "status": "completed",
            "content": content,
        }


def _id_of(named: Any) -> str:
    return named["id"] if isinstance(named, dict) else named or ""


def _native(body: Body) -> str:
    return next(iter(NATIVE.keys() & _names(body)), "shell")


def _names(body: Body) -> set[str]:
    return {tool["name"] for tool in body.get("tools") or () if "name" in tool}


def _case(item: Body) -> tuple[str, str]:
    found = _CASE.findall(json.dumps(item["content"]))
    assert found, f"the user's words name no case: {item['content']}"
    case, number = found[-1]
    return case, number


def _remembered(context: list[Body]) -> Iterator[str]:
    """Yield the tools whose calls and outputs stand in the context, in their order."""
    answered = {item["call_id"] for item in context if kind_of(item) == "function_call_output"}
    for item in context:
        if kind_of(item) == "function_call" and item["call_id"] in answered:
            yield item["name"].rpartition("__")[2]


def _response(body: Body, response_id: str, output: list[Body]) -> Body:
    """Return a response, which repeats much of its request.

    A function without ``strict`` comes back as a strict one.
    """
    tools = [
        {**tool, "strict": tool.get("strict", True)} if tool["type"] == "function" else tool
        for tool in body.get("tools") or ()
    ]
    repeated = {
        name: body.get(name)
        for name in ("instructions", "previous_response_id", "max_output_tokens", "user")
    }
    conversation = _id_of(body.get("conversation"))
    return responses.response(
        *output,
        **repeated,
        id=response_id,
        model=body["model"],
        parallel_tool_calls=body.get("parallel_tool_calls", True),
        reasoning={"effort": "medium", "summary": None},
        store=body.get("store", True),
        temperature=1.0,
        text={"format": {"type": "text"}},
        tool_choice=body.get("tool_choice", "auto"),
        tools=tools,
        top_p=1.0,
        truncation="disabled",
        conversation={"id": conversation} if conversation else None,
        metadata=body.get("metadata") or {},
    )


def _events(response: Body) -> Iterator[bytes]:
    """Yield the least of a stream: its beginning, each item whole, its end."""
    started = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[Body] = [{"type": "response.created", "response": started}]
    for index, item in enumerate(response["output"]):
        events += [
            {"type": f"response.output_item.{step}", "output_index": index, "item": item}
            for step in ("added", "done")
        ]
    events.append({"type": "response.completed", "response": response})
    for number, event in enumerate(events):
        yield (
            f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"
        ).encode()
