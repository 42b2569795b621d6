"""The model's answers in these tests, in both protocols: every SDK must read them alike.

The members of each protocol that a script of ``tests/peers.py`` has no word for are here, too.

A request names its case in its text (``case:words;``), so that many runners can ask the same
provider at once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from tests.peers import wire_of
from tests.wires import Body, anthropic, openai

SHARP = 'Zoë: नमस्ते 👩‍👩‍👧‍👦 e\u0301 \u2028\x85\ufeff\t\r\n\ndata: [DONE]\n\nevent: error\n: "\\" </script>\0'
LONG = SHARP * 30
THOUGHT = "First I look, " * 20
SIGNATURE = "c2lnbmF0dXJl" * 40
NATIVE = ("shell", "search")
"""The runner's own tools."""


@dataclass(frozen=True)
class ModelAnswer:
    """One answer of a model."""

    text: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()
    thought: str | None = None
    refusal: str | None = None
    openai: Body = field(default_factory=dict)
    """Further members of the completion's choice."""
    anthropic: Body = field(default_factory=dict)
    """Further members of the message."""

    def completion(self) -> Response:
        made = [(f"call{n}", name, arguments) for n, (name, arguments) in enumerate(self.calls)]
        body = openai.completion(self.text, calls=made)
        body["choices"][0] |= self.openai
        body["choices"][0]["message"]["refusal"] = self.refusal
        if self.thought is not None:
            body["choices"][0]["message"]["reasoning_content"] = self.thought
        return JSONResponse(body)

    def message(self) -> Response:
        thinking = (
            [{"type": "thinking", "thinking": self.thought, "signature": SIGNATURE}]
            if self.thought
            else []
        )
        text = [] if self.text is None else [self.text]
        made = [
            anthropic.tool_use(f"call{n}", name, arguments)
            for n, (name, arguments) in enumerate(self.calls)
        ]
        return JSONResponse(anthropic.message(*thinking, *text, *made, **self.anthropic))


@dataclass(frozen=True)
class ErrorAnswer:
    """An error in place of an answer."""

    status: int
    html: bool = False

    def completion(self) -> Response:
        return self._response(openai.error("context_length_exceeded", "that is too long"))

    def message(self) -> Response:
        return self._response(anthropic.error("invalid_request_error", "that is too long"))

    def _response(self, body: Body) -> Response:
        return (
            HTMLResponse("<h1>No</h1>", self.status)
            if self.html
            else JSONResponse(body, self.status)
        )


@dataclass(frozen=True)
class WholeCompletion:
    """A completion, sent as it is; the other protocol has no such answer."""

    body: Body

    def completion(self) -> Response:
        return JSONResponse(self.body)

    def message(self) -> Response:
        return HTMLResponse("no such message", 404)


def with_message(finish: str, **message: Any) -> WholeCompletion:
    body = openai.completion()
    body["choices"][0] |= {
        "message": {"role": "assistant", "content": None, **message},
        "finish_reason": finish,
    }
    return WholeCompletion(body)


