"""One turn against a provider that fails: the real mediator, its real clients, real sockets on loopback."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claw_mediate.exchange import Exchange, Request
from claw_mediate.io.identity import Admitted
from claw_mediate.io.log import EventLog
from claw_mediate.io.settings import SETTINGS, Settings
from claw_mediate.mediator import Mediator
from tests import raw
from tests.failures.planted import AGENT_SECRET, PROVIDER_KEY, TOOL_TOKEN
from tests.failures.provider import Failure
from tests.failures.table import Phase
from tests.wires import Made, Wire

AGENT = "analyst"
TOKEN = f"{AGENT}:{AGENT_SECRET}"
GOOD_CALLS = {Phase.FIRST: 0, Phase.OPEN: 0, Phase.LATER: 1, Phase.FINAL: 2}
"""How often the model is asked with success before it fails."""
_AMPLE_MS = 100_000_000
_LITTLE = 0.15
"""Seconds of a turn that is to end by its time."""


@dataclass
class Seen:
    """Everything that left the proxy in one turn."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    streaming: bool
    history: list[dict[str, Any]]
    events: list[dict[str, Any]]
    to_provider: list[bytes]
    to_service: list[bytes]

    @property
    def told(self) -> bytes:
        """All that runner, operator and disk got."""
        kept = json.dumps([self.history, self.events], ensure_ascii=False).encode()
        return b"\n".join([json.dumps(self.headers).encode(), self.body, kept])


@dataclass
class Scene:
    """The peers of one turn, and the clock that it is measured with."""

    home: Path
    dialect: Wire
    phase: Phase
    stream: bool
    provider: raw.Peer = field(default_factory=raw.Peer)
    service: raw.Peer = field(default_factory=raw.Peer)
    clock: float = 1000.0
    events: list[bytes] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    """Lets a held provider fail."""

    async def play(self, failure: Failure) -> Seen:
        await self.provider.start()
        await self.service.start()
        self._script(failure)
        mediator = self._mediator(spent=failure.until == "time is spent")
        try:
            return await self._turn(mediator)
        finally:
            await mediator.close(0)
            await self.provider.stop()
            await self.service.stop()

    async def _turn(self, mediator: Mediator) -> Seen:
        request = Request(
            "POST",
            self.dialect.PATH,
            [("authorization", f"Bearer {TOKEN}"), ("content-type", "application/json")],
            json.dumps(self.dialect.request([self.dialect.user("Go")], (), stream=self.stream, more={})).encode(),
        )
        admitted = mediator.admit(request)
        assert isinstance(admitted, Admitted)
        exchange = await mediator.exchange(admitted, request)
        assert isinstance(exchange, Exchange)
        chunks = [await anext(exchange.chunks)]
        self.go.set()  # the first byte is out
        chunks += [chunk async for chunk in exchange.chunks]
        file = self.home / "history" / AGENT / "history.jsonl"
        return Seen(
            exchange.status,
            exchange.headers,
            b"".join(chunks),
            exchange.streaming,
            [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()],
            [json.loads(line) for line in self.events],
            self.provider.received,
            self.service.received,
        )

    def _script(self, failure: Failure) -> None:
        """What leads to the phase, then the failure for as long as it is asked for."""
        acts = [raw.answers(200, self._calls(number)) for number in range(GOOD_CALLS[self.phase])]
        if acts:
            acts[-1] = self._then(acts[-1], failure)
        elif failure.until == "never listens":
            self.provider.refuse()
        failing = failure.act(self.dialect)
        self.provider.script = [*acts, raw.held(failing, self.go) if self.phase is Phase.OPEN else failing]
        self.service.script = [raw.answers(200, b'{"usd": 50000}')]

    def _calls(self, number: int) -> bytes:
        return self.dialect.reply("", [Made(f"c{number}", "desk__balance", f'{{"n": {number}}}')], {})

    def _then(self, act: raw.Act, failure: Failure) -> raw.Act:
        """The last good answer; what comes behind it meets a turn that has little time, or an address without a listener."""

        async def last(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if failure.until == "time is spent":
                self.clock += _AMPLE_MS / 1000 - _LITTLE
            if failure.until == "never listens":
                self.provider.refuse()
            await act(reader, writer)

        return last

    def _mediator(self, *, spent: bool) -> Mediator:
        little = spent and self.phase in (Phase.FIRST, Phase.OPEN)
        policy = {
            "max_rounds": 1 if self.phase is Phase.FINAL else 8,
            "total_timeout_ms": _LITTLE * 1000 if little else _AMPLE_MS,
            "soft_deadline_ratio": 1 - 1e-12,
        }
        (self.home / "auth").mkdir()
        self._grant({name: int(value) if name.endswith("ms") else value for name, value in policy.items()})
        values = {setting.name: setting.default for setting in SETTINGS}
        values |= {name: str(self.home / name) for name in ("context", "auth", "history")}
        first = 1 if self.phase is Phase.OPEN else 60_000
        settings = Settings.of(values | {"keepalive_first_ms": str(first), "keepalive_ms": "60000"})
        base = f"{self.provider.url}/v1"
        keys = {"OPENAI_API_KEY": PROVIDER_KEY, "ANTHROPIC_API_KEY": PROVIDER_KEY}
        env = {**keys, "OPENAI_BASE_URL": base, "ANTHROPIC_BASE_URL": base}
        mediator = Mediator(settings, EventLog(self.events.append), env)
        mediator._playing._peers = mediator._peers._replace(now=lambda: self.clock)
        mediator._peers.upstream._sleep = self._sleep
        mediator.registry._states.now = lambda: self.clock
        return mediator

    async def _sleep(self, seconds: float) -> None:
        self.clock += seconds

    def _grant(self, policy: dict[str, Any]) -> None:
        directory = self.home / "context" / AGENT
        directory.mkdir(parents=True)
        metadata = {"service": AGENT, "pod": "desk", "token": TOKEN}
        (directory / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
        tool = {
            "name": "desk.balance",
            "description": "The balance.",
            "inputSchema": {"type": "object"},
            "annotations": {"readOnly": True},
            "execution": {
                "transport": "http",
                "service": "desk",
                "base_url": self.service.url,
                "method": "GET",
                "path": "/balance",
                "auth": {"type": "bearer", "token": TOOL_TOKEN},
            },
        }
        manifest = {"version": 1, "tools": [tool], "policy": policy}
        (directory / "tools.json").write_text(json.dumps(manifest), encoding="utf-8")
