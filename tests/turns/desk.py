"""A scripted desk: model, service and runner at the ports of the real mediator.

It draws every message between them.

The mediator, the dialect, the turn, the store and history are real; only the peers' messages are
scripted. A test holds the picture inline, and one test body draws the same picture in every
dialect, whether the runner streams or not.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from claw_contract.history import HistoryEntry
from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import Agent
from claw_mediate.core.http import AnswerCutError, Forward, Request, RunnerResponse
from claw_mediate.mediator import Mediator
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.ports import Peers
from claw_state.url import File
from tests.events import known
from tests.settings import default_settings
from tests.turns.scripted import SERVICE, Headers, Model, Part, Services
from tests.wires import Body, ReplyContent, Wire, anthropic, openai, openai_legacy, responses

WIRES: dict[str, Wire] = {
    "openai": openai,
    "anthropic": anthropic,
    "legacy": openai_legacy,
    "responses": responses,
}
"""Each dialect that a desk can speak, by the name it has in a test's parameters."""
KEYS = {"OPENAI_API_KEY": "sk-desk", "ANTHROPIC_API_KEY": "sk-ant-desk"}


def tool(
    name: str,
    *,
    write: bool = False,
    schema: Body | None = None,
    service: str = SERVICE,
    **annotations: Any,
) -> Body:
    """Return a manifest entry of the desk: a read by GET, or a write by POST."""
    return {
        "name": f"{service}.{name}",
        "description": f"{name} of the {service}",
        "inputSchema": schema or {"type": "object"},
        "annotations": {"readOnly": not write, **annotations},
        "execution": {
            "transport": "http",
            "service": service,
            "base_url": f"http://{service}:4000",
            "method": "POST" if write else "GET",
            "path": f"/{name}",
        },
    }


with_tools = pytest.mark.wires("openai", "anthropic", "responses")
"""Without OpenAI's old functions, which can neither require a call nor make several at once."""

TERMINAL_TOOL: Body = {"x-claw.terminalOnSuccess": True}
DEFAULT_TOOLS = (tool("balance"), tool("quote"), tool("trade", write=True))


