"""The model of the real clients of the Responses API: it keeps what it is asked to keep, and refuses
what the API refuses.

It follows a case, which the last words of the user name (``case:hidden 17;``; the number is
that of the play).
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.kept_responses import KeptResponses, id_of
from tests.peers import model_response
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
"""The failures of the model behind a write: as many as the proxy asks it, so that
the runner gets to know.
"""
NATIVE = {"shell": {"command": "ls"}, "exec_command": {"cmd": "echo three files"}}
"""The runner's own tool, by the names that clients give it, with the arguments of its call."""
_EVERYTHING = ("balance", "", "wait", "trade")
"""The calls of the case that has all scenarios in one turn; "" is the runner's own tool."""
_CASE = re.compile(r"case:(\w+) (\d+);")


@dataclass
class CaseModel:
    """The model of a ``Provider``, with what OpenAI's API does around it."""

    kept: KeptResponses = field(default_factory=KeptResponses)
    sealed: set[str] = field(default_factory=set)
    """The encrypted contents that it has made."""
    failed: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    """The refusals, in the words of the API."""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    async def __call__(self, request: Request) -> Response:
        if request.method != "POST":
            return JSONResponse({"object": "list", "data": []})

        body = json.loads(await request.body() or b"{}")
        if request.url.path.endswith("/conversations"):
            return JSONResponse(self._converse(body))
        try:
            check_members(body)
            answer = self._answer(body, self._read(body))
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
        is_streaming = body.get("stream") is True
        return model_response(responses, json.dumps(answer).encode(), stream=is_streaming)

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{next(self.numbers):048x}"

    def _converse(self, body: Body) -> Body:
        conversation = self._id("conv")
        self.kept.conversations[conversation] = list(body.get("items") or ())
        return {"id": conversation, "object": "conversation", "created_at": 1, "metadata": {}}

    def _read(self, body: Body) -> list[Body]:
        """Return all that the model reads, checked as the API checks it."""
        given = items_of(body.get("input") or [])
        if not given and not self.kept.earlier(body):
            raise RefusedError(
                "Missing required parameter: 'input'.",
                code="missing_required_parameter",
                param="input",
            )
        check_items(given)
        context = self.kept.read(body)
        check_context(context, self.kept.items, self.sealed)
        return context

    def _answer(self, body: Body, context: list[Body]) -> Body | None:
        """Return the response, and keep it where the request asks for that; None
        where the model fails.
        """
        made = self._next(body, context)
        if made is None:
            return None
        is_sealed = "reasoning.encrypted_content" in (body.get("include") or ())
        output = [self._reasoning(is_sealed=is_sealed), made]
        response = _response(body, self._id("resp"), output)
        self.kept.keep(body, context, response)
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
    conversation = id_of(body.get("conversation"))
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
