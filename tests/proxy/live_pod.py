"""One pod whose answers stream live, for all tests of a module, and the turn of one test.

    scene.says(GatedReply(text("One two.")))  the script of the model, for this test alone
    runner = scene.ask()                      a request that no other test has sent
    scene.ended(), scene.recorded()           the turn's last event in the log, its line of history

The agents: ``analyst`` streams live, ``quiet`` hides its preambles, ``buffered`` does not stream
live. All may read the balance and trade.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from tests.peers import Answer, GatedReply, ReceivedRequest, Reply, calls
from tests.proxy.live_runners import WIRES, Header, RawRunner
from tests.proxy.pod import Pod
from tests.waiting import eventually
from tests.wires import Body, MadeCall, ReplyContent, Wire
from tests.wires import anthropic as messages_wire
from tests.wires import openai as chat_wire
from tests.wires.parts import data_of, word_of

LOOKS = calls(("call_m", "desk__balance", {}), words="Let me have a look.")
"""A reply with words before a managed read."""
BUYS = calls(("call_w", "desk__trade", {"symbol": "NVDA"}), words="Let me buy one.")
"""A reply with words before a managed write."""
LISTS = Reply("Let me list.", (MadeCall("call_n", "shell", '{"cmd": "ls"}'),))
"""A reply with words before a native call."""
_NUMBERS = itertools.count(1)
_PIECE_BYTES = 16 * 1024


def start_live(pod: Pod, *arguments: str) -> None:
    """Write the agents of a pod, and start its proxy."""
    tools = pod.balance_and_trade()
    pod.agent("analyst", *tools, stream="live")
    pod.agent("quiet", *tools, stream="live", preamble="hide")
    pod.agent("buffered", *tools)
    pod.start(*arguments)


@dataclass
class Scene:
    """The part of a shared pod that one test sees, and the protocol that it speaks."""

    pod: Pod
    protocol: str
    number: int = field(default_factory=lambda: next(_NUMBERS))
    """A number that no other test's request has in this process."""

    def __post_init__(self) -> None:
        self._events = len(self.pod.log())
        self._received = len(self.pod.provider.received)
        self._used = len(self.pod.service.received)
        self._lines = {agent: len(self.pod.history(agent)) for agent in ("analyst", "quiet")}

    @property
    def wire(self) -> Wire:
        return WIRES[self.protocol]

    @property
    def glue(self) -> str:
        """Return what stands between the texts of two replies."""
        return "\n\n" if self.wire is chat_wire else ""

    def says(self, *answers: Answer) -> None:
        self.pod.provider.says(*answers)

    def request(self, *messages: Body, **more: Any) -> Body:
        """Return the request of this test; ``messages``: those behind its first."""
        asks = self.wire.user(f"How am I doing? ({self.number})")
        return self.wire.request([asks, *messages], ["shell"], stream=False, more=more)

    def ask(
        self,
        version: str = "HTTP/1.1",
        *headers: Header,
        agent_id: str = "analyst",
        body: Body | None = None,
    ) -> RawRunner:
        """Send the request of this test, or another ``body``."""
        asked = self.request() if body is None else body
        return RawRunner.ask(self.pod, self.protocol, asked, version, *headers, agent_id=agent_id)

    def said(self, runner: RawRunner) -> ReplyContent:
        """Return the content of a whole answer."""
        assert runner.end() == "whole"
        return self.wire.said(self.wire.assembled(runner.stream))

    def error(self, runner: RawRunner) -> Body:
        """Return the error with which an answer ended, and no other way."""
        assert runner.end() == "whole"
        assert runner.status == 200
        told = self.wire.stream_error(runner.stream)
        assert told is not None, runner.stream
        error: Body = json.loads(told)["error"]
        return error

    def log(self, kind: str) -> list[Body]:
        """Return the events of one type since the test began."""
        return [event for event in self.pod.log()[self._events :] if event["type"] == kind]

    def ended(self, turns: int = 1) -> Body:
        """Return the event with which the last of so many requests ended."""

        def ends() -> list[Body]:
            found = [
                each
                for each in self.pod.log()[self._events :]
                if each["type"] in {"response", "error"}
            ]
            return found if len(found) >= turns else []

        return eventually(ends, f"{turns} ends are logged")[turns - 1]

    def recorded(self, lines: int = 1, agent_id: str = "analyst") -> Body:
        """Return the last of so many lines of the agent's history."""

        def found() -> list[Body]:
            entries = self.pod.history(agent_id)[self._lines[agent_id] :]
            return entries if len(entries) >= lines else []

        return eventually(found, f"{lines} lines are written")[lines - 1]

    @property
    def sent(self) -> list[ReceivedRequest]:
        """Return the requests to the provider since the test began."""
        return self.pod.provider.received[self._received :]

    @property
    def writes(self) -> list[ReceivedRequest]:
        """Return the writes that ran since the test began."""
        used = self.pod.service.received[self._used :]
        return [each for each in used if each.path == "/trade"]


