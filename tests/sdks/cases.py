"""What a model says in these tests, under both protocols: answers that every SDK must hear alike.

A request names its case in its text (``case:words;``), so that many runners can ask the same provider at once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from tests.peers import Peer
from tests.wires import Body, anthropic, openai

SHARP = 'Zoë: नमस्ते 👩‍👩‍👧‍👦 e\u0301 \u2028\x85\ufeff\t\r\n\ndata: [DONE]\n\nevent: error\n: "\\" </script>\0'
LONG = SHARP * 30
THOUGHT = "First I look, " * 20
SIGNATURE = "c2lnbmF0dXJl" * 40
NATIVE = ("shell", "search")
"""The runner's own tools."""


@dataclass(frozen=True)
class Said:
    """One answer of a model."""

    text: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()
    thought: str | None = None
    refusal: str | None = None
    openai: Body = field(default_factory=dict)
    """More of the completion's choice."""
    anthropic: Body = field(default_factory=dict)
    """More of the message."""

    def completion(self) -> Response:
        made = [(f"call{n}", name, arguments) for n, (name, arguments) in enumerate(self.calls)]
        body = openai.completion(self.text, calls=made)
        body["choices"][0] |= self.openai
        body["choices"][0]["message"]["refusal"] = self.refusal
        if self.thought is not None:
            body["choices"][0]["message"]["reasoning_content"] = self.thought
        return JSONResponse(body)

    def message(self) -> Response:
        thinking = [{"type": "thinking", "thinking": self.thought, "signature": SIGNATURE}] if self.thought else []
        text = [] if self.text is None else [self.text]
        made = [anthropic.tool_use(f"call{n}", name, arguments) for n, (name, arguments) in enumerate(self.calls)]
        return JSONResponse(anthropic.message(*thinking, *text, *made, **self.anthropic))


@dataclass(frozen=True)
class Fails:
    """An answer that is none."""

    status: int
    html: bool = False

    def completion(self) -> Response:
        return self._response(openai.error("context_length_exceeded", "that is too long"))

    def message(self) -> Response:
        return self._response(anthropic.error("invalid_request_error", "that is too long"))

    def _response(self, body: Body) -> Response:
        return HTMLResponse("<h1>No</h1>", self.status) if self.html else JSONResponse(body, self.status)


LOOK = Said(calls=(("desk__balance", {}),))
WAIT = Said(calls=(("desk__wait", {}),))
HEARD: dict[str, tuple[Said, ...]] = {
    "words": (Said("You have 50,000 dollars."),),
    "after a hidden round": (LOOK, Said("You have 50,000 dollars.")),
    "long and sharp": (LOOK, Said(LONG)),
    "empty text": (Said(""),),
    "nothing": (Said(),),
    "thought": (LOOK, Said("Done.", thought=THOUGHT + SHARP)),
    "thought only": (Said(thought=THOUGHT),),
    "thought and call": (Said(calls=(("shell", {"cmd": "ls"}),), thought=THOUGHT),),
    "call": (LOOK, Said(calls=(("shell", {"cmd": SHARP, "n": 1, "deep": {"list": [1, None, True]}}),))),
    "text and calls": (Said("Let me see.", (("shell", {"cmd": "ls"}), ("search", {}), ("shell", {"cmd": LONG}))),),
    "cut short": (Said("You have", openai={"finish_reason": "length"}, anthropic={"stop_reason": "max_tokens"}),),
    "refused": (LOOK, Said(refusal=SHARP, anthropic={"stop_reason": "refusal"})),
    "cut by a filter": (Said("I", openai={"finish_reason": "content_filter"}, anthropic={"stop_reason": "refusal"}),),
}
"""Answers that a runner hears."""
SCRIPT: dict[str, tuple[Said | Fails, ...]] = {
    **HEARD,
    "slow": (WAIT, Said("Done.")),
    "slow and then a call": (WAIT, Said("I go on.", (("shell", {"cmd": "ls"}),))),
    "fails at once": (Fails(400),),
    "is busy at once": (Fails(404),),
    "fails as a page": (Fails(400, html=True),),
    "fails later": (LOOK, Fails(400)),
    "fails later as a page": (LOOK, Fails(400, html=True)),
    "fails after a slow tool": (WAIT, Fails(400)),
}
_CASE = re.compile(rb"case:([a-z ]+);")


@dataclass
class Model(Peer):
    """A provider of both protocols, which says what the request's case says, by the number of results that it was shown."""

    async def answer(self, request: Request) -> Response:
        body = await request.body()
        found = _CASE.search(body)
        assert found is not None
        messages = json.loads(body)["messages"]
        rounds = SCRIPT[found[1].decode()]
        wire = anthropic if request.url.path.endswith("/messages") else openai
        said = rounds[len(wire.answers(messages))]
        return said.message() if wire is anthropic else said.completion()
