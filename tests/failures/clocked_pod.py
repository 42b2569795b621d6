"""One turn in which everything but the peers' replies is real: the mediator, its clients, sockets
on loopback, history, log.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.http import Request, RunnerResponse
from claw_mediate.mediator import Mediator
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog
from tests import raw
from tests.failures.planted import AGENT_SECRET, PROVIDER_KEY, TOOL_TOKEN
from tests.settings import default_settings
from tests.wires import Wire

AGENT = "analyst"
TOKEN = f"{AGENT}:{AGENT_SECRET}"


@dataclass
class TurnOutput:
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
        """Return everything that runner, operator and disk received."""
        kept = json.dumps([self.history, self.events], ensure_ascii=False).encode()
        return b"\n".join([json.dumps(self.headers).encode(), self.body, kept])


def tool(
    service: raw.Peer, name: str, method: str = "GET", token: str = TOOL_TOKEN
) -> dict[str, Any]:
    """Return a manifest entry of the service ``desk``."""
    return {
        "name": f"desk.{name}",
        "description": f"The {name} of the desk.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnly": method == "GET"},
        "execution": {
            "transport": "http",
            "service": "desk",
            "base_url": service.url,
            "method": method,
            "path": f"/{name}",
            "auth": {"type": "bearer", "token": token},
        },
    }


@dataclass
class ClockedPod:
    """A pod of one agent, and the clock that measures its turns."""

    home: Path
    dialect: Wire
    stream: bool = False
    policy: dict[str, Any] = field(default_factory=dict)
    first_ms: int = 60_000
    """Milliseconds until a stream's headers are sent at the latest."""
    provider: raw.Peer = field(default_factory=lambda: raw.Peer(prefix="/of-the-provider"))
    service: raw.Peer = field(default_factory=lambda: raw.Peer(prefix="/of-the-service"))
    clock: float = 1000.0
    log: list[bytes] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the first byte of the answer was sent."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Mediator]:
        """Start the peers, and yield a mediator."""
        await self.provider.start()
        await self.service.start()
        for name in ("auth", "context"):
            (self.home / name).mkdir()
        self.grant(AGENT, TOKEN, tool(self.service, "balance"), tool(self.service, "trade", "POST"))
        mediator = self._mediator()
        try:
            yield mediator
        finally:
            await mediator.close(0)
            await self.provider.stop()
            await self.service.stop()

    def grant(self, agent: str, token: str, *tools: dict[str, Any]) -> None:
        directory = self.home / "context" / agent
        directory.mkdir(parents=True)
        metadata = {"service": agent, "pod": "desk", "token": token}
        (directory / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
        manifest = {"version": 1, "tools": tools, "policy": self.policy}
        (directory / "tools.json").write_text(json.dumps(manifest), encoding="utf-8")

    def request(
        self, said: str = "Go", token: str = TOKEN, headers: Sequence[tuple[str, str]] = ()
    ) -> Request:
        body = self.dialect.request([self.dialect.user(said)], (), stream=self.stream, more={})
        shown = [
            ("authorization", f"Bearer {token}"),
            ("content-type", "application/json"),
            *headers,
        ]
        return Request("POST", self.dialect.PATH, shown, json.dumps(body).encode())

    async def ask(self, mediator: Mediator, request: Request) -> TurnOutput:
        """Run one turn to its end."""
        admitted = mediator.admit(request)
        assert isinstance(admitted, Identity)
        exchange = await mediator.exchange(admitted, request)
        assert isinstance(exchange, RunnerResponse)
        chunks = [await anext(exchange.chunks)]
        self.go.set()
        chunks += [chunk async for chunk in exchange.chunks]
        file = self.home / "history" / admitted.agent.id / "history.jsonl"
        return TurnOutput(
            exchange.status,
            exchange.headers,
            b"".join(chunks),
            exchange.streaming,
            [json.loads(line) for line in file.read_bytes().splitlines()],
            [json.loads(line) for line in self.log],
            self.provider.received,
            self.service.received,
        )

    def _mediator(self) -> Mediator:
        values = default_settings()
        values |= {name: str(self.home / name) for name in ("context", "auth", "history")}
        values |= {"keepalive_first_ms": str(self.first_ms), "keepalive_ms": "60000"}
        base = f"{self.provider.url}/v1"
        keys = {"OPENAI_API_KEY": PROVIDER_KEY, "ANTHROPIC_API_KEY": PROVIDER_KEY}
        env = {**keys, "OPENAI_BASE_URL": base, "ANTHROPIC_BASE_URL": base}
        mediator = Mediator(Settings.of(values), EventLog(self.log.append), env)
        mediator._turns._peers = mediator._peers._replace(now=lambda: self.clock)
        mediator._peers.upstream._sleep = self._sleep
        mediator.registry._key_states.now = lambda: self.clock
        return mediator

    async def _sleep(self, seconds: float) -> None:
        self.clock += seconds
