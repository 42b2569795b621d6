"""The model of real runners whose answers stream live, in each of three protocols.

It follows a case, which the last words of the user name (``case:look 17;``; the number is that of
the play), refuses what its protocol's rules refuse, and breaks off where its case says so.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import traceback
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.peers import model_response, wire_of
from tests.wires import Body, MadeCall, Wire, anthropic, openai, responses
from tests.wires.anthropic_rules import of_type
from tests.wires.parts import error_event
from tests.wires.responses_refusals import (
    RefusedError,
    check_context,
    check_items,
    check_members,
)

NATIVE: dict[str, Body] = {
    "Bash": {"command": "echo three files", "description": "List the files."},
    "bash": {"command": "echo three files", "description": "List the files."},
    "run_shell_command": {"command": "echo three files", "is_background": False},
    "exec_command": {"cmd": "echo three files"},
    "shell": {"command": "ls"},
}
"""The runner's own tool, by the names that runners give it, with the arguments of its call."""
_CASE = re.compile(r"case:(\w+) (\d+);")
_CHANGED_THINKING = (
    "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message "
    "cannot be modified. These blocks must remain as they were in the original response."
)
type Failure = Literal["cut", "error"]


@dataclass(frozen=True)
class Step:
    """One reply: a thought, words, and a call.

    ``calls``: a managed tool's name, "native" for the runner's own, or "". ``fails``: how its stream
    ends the first time, behind its first word.
    """

    words: str
    calls: str = ""
    thought: str = ""
    fails: Failure | None = None


CASES: dict[str, tuple[Step, ...]] = {
    "look": (Step("Let me look. ", "balance"), Step("You have 50,000 dollars.")),
    "two": (
        Step("Let me look. ", "balance", thought="Where is it? "),
        Step("You have 50,000 dollars.", thought="Here it is. "),
    ),
    "everything": (
        Step("First the balance. ", "balance", thought="What is there? "),
        Step("Now the files. ", "native", thought="What else is there?"),
        Step("Now I buy. ", "trade", thought="That is enough. "),
        Step("You own three files.", thought="It is done."),
    ),
    "cut": (Step("I buy one. ", "trade"), Step("Now you own a share.", fails="cut")),
    "error": (Step("I buy one. ", "trade"), Step("Now you own a share.", fails="error")),
    "quietcut": (Step("", "trade"), Step("Now you own a share.", fails="cut")),
    "quieterror": (Step("", "trade"), Step("Now you own a share.", fails="error")),
}
"""The model's words and calls; its next reply is that behind the last result."""


class _ChangedThinkingError(Exception):
    """Thoughts that came back are not those of one reply."""


