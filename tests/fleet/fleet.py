"""Three real proxies on one real Valkey, behind a real HAProxy; model and service
are those of ``tests/crash``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import AsyncContentStream, Response, StreamingResponse

from tests.crash.peers import NUMBER, Books, PlanModel, RecordingService
from tests.fleet.balancer import Balancer
from tests.peers import Provider
from tests.proxy.pod import Pod
from tests.state.server import shared_state
from tests.waiting import eventually, free_port

REPLICAS = 3
LIVE_AGENT = "mcp"
"""The agent whose answers stream live."""
SCRIPT = Path(__file__).with_name("patient.py")
_DRAIN_MS = 30_000
_MOST_EVENTS = 10
"""The events of a reply at which its stream may pause; most have about as many."""


@dataclass
class ThinkingModel(PlanModel):
    """The model, which takes its time, so that turns are under way at every step
    when a proxy is killed.
    """

    thoughts: random.Random = field(default_factory=lambda: random.Random(1))
    longest: float = 0
    """The most seconds that a reply takes, after a tenth of that.

    A stream begins after half of it, and goes on after the other half, behind any of its events.
    """

    async def __call__(self, request: Request) -> Response:
        seconds = self.thoughts.uniform(self.longest / 10, self.longest) / 2
        await asyncio.sleep(seconds)
        response = await super().__call__(request)
        if isinstance(response, StreamingResponse):
            response.body_iterator = self._pause_within(response.body_iterator, seconds)
        else:
            await asyncio.sleep(seconds)
        return response

    async def _pause_within(
        self, events: AsyncContentStream, seconds: float
    ) -> AsyncIterator[bytes]:
        pause = self.thoughts.randrange(_MOST_EVENTS)
        number = 0
        async for event in events:
            if number == pause:
                await asyncio.sleep(seconds)
            number += 1
            yield bytes(event)


@dataclass
class WorkingService(RecordingService):
    """The service, which takes its time before and after each effect."""

    thoughts: random.Random = field(default_factory=lambda: random.Random(2))

    async def answer(self, request: Request) -> Response:
        await asyncio.sleep(self.thoughts.uniform(0, 0.2))
        answer = await super().answer(request)
        await asyncio.sleep(self.thoughts.uniform(0, 0.2))
        return answer


@dataclass
class Fleet:
    """``pod`` has the files of the agents, and its addresses are the balancer's."""

    pod: Pod
    proxies: list[Pod]
    balancer: Balancer
    model: ThinkingModel

    def restart(self, number: int) -> int:
        """Restart a proxy as Kubernetes does: it gets no new requests, and ends its turns.

        Return the exit code.
        """
        proxy = self.proxies[number]
        assert proxy.process is not None
        self.balancer.drain(number)
        proxy.process.send_signal(signal.SIGTERM)
        code = proxy.process.wait(timeout=_DRAIN_MS / 1000 + 10)
        proxy.start()
        self.balancer.resume(number)
        return code

    def history(self) -> list[list[dict[str, Any]]]:
        """Return the lines of history of all agents, by proxy."""
        agents = [path.name for path in (self.pod.home / "context").iterdir()]
        return [
            [line for agent in agents for line in proxy.history(agent)] for proxy in self.proxies
        ]

    def histories(self) -> tuple[Path, ...]:
        return tuple(proxy.home / "history" for proxy in self.proxies)


def _agents(pod: Pod) -> None:
    """Write two agents, one for HTTP and one for MCP that streams live, and one that calls its
    tools itself.
    """
    schema = {"type": "object", "properties": NUMBER["properties"]}
    tools = [pod.tool("balance", schema=schema), pod.tool("trade", "POST", schema=schema)]
    pod.agent("http", *tools)
    overs = [
        {
            "transport": "mcp",
            "service": "desk",
            "base_url": pod.service.url,
            "tool_name": each["name"].partition(".")[2],
        }
        for each in tools
    ]
    over_mcp = [{**each, "execution": over} for each, over in zip(tools, overs, strict=True)]
    pod.agent(LIVE_AGENT, *over_mcp, stream="live")
    pod.agent("native", *({**each, "delivery": "native"} for each in tools))


@contextlib.contextmanager
def fleet(home: Path) -> Iterator[Fleet]:
    """Run a fleet; its proxies have one CA, which the first makes."""
    books = Books()
    model, service = ThinkingModel(books), WorkingService(books=books)
    provider = Provider(model=model)
    with contextlib.ExitStack() as running:
        for peer in (provider, service):
            peer.start()
            running.callback(peer.stop)
        state = running.enter_context(shared_state(home / "state"))
        pod = Pod(home, provider, service)
        running.callback(pod.clients.close)
        _agents(pod)
        shared = {
            "CLAW_CONTEXT_ROOT": str(home / "context"),
            "CLAW_AUTH_DIR": str(home / "auth"),
            "CLAW_STATE": state.url,
            "CLLAMA_DRAIN_MS": str(_DRAIN_MS),
            "HOME": str(home / "home"),
        }
        proxies = []
        for number in range(REPLICAS):
            own = home / f"p{number}"
            own.mkdir()
            environment = {**shared, "CLAW_KEY_STATES_DIR": str(own / "key-states")}
            proxy = replace(
                pod,
                home=own,
                script=SCRIPT,
                environment=environment,
                clients=contextlib.ExitStack(),
            )
            proxy.port, proxy.proxy_port = free_port(), free_port()
            proxies.append(proxy)
            running.callback(proxy.stop)
        (home / "home").mkdir()
        proxies[0].start()
        for proxy in proxies[1:]:
            proxy.start(wait=False)
        balancer = Balancer(home, proxies, pod.port, pod.proxy_port)
        running.callback(balancer.stop)
        for proxy in proxies:
            eventually(proxy._ready, "every proxy is ready")
        yield Fleet(pod, proxies, balancer, model)
