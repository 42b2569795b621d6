"""A scripted desk: model, service and runner at the ports of the real mediator. It draws every crossing of a border.

The mediator, the dialect, the turn, the store and history are the real ones; what is scripted is what the peers say. A
test holds the picture inline, and one body draws the same picture whether the runner streams or not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from claw_contract.history import HistoryEntry
from claw_mediate import result
from claw_mediate.exchange import Exchange, Request
from claw_mediate.io.agents import Agent
from claw_mediate.io.identity import Admitted
from claw_mediate.io.log import EventLog
from claw_mediate.io.settings import SETTINGS, Settings
from claw_mediate.io.upstream import ModelAnswer, Responded, Unreachable
from claw_mediate.mediator import Mediator, Peers
from claw_mediate.model import Answer, Call
from tests.mediate import assembled
from tests.peers import completion

SERVICE = "desk"
AGENT = "analyst"
TOKEN = f"{AGENT}:secret-of-the-analyst"


def tool(name: str, *, write: bool = False, schema: dict[str, Any] | None = None, **annotations: Any) -> dict[str, Any]:
    """A manifest entry of the desk: reads by GET, writes by POST."""
    return {
        "name": f"{SERVICE}.{name}",
        "description": f"{name} of the desk",
        "inputSchema": schema or {"type": "object"},
        "annotations": {"readOnly": not write, **annotations},
        "execution": {
            "transport": "http",
            "service": SERVICE,
            "base_url": "http://desk:4000",
            "method": "POST" if write else "GET",
            "path": f"/{name}",
        },
    }


DEFAULT_TOOLS = (tool("balance"), tool("quote"), tool("trade", write=True))


class Model:
    """The provider's side: each answer is a wire body, said in order."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.script: list[ModelAnswer | Callable[[], ModelAnswer]] = []
        self.bodies: list[dict[str, Any]] = []
        self.known = 0

    async def post(
        self, _agent: str, _provider: Any, _target: str, _headers: Any, body: bytes, *, again: bool
    ) -> ModelAnswer:
        del again
        request = json.loads(body)
        self.bodies.append(request)
        self.desk.draw("cllama → model", self._news(request))
        said = self.script.pop(0)
        answer = said() if callable(said) else said
        self.desk.draw("model  → cllama", self.desk.reply_words(answer))
        return answer

    async def close(self) -> None:
        return

    def _news(self, request: dict[str, Any]) -> str:
        messages = request["messages"]
        fresh, first = messages[self.known :], self.known == 0
        self.known = len(messages)
        forbidden = " [tools forbidden]" if request.get("tool_choice") == "none" else ""
        if first:
            sent = len(self.desk.messages)
            hidden = f" + {len(messages) - sent} hidden messages" if len(messages) > sent else ""
            return "the runner's request" + hidden + forbidden
        results = [
            f"{self.desk.names[m['tool_call_id']]} = {_short(json.loads(m['content']))}"
            for m in fresh
            if m["role"] == "tool"
        ]
        return ", ".join(results) + forbidden