def is_idle(pod: Pod) -> bool:
    """Return True if the log has the end of every request that it has the beginning of."""
    begun, ended = set(), set()
    for event in pod.log():
        if event["type"] == "request":
            begun.add(event["turn_id"])
        elif event["type"] in {"response", "error"}:
            ended.add(event["turn_id"])
    return begun <= ended


def events_of(wire: Wire, reply: Reply, *, thought: str = "") -> list[bytes]:
    """Return the events with which a provider streams a reply."""
    body = wire.reply(reply.text, reply.calls, reply.more, thought=thought)
    return [event + b"\n\n" for event in wire.streamed(body).split(b"\n\n")[:-1]]


def stream(events: Iterable[bytes], *, cut: bool = False) -> StreamingResponse:
    """Return a provider's stream of these pieces; ``cut``: its connection breaks at the end."""

    async def pieces() -> AsyncIterator[bytes]:
        for event in events:
            yield event
        if cut:
            raise ConnectionResetError

    return StreamingResponse(pieces(), media_type="text/event-stream")


class Flood:
    """A provider's stream of one long text, which counts how much of it could be sent."""

    def __init__(self, wire: Wire, size: int) -> None:
        events = events_of(wire, Reply("x"))
        place = next(at for at, each in enumerate(events) if word_of(data_of(each)))
        self._before, self._after = events[:place], events[place + 1 :]
        self._piece = events[place].replace(b'"x"', b'"%b"' % (b"x" * _PIECE_BYTES))
        self._size = size
        self.sent = 0
        self.bytes = 0
        """Those of its events so far."""

    def __iter__(self) -> Iterator[bytes]:
        yield from self._before
        while self.sent < self._size:
            yield self._piece
            self.sent += _PIECE_BYTES
            self.bytes += len(self._piece)
        yield from self._after


class GatedStream(GatedReply):
    """A provider's stream of these events, which the test releases one by one."""

    def __init__(self, events: Iterable[bytes], *, cut: bool = False) -> None:
        super().__init__(Reply(), cut=cut)
        self.steps = [*events]

    async def __call__(self, request: Request) -> Answer:
        answer = await super().__call__(request)
        self.events[:] = self.steps
        return answer


def failure(wire: Wire, message: str = "We are overloaded.") -> Body:
    """Return the event with which a provider ends a stream because of a fault of its own."""
    if wire is chat_wire:
        return {"error": {"message": message, "type": "server_error", "param": None, "code": "503"}}
    if wire is messages_wire:
        return {"type": "error", "error": {"type": "overloaded_error", "message": message}}
    return {
        "type": "error",
        "code": "server_error",
        "message": message,
        "param": None,
        "sequence_number": 9,
    }


def managed_events(runner: RawRunner) -> Sequence[Body]:
    """Return the events of an answer that tell of a managed tool."""
    names = ("desk__", "desk.", "call_m", "call_w", "NVDA")
    return [event for event in runner.events() if any(name in json.dumps(event) for name in names)]