LOOK = ModelAnswer(calls=(("desk__balance", {}),))
WAIT = ModelAnswer(calls=(("desk__wait", {}),))
HEARD: dict[str, tuple[ModelAnswer, ...]] = {
    "words": (ModelAnswer("You have 50,000 dollars."),),
    "after a hidden round": (LOOK, ModelAnswer("You have 50,000 dollars.")),
    "long and sharp": (LOOK, ModelAnswer(LONG)),
    "empty text": (ModelAnswer(""),),
    "nothing": (ModelAnswer(),),
    "thought": (LOOK, ModelAnswer("Done.", thought=THOUGHT + SHARP)),
    "thought only": (ModelAnswer(thought=THOUGHT),),
    "thought and call": (ModelAnswer(calls=(("shell", {"cmd": "ls"}),), thought=THOUGHT),),
    "call": (
        LOOK,
        ModelAnswer(calls=(("shell", {"cmd": SHARP, "n": 1, "deep": {"list": [1, None, True]}}),)),
    ),
    "text and calls": (
        ModelAnswer(
            "Let me see.", (("shell", {"cmd": "ls"}), ("search", {}), ("shell", {"cmd": LONG}))
        ),
    ),
    "cut short": (
        ModelAnswer(
            "You have", openai={"finish_reason": "length"}, anthropic={"stop_reason": "max_tokens"}
        ),
    ),
    "refused": (LOOK, ModelAnswer(refusal=SHARP, anthropic={"stop_reason": "refusal"})),
    "cut by a filter": (
        ModelAnswer(
            "I", openai={"finish_reason": "content_filter"}, anthropic={"stop_reason": "refusal"}
        ),
    ),
}
"""Answers that every SDK must read alike."""
CITED = {
    "type": "char_location",
    "cited_text": SHARP,
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 5,
    "file_id": None,
}
FOUND = {
    "type": "web_search_result",
    "url": "http://a/",
    "title": "A",
    "encrypted_content": "eA==",
    "page_age": None,
}
SEARCHED: list[Any] = [
    {"type": "server_tool_use", "id": "srvtoolu1", "name": "web_search", "input": {"query": SHARP}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu1", "content": [FOUND]},
]
BLOCKS: list[Any] = [
    {"type": "redacted_thinking", "data": "eA==" * 100},
    {"type": "text", "text": "I found: "},
    *SEARCHED,
    {"type": "text", "text": LONG, "citations": [CITED, {**CITED, "start_char_index": 3}]},
    {"type": "text", "text": "Cited whole.", "citations": None},
    {
        "type": "tool_of_tomorrow",
        "id": "t1",
        "deep": {"n": [1.5, None, True]},
        "text": "not a text block",
    },
    anthropic.tool_use(
        "call0", "shell", {"cmd": "ls", "n": 1.5, "deep": {"list": [1, None, True, SHARP]}}
    ),
]
TOKENS = {
    "input_tokens": 10,
    "output_tokens": 5,
    "cache_read_input_tokens": 7,
    "cache_creation_input_tokens": 3,
    "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 0},
    "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
    "service_tier": "standard",
}
LOGPROBS = {
    "content": [{"token": "é", "logprob": -0.25, "bytes": [195, 169], "top_logprobs": []}],
    "refusal": None,
}
ANNOTATION = {
    "type": "url_citation",
    "url_citation": {"start_index": 0, "end_index": 2, "url": "http://a/", "title": "A"},
}
ANNOTATED: Body = {
    **openai.completion("Annotated."),
    "system_fingerprint": "fp",
    "service_tier": "default",
    "provider": "someone",
    "usage": {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 7, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2},
        "cost": 0.25,
    },
}
ANNOTATED["choices"][0] |= {"logprobs": LOGPROBS}
ANNOTATED["choices"][0]["message"] |= {"annotations": [ANNOTATION], "x": {"y": 1}}
CALLED = {"name": "shell", "arguments": json.dumps({"cmd": SHARP})}
WHOLE: dict[str, tuple[ModelAnswer | WholeCompletion, ...]] = {
    "every block": (
        ModelAnswer(anthropic={"content": BLOCKS, "usage": TOKENS, "stop_reason": "tool_use"}),
    ),
    "stopped at a word": (
        ModelAnswer(
            "One, two", anthropic={"stop_reason": "stop_sequence", "stop_sequence": "three"}
        ),
    ),
    "paused": (ModelAnswer(anthropic={"content": SEARCHED, "stop_reason": "pause_turn"}),),
    "annotated": (WholeCompletion(ANNOTATED),),
    "function call": (with_message("function_call", function_call=CALLED),),
}
"""Answers of one protocol with further members, all of which must arrive."""
SCRIPT: dict[str, tuple[ModelAnswer | WholeCompletion | ErrorAnswer, ...]] = {
    **HEARD,
    **WHOLE,
    "slow": (WAIT, ModelAnswer("Done.")),
    "slow and then a call": (WAIT, ModelAnswer("I go on.", (("shell", {"cmd": "ls"}),))),
    "fails at once": (ErrorAnswer(400),),
    "fails as a page": (ErrorAnswer(400, html=True),),
    "fails later": (LOOK, ErrorAnswer(400)),
    "fails later as a page": (LOOK, ErrorAnswer(400, html=True)),
    "fails after a slow tool": (WAIT, ErrorAnswer(400)),
}
_CASE = re.compile(rb"case:([a-z ]+);")


async def case_model(request: Request) -> Response:
    """Return the answer of the request's case, in either protocol: the next one after each
    result.
    """
    body = await request.body()
    found = _CASE.search(body)
    assert found is not None
    rounds = SCRIPT[found[1].decode()]

    wire = wire_of(request.url.path)
    said = rounds[len(wire.answers(json.loads(body)["messages"]))]
    return said.message() if wire is anthropic else said.completion()