class Desk:
    """The runner's side, and the board on which everything is drawn."""

    def __init__(self, home: Path, wire: Wire, *, stream: bool, live: bool = False) -> None:
        """``live``: the agent's streams show what the model writes while it comes."""
        self.home = home
        self.wire = wire
        self.stream = stream
        self.live = live
        self.agent = "analyst"
        self.lines: list[str] = []
        self.clock = 1000.0
        self.messages: list[Body] = []
        self.native: list[str] = []
        self.more: Body = {}
        self.headers: dict[str, str] = {}
        """The headers that the runner sends beside its credential."""
        self.listens = True
        """False if the runner does not take the whole answer."""
        self.status = 0
        self.body = b""
        """The last answer, as a whole response of the protocol."""
        self.raw = b""
        """The same in the bytes that were sent."""
        self.answered_with: dict[str, str] = {}
        """Its headers."""
        self.answer = ReplyContent()
        """Its words; of a live one those of its last reply only, as a buffered one has them."""
        self.shows_preambles = live
        """False if what the runner gets of earlier replies is not to be checked."""
        self.shown = ReplyContent()
        """All of its words."""
        self.events: list[Body] = []
        self.mediators: list[Mediator] = []
        """All mediators, also those that count as killed: their turns go on in this
        process until the end.
        """
        self.model, self.services = Model(self), Services(self)
        self.grant(*DEFAULT_TOOLS)
        values = default_settings()
        values |= {
            "context": str(home / "context"),
            "auth": str(home / "auth"),
            "history": str(home / "history"),
        }
        self.settings = Settings.of(values | {"keepalive_first_ms": "60000"})
        self.open()

    def open(self) -> None:
        """(Re)start the mediator; the store is in memory unless the test says otherwise."""
        log = EventLog(lambda line: self.events.append(known(line)))
        peers = Peers(self.model, self.services, lambda: self.clock)  # type: ignore[arg-type]
        self.mediator = Mediator(self.settings, log, KEYS, peers)
        self.mediators.append(self.mediator)

    async def close(self) -> None:
        for mediator in self.mediators:
            await mediator.close(0)

    def remembers(self) -> None:
        """Keep the state in a file from now on, so that ``open`` starts a proxy that finds it."""
        self.settings = replace(self.settings, state=File(str(self.home / "state.db")))
        self.open()

    def grant(self, *tools: dict[str, Any], **policy: Any) -> None:
        """Set the tools and the policy of the agent from now on."""
        self.tools = tools
        self.granted = {entry["name"]: entry["description"] for entry in tools}
        directory = self.home / "context" / self.agent
        directory.mkdir(parents=True, exist_ok=True)
        metadata = {"service": self.agent, "pod": "desk", "token": self.token}
        (directory / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
        streams = {"stream": "live"} if self.live else {}
        manifest = {"version": 1, "tools": tools, "policy": streams | policy}
        staged = directory / "tools.staged"
        staged.write_text(json.dumps(manifest), encoding="utf-8")
        staged.rename(directory / "tools.json")

    def admits(self, agent: str) -> None:
        """Let another agent ask from now on, with the same grants."""
        self.agent = agent
        self.grant(*self.tools)

    @property
    def token(self) -> str:
        return f"{self.agent}:secret-of-the-{self.agent}"

    def model_says(self, *parts: Part, cut: bool = False, takes: float = 0.0, **more: Any) -> None:
        """Script a reply: text, or calls as (name, arguments).

        ``desk.x`` is called as it was offered, other names as they are.

        ``cut``: the model runs out of tokens. ``takes``: seconds of the desk's clock. ``more``:
        members of the response.
        """
        self.model.says(parts, cut=cut, takes=takes, more=more)

    def model_breaks_off(self, *parts: Part, behind: str) -> None:
        """Script a reply of a live turn whose stream ends right behind this word."""
        self.model.breaks_off(parts, behind)

    def model_answers(self, body: bytes, headers: Headers = ()) -> None:
        """Script a body, as it is."""
        self.model.answers(200, body, headers)

    def model_refuses(self, status: int, code: str, message: str = "no") -> None:
        self.model.answers(status, json.dumps(self.wire.error(code, message)).encode())

    def model_fails(self, code: str) -> None:
        self.model.fails(code)

    def service_answers(self, name: str, *answers: Any, status: int = 200) -> None:
        self.services.script[f"{SERVICE}.{name}"] = [(status, answer) for answer in answers]

    async def asks(self, words: str, *, native: list[str] | None = None, **more: Any) -> str:
        """Send a user's message; return the picture of the turn.

        ``more``: further members of the request.
        """
        return await self.sends(self.wire.user(words), native=native, **more)

    async def sends(self, message: Body, *, native: list[str] | None = None, **more: Any) -> str:
        """Send a message of the runner's own; return the picture of the turn."""
        self.messages.append(message)
        self.native = self.native if native is None else native
        self.more = more
        return await self.turn()

    async def runs_native(self, output: str) -> str:
        """Answer the native calls that the runner was handed; return the picture of the turn."""
        self.messages += self.wire.results([(call.id, output) for call in self.answer.calls])
        return await self.turn()

    async def turn(self) -> str:
        """Send the runner's messages; return the picture of the turn."""
        self.lines, self.model.known = [], 0
        self.model.said.clear()
        exchange = await self.mediator.exchange(self.admitted(), self.request())
        if isinstance(exchange, Forward):
            self.draw(
                "cllama → model",
                "the runner's request, as it is" if exchange.body is None else "edited",
            )
        else:
            body, is_cut = await self._take(exchange)
            if self.model.fault is not None:
                raise self.model.fault
            if is_cut:
                self.raw = body
                self.status = self.history()[-1]["status_code"]
                self.draw("cllama → runner", f"cut: {self.logged_error()}")
                return "\n" + "\n".join(self.lines) + "\n"
            if exchange.on_delivered is not None and self.listens:
                await exchange.on_delivered()
            self._answered(exchange, body)
        return "\n" + "\n".join(self.lines) + "\n"

    async def _take(self, exchange: RunnerResponse) -> tuple[bytes, bool]:
        """Return all that the runner gets, and whether the answer was cut."""
        chunks: list[bytes] = []
        try:
            async for chunk in exchange.chunks:
                chunks += [chunk]
        except AnswerCutError:
            return b"".join(chunks), True
        return b"".join(chunks), False

    def _answered(self, exchange: RunnerResponse, body: bytes) -> None:
        self.status, self.answered_with = exchange.status, dict(exchange.headers)
        error = (
            self.wire.stream_error(body)
            if exchange.streaming
            else body
            if exchange.status != 200
            else None
        )
        self.raw = body
        if error is not None:
            # An error after the headers of a stream has no status of its own; history has it.
            self.status = self.history()[-1]["status_code"]
            self.draw(
                "cllama → runner", f"{self.status} {self.wire.code(error) or self.logged_error()}"
            )
            return
        self.body = self.wire.assembled(body) if exchange.streaming else body
        self.shown = self.wire.said(self.body)
        self.answer = self._last_of(self.shown) if self.shows_preambles else self.shown
        self.messages.append(self.wire.kept(self.body))
        hidden = len(self.history()[-1]["tool_trace"])
        self.draw(
            "cllama → runner", self.words(self.answer) + (f"   [{hidden} hidden]" if hidden else "")
        )

    def _last_of(self, shown: ReplyContent) -> ReplyContent:
        """Return what the last reply has shown: all others must have been shown before it."""
        text, thought = shown.text, shown.thought
        for earlier in self.model.said[:-1]:
            assert text.startswith(earlier.text)
            assert thought.startswith(earlier.thought)
            text = text.removeprefix(earlier.text)
            text = text.removeprefix("\n\n") if earlier.text else text
            thought = thought.removeprefix(earlier.thought)
        return replace(shown, text=text, thought=thought)

    @property
    def usage(self) -> tuple[int, int]:
        """Return the tokens in and out that the runner was told of."""
        return self.wire.usage(self.body)

    def history(self) -> list[Body]:
        file = self.home / "history" / self.agent / "history.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines()
        for line in lines:
            HistoryEntry.model_validate_json(line)
        return [json.loads(line) for line in lines]

    def told(self, kind: str) -> list[Body]:
        """Return the log's events of a type."""
        return [event for event in self.events if event["type"] == kind]

    def interventions(self) -> list[str]:
        return [event["intervention"] for event in self.events if event["type"] == "intervention"]

    def logged_error(self) -> str:
        """Return the code of the last logged error: Anthropic's form of an error
        has no place for it.
        """
        code: str = [event for event in self.events if event["type"] == "error"][-1]["error"]
        return code

    def draw(self, border: str, what: str) -> None:
        self.lines.append(f"{border:<17} {what}")

    def words(self, said: ReplyContent) -> str:
        parts = [f"thought:{said.thought!r}"] if said.thought else []
        parts += [repr(said.text)] if said.text else []
        for call in said.calls:
            shown = self.model.names.get(call.id, call.name)
            owner = (
                "native"
                if call.name in self.native
                else "managed"
                if shown in self.granted
                else "unknown"
            )
            parts.append(f"{owner}:{shown}{'' if call.arguments == '{}' else call.arguments}")
        return " ".join(parts) or "nothing"

    def admitted(self) -> Identity:
        admitted = self.mediator.admit(
            Request("POST", self.wire.PATH, [("authorization", f"Bearer {self.token}")], b"")
        )
        assert isinstance(admitted, Identity)
        assert isinstance(admitted.agent, Agent)
        return admitted

    def request(self) -> Request:
        body = self.wire.request(self.messages, self.native, stream=self.stream, more=self.more)
        headers = [("authorization", f"Bearer {self.token}"), *self.headers.items()]
        return Request("POST", self.wire.PATH, headers, json.dumps(body).encode())


@asynccontextmanager
async def opened[D: Desk](desk: D) -> AsyncIterator[D]:
    yield desk
    await desk.close()