@dataclass
class LiveModel:
    """The model of a ``Provider``."""

    replies: dict[str, bytes] = field(default_factory=dict)
    """By the ids of their calls."""
    refused: list[str] = field(default_factory=list)
    """The rules that requests broke, each behind the number of its play."""
    failed: Counter[str] = field(default_factory=Counter)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    kept: dict[str, Body] = field(default_factory=dict)
    """The items of Responses that it stores, by their ids."""
    sealed: set[str] = field(default_factory=set)
    """The contents of its reasoning that it encrypted."""
    bodies: defaultdict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """The requests of each play's conversation, by its number."""
    remembers_thoughts: bool = True
    """True if it knows all thoughts that led to a call.

    Otherwise it knows those that are signed, and refuses them in the words of the API.
    """

    async def __call__(self, request: Request) -> Response:
        if request.method != "POST" or not request.url.path.endswith(
            ("/messages", "/responses", "/completions")
        ):
            return JSONResponse({"data": []})

        content = await request.body()
        body = json.loads(content)
        wire = wire_of(request.url.path)
        if not _is_mediated(wire, body):
            reply = self._reply(wire, body, Step("A title."))
            return model_response(wire, reply, stream=body.get("stream") is True)

        number = _play(wire, body)
        self.bodies[number].append(content)
        try:
            self._check(wire, body)
        except RefusedError as error:
            self.refused.append(f"{number}: {error}")
            return JSONResponse(error.body, error.status)
        except _ChangedThinkingError:
            return JSONResponse(wire.error("invalid_request_error", _CHANGED_THINKING), 400)
        except (AssertionError, LookupError) as error:
            rule = traceback.extract_tb(error.__traceback__)[-1]
            self.refused.append(f"{number}: {error} (line {rule.lineno})")
            message = str(error) or str(rule.lineno)
            return JSONResponse(wire.error("invalid_request_error", message), 400)

        key, step = self._step(wire, body)
        reply = self._reply(wire, body, step)
        if body.get("stream") is not True:
            return Response(reply, media_type="application/json")

        fails = step.fails if not self.failed[key] else None
        self.failed[key] += fails is not None
        return StreamingResponse(
            _stream(wire, wire.streamed(reply), fails), media_type="text/event-stream"
        )

    def _check(self, wire: Wire, body: Body) -> None:
        """Check a request as its API does: of Responses, by what is stored, too."""
        if wire is openai and not self.remembers_thoughts:
            body = {**body, "messages": [_without_thought(each) for each in body["messages"]]}
        if wire is anthropic and not self.remembers_thoughts:
            self._check_signed(body)
            return
        if wire is not responses:
            wire.check(body, self.replies)
            return

        # The proxy says whether its own tools are strict. Some runners leave that out.
        tools = [
            tool if tool.get("name", "").startswith("desk__") else {"strict": False, **tool}
            for tool in body.get("tools", ())
        ]
        wire.check({**body, "tools": tools}, self.replies)
        items = responses.items_of(body["input"])
        check_members(body)
        check_items(items)
        check_context([self.resolved(item) for item in items], self.kept, self.sealed)

    def _check_signed(self, body: Body) -> None:
        """Check thoughts of earlier turns as Anthropic does: they may be left out, not changed."""
        try:
            anthropic.check(body, self.replies)
        except AssertionError as error:
            if traceback.extract_tb(error.__traceback__)[-1].name != "_check_thinking":
                raise
            if any(of_type(message, "thinking") for message in body["messages"]):
                raise _ChangedThinkingError from error

    def resolved(self, item: Body) -> Body:
        """Return the item that an item refers to, or itself."""
        if item.get("type") != "item_reference":
            return item
        if item["id"] not in self.kept:
            raise RefusedError(f"Item with id '{item['id']}' not found.", status=404)
        return self.kept[item["id"]]

    def _step(self, wire: Wire, body: Body) -> tuple[str, Step]:
        """Return the next step of the case, with the case."""
        messages = body[wire.TRANSCRIPT]
        texts = [json.dumps(message) for message in messages]
        places = [place for place, text in enumerate(texts) if _CASE.search(text)]
        case, number = _CASE.findall(texts[places[-1]])[-1]
        if case == "again":
            names = [name.rpartition("__")[2] for name in wire.called(body)]
            return "", Step(f"I remember: {', '.join(names)}.")
        done = len(wire.answers(messages[places[-1] :]))
        return f"{case} {number}", CASES[case][done]

    def _reply(self, wire: Wire, body: Body, step: Step) -> bytes:
        """Return the reply of a step, with ids that no other has."""
        number = next(self.numbers)
        offered = wire.tools(body)
        made = []
        if step.calls:
            native = next((name for name in NATIVE if name in offered), "")
            name = native if step.calls == "native" else f"desk__{step.calls}"
            arguments = NATIVE.get(name) or (
                {"play": _play(wire, body)} if step.calls == "trade" else {}
            )
            made = [MadeCall(f"call{number}", name, json.dumps(arguments))]

        prefix = {anthropic: "msg", openai: "chatcmpl", responses: "resp"}[wire]  # type: ignore[index]
        written = wire.reply(
            step.words,
            made,
            {"id": f"{prefix}_{number}", "model": body["model"]},
            thought=step.thought,
        )
        if wire is responses:
            written = self._with_own_ids(written, number, is_kept=body.get("store") is not False)
        for call in made:
            self.replies[call.id] = written
        return written

    def _with_own_ids(self, response: bytes, number: int, *, is_kept: bool) -> bytes:
        body: Body = json.loads(response)
        for item in body["output"]:
            item["id"] = f"{item['id'].partition('_')[0]}_{number:048x}"
            if is_kept:
                self.kept[item["id"]] = item
            if "encrypted_content" in item:
                self.sealed.add(item["encrypted_content"])
        return json.dumps(body).encode()


def _is_mediated(wire: Wire, body: Body) -> bool:
    """Return whether a request is of the conversation.

    Agents ask beside it, for a title or a memory: such a request has no managed tools, and not its
    hidden rounds.
    """
    return any(name.startswith("desk__") for name in wire.tools(body))


def _without_thought(message: Body) -> Body:
    return {name: value for name, value in message.items() if name != "reasoning_content"}


def _play(wire: Wire, body: Body) -> str:
    """Return the number of the play that a request is of."""
    return str(_CASE.findall(json.dumps(body[wire.TRANSCRIPT]))[-1][1])


async def _stream(wire: Wire, stream: bytes, fails: Failure | None) -> AsyncIterator[bytes]:
    """Yield the events of a stream; one that fails has its first word only."""
    events = [event + b"\n\n" for event in stream.split(b"\n\n")[:-1]]
    for event in events:
        await asyncio.sleep(0.001)  # So that words come one by one, as a model's do
        yield event
        if fails and b"Now " in event:
            break
    if fails == "cut":
        raise ConnectionResetError
    if fails == "error":
        yield error_event(wire)