class Services:
    """The service's side: each answer is (status, JSON), by tool, said in order; the last one is said for ever."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.script: dict[str, list[tuple[int, Any]]] = {}
        self.takes: dict[str, float] = {}
        self.keys: list[str] = []
        self.calls: list[str] = []

    async def call(self, _caller: Any, call: Call, key: str, seconds: float) -> Answer:
        self.desk.draw("cllama → service", f"{call.canonical} {call.arguments.values}")  # type: ignore[union-attr]
        self.keys.append(key)
        self.calls.append(call.canonical)
        await asyncio.sleep(0)
        taken = self.takes.get(call.canonical, 0.0)
        self.desk.clock += min(taken, seconds)
        if taken > seconds:
            return result.timed_out(call, seconds)
        answers = self.script.get(call.canonical, [(200, {})])
        status, data = answers.pop(0) if len(answers) > 1 else answers[0]
        body = json.dumps(data).encode()
        return result.from_http(call, status, body, len(body), 16384)

    async def close(self) -> None:
        return


class Desk:
    """The runner's side, and the board on which everything is drawn."""

    def __init__(self, home: Path, *, stream: bool) -> None:
        self.home = home
        self.stream = stream
        self.lines: list[str] = []
        self.clock = 1000.0
        self.names: dict[str, str] = {}
        self.messages: list[dict[str, Any]] = []
        self.native: list[str] = []
        self.more: dict[str, Any] = {}
        self.status = 0
        self.answer: dict[str, Any] = {}
        self.usage: dict[str, Any] | None = None
        self.events: list[dict[str, Any]] = []
        self.model, self.services = Model(self), Services(self)
        self._ids = 0
        self.grant(*DEFAULT_TOOLS)
        values = {setting.name: setting.default for setting in SETTINGS}
        values |= {"context": str(home / "context"), "auth": str(home / "auth"), "history": str(home / "history")}
        self.settings = Settings.of(values | {"keepalive_first_ms": "60000"})
        self.open()

    def open(self) -> None:
        """(Re)start the mediator; the store is in memory unless the test says otherwise."""
        log = EventLog(lambda line: self.events.append(json.loads(line)))
        peers = Peers(self.model, self.services, lambda: self.clock)  # type: ignore[arg-type]
        self.mediator = Mediator(self.settings, log, {"OPENAI_API_KEY": "sk-desk"}, peers)

    def grant(self, *tools: dict[str, Any], **policy: Any) -> None:
        """What the agent may do from now on."""
        self.granted = {entry["name"] for entry in tools}
        directory = self.home / "context" / AGENT
        directory.mkdir(parents=True, exist_ok=True)
        metadata = {"service": AGENT, "pod": "desk", "token": TOKEN}
        (directory / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
        manifest = {"version": 1, "tools": tools, "policy": policy}
        staged = directory / "tools.staged"
        staged.write_text(json.dumps(manifest), encoding="utf-8")
        staged.rename(directory / "tools.json")

    def model_says(self, *parts: str | tuple[str, dict[str, Any] | str], **more: Any) -> None:
        """Text, or calls as (name, arguments): ``desk.x`` is called by its alias, other names are the runner's."""
        words = [part for part in parts if isinstance(part, str)]
        made = [self._call(*part) for part in parts if not isinstance(part, str)]
        self.model_answers(completion("".join(words) or None, calls=made, **more))

    def model_answers(self, body: Any, status: int = 200) -> None:
        """A wire body, as it is."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.model.script.append(Responded(status, "application/json", data))

    def model_fails(self, code: str) -> None:
        self.model.script.append(Unreachable(code, "the provider can't be reached"))

    def service_answers(self, name: str, *answers: Any, status: int = 200) -> None:
        self.services.script[f"{SERVICE}.{name}"] = [(status, answer) for answer in answers]

    async def asks(self, words: str, *, native: list[str] | None = None, **more: Any) -> str:
        """The runner says something; the picture of the turn."""
        self.messages.append({"role": "user", "content": words})
        self.native = self.native if native is None else native
        self.more = more
        return await self.turn()

    async def runs_native(self, output: str) -> str:
        """The runner answers the native calls that it was handed, and goes on."""
        for call in self.answer["tool_calls"]:
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
        return await self.turn()

    async def turn(self) -> str:
        self.lines, self.model.known = [], 0
        exchange = await self.mediator.exchange(self._admitted(), self._request())
        assert isinstance(exchange, Exchange)
        body = b"".join([chunk async for chunk in exchange.chunks])
        self.status = exchange.status
        error = json.loads(body).get("error") if not exchange.streaming else assembled.stream_error(body)
        if error:
            # An error behind the headers of a stream has no status of its own; history knows it.
            self.status = self.history()[-1]["status_code"]
            self.draw("cllama → runner", f"{self.status} {error['code']}")
        else:
            self.answer, self.usage = (
                assembled.of_stream(body) if exchange.streaming else assembled.of_body(json.loads(body))
            )
            self.messages.append({k: v for k, v in self.answer.items() if v is not None or k == "content"})
            hidden = len(self.history()[-1]["tool_trace"])
            self.draw("cllama → runner", self.words(self.answer) + (f"   [{hidden} hidden]" if hidden else ""))
        return "\n" + "\n".join(self.lines) + "\n"

    def history(self) -> list[dict[str, Any]]:
        file = self.home / "history" / AGENT / "history.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines()
        for line in lines:
            HistoryEntry.model_validate_json(line)
        return [json.loads(line) for line in lines]

    def interventions(self) -> list[str]:
        return [event["intervention"] for event in self.events if event["type"] == "intervention"]

    def draw(self, border: str, what: str) -> None:
        self.lines.append(f"{border:<17} {what}")

    def reply_words(self, answer: ModelAnswer) -> str:
        if not isinstance(answer, Responded):
            return f"unreachable: {answer.code}"
        if answer.status != 200:
            return f"status {answer.status}"
        try:
            return self.words(json.loads(answer.body)["choices"][0]["message"])
        except (ValueError, LookupError, TypeError, AttributeError):
            return "no completion"

    def words(self, message: dict[str, Any]) -> str:
        parts = [repr(message["content"])] if message.get("content") else []
        for call in message.get("tool_calls") or ():
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            shown = self.names.get(call["id"], name)
            owner = "native" if name in self.native else "managed" if shown in self.granted else "unknown"
            parts.append(f"{owner}:{shown}{'' if arguments == '{}' else arguments}")
        return " ".join(parts) or "nothing"

    def _call(self, name: str, arguments: dict[str, Any] | str) -> tuple[str, str, Any]:
        self._ids += 1
        call_id = f"call_{self._ids}"
        self.names[call_id] = name
        return call_id, name.replace(f"{SERVICE}.", f"{SERVICE}__"), arguments

    def _admitted(self) -> Admitted:
        admitted = self.mediator.admit(
            Request("POST", "/v1/chat/completions", [("authorization", f"Bearer {TOKEN}")], b"")
        )
        assert isinstance(admitted, Admitted)
        assert isinstance(admitted.agent, Agent)
        return admitted

    def _request(self) -> Request:
        body: dict[str, Any] = {"model": "gpt-test", "messages": self.messages, **self.more}
        if self.native:
            body["tools"] = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in self.native]
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        headers = [("authorization", f"Bearer {TOKEN}"), ("content-type", "application/json")]
        return Request("POST", "/v1/chat/completions", headers, json.dumps(body).encode())


def _short(envelope: dict[str, Any]) -> str:
    """A result as it matters to the picture: its data, or its error's code."""
    if envelope["ok"]:
        return str(envelope.get("data", "done")) + (" (truncated)" if envelope.get("truncated") else "")
    return f"! {envelope['error']['code']}"
