"""A model that calls one tool, and then says what came of it: for real clients and agents, which ask
in any protocol, and for much beside a model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from tests.peers import Answer, calls, model_response, text
from tests.wires import anthropic, openai, responses

MODEL = "gpt-5.1"
_ENDS = tuple(wire.PATH.removeprefix("/v1") for wire in (anthropic, openai, responses))


@dataclass
class OneCallModel:
    """The model of a ``Provider``.

    It calls the tool whose name ends in ``tool``, where that is offered, until a request has the
    result, which is the one that contains ``marker``.
    """

    tool: str
    marker: str
    words: str
    """The model's text for a request that has the result."""
    arguments: dict[str, Any] = field(default_factory=dict)
    is_one_conversation: bool = True
    """True if what was once called is not called again, whatever a request holds: agents ask for
    titles and summaries with the same tools.
    """
    offered: set[str] = field(default_factory=set)
    """The names of all tools that were offered."""
    _has_result: bool = False

    async def __call__(self, request: Request) -> Answer:
        body = await request.body()
        if not request.url.path.endswith(_ENDS) or not body.startswith(b"{"):
            return JSONResponse({})

        asked = json.loads(body)
        names = [name for tool in asked.get("tools") or () for name in names_of(tool)]
        self.offered |= set(names)
        has_result = self.marker in body.decode()
        self._has_result = self.is_one_conversation and (self._has_result or has_result)
        if has_result or self._has_result:
            return text(self.words, model=MODEL)

        for name in names:
            if name.endswith(self.tool):
                return self._call(name, is_streaming=asked.get("stream") is True)
        return text("Hi.", model=MODEL)

    def _call(self, name: str, *, is_streaming: bool) -> Answer:
        space, _, inner = name.rpartition("/")
        if not space:
            return calls(("call1", name, self.arguments), model=MODEL)

        item = responses.function_call("call1", inner, json.dumps(self.arguments))
        response = responses.response({**item, "namespace": space}, model=MODEL)
        return model_response(responses, json.dumps(response).encode(), stream=is_streaming)


def names_of(tool: dict[str, Any]) -> Iterator[str]:
    """Yield the names that a model may call; Codex puts the tools of a server into a namespace."""
    if tool.get("type") == "namespace":
        yield from (f"{tool['name']}/{inner['name']}" for inner in tool["tools"])
    else:
        yield tool.get("function", tool).get("name") or tool.get("type", "")
