"""Connections belong to one agent and one service: nobody can read what was meant for another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from claw_mediate.core.model_policy import Provider
from claw_mediate.core.observer import RequestInfo
from claw_mediate.prompt.fetch import ContextClient, FetchRequest
from claw_mediate.providers.failover import ProviderClient, ProviderResponse
from claw_mediate.tools.executor import ToolExecutor
from tests.mediate.calling import call
from tests.peers import Peer

WHO = ("analyst", "analyst", "executor", "analyst", "executor")


@dataclass
class Host(Peer):
    """A peer that notes the connection of each request."""

    ports: list[int] = field(default_factory=list)

    async def answer(self, request: Request) -> Response:
        assert request.client is not None
        self.ports.append(request.client.port)
        return JSONResponse({})

    def connections(self) -> list[int]:
        """Return the connection of each request, numbered in the order of their first use."""
        numbers = {port: number for number, port in enumerate(dict.fromkeys(self.ports))}
        return [numbers[port] for port in self.ports]


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host()
    made.start()
    yield made
    made.stop()


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[ToolExecutor]:
    made = ToolExecutor(tmp_path)
    yield made
    await made.close()


@pytest.mark.requirement("connections:apart")
async def test_agents_share_no_connection_to_a_service(host: Host, services: ToolExecutor) -> None:
    for agent_id in WHO:
        assert (await call(services, host.url, agent_id=agent_id)).ok
    assert host.connections() == [0, 0, 1, 0, 1]


@pytest.mark.requirement("connections:apart")
async def test_services_share_none_though_they_are_at_one_address(
    host: Host, services: ToolExecutor
) -> None:
    for name in ("one.get", "two.get", "one.get"):
        assert (await call(services, host.url, name=name)).ok
    assert host.connections() == [0, 1, 0]


@pytest.mark.requirement("connections:apart")
async def test_agents_share_no_connection_to_a_provider(host: Host) -> None:
    provider, sender = Provider("p", host.url, "none", "openai", ()), ProviderClient()
    request = RequestInfo("POST", "/v1/chat/completions", [], b"{}")
    for agent_id in WHO:
        assert isinstance(await sender.send(agent_id, provider, request), ProviderResponse)
    await sender.close()
    assert host.connections() == [0, 0, 1, 0, 1]


@pytest.mark.requirement("connections:apart")
async def test_agents_share_no_connection_to_feeds_and_memories(host: Host) -> None:
    client = ContextClient()
    for agent_id in WHO:
        await client.fetch(agent_id, FetchRequest("GET", f"{host.url}/feed", [], None, 100, 10.0))
    await client.close()
    assert host.connections() == [0, 0, 1, 0, 1]
