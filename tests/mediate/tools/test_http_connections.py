"""Connections to services: each belongs to one agent and one service."""

from __future__ import annotations

import pytest

from claw_mediate.tools.executor import ToolExecutor
from tests.mediate.counting_host import counting_host
from tests.mediate.tools.calling import call

WHO = ("analyst", "analyst", "executor", "analyst", "executor")


@pytest.mark.requirement("connections:apart")
async def test_agents_share_no_connection_to_a_service(executor: ToolExecutor) -> None:
    with counting_host() as host:
        for agent_id in WHO:
            assert (await call(executor, host.url, agent_id=agent_id)).ok
    assert host.connections() == [0, 0, 1, 0, 1]


@pytest.mark.requirement("connections:apart")
async def test_services_at_one_address_share_no_connection(executor: ToolExecutor) -> None:
    with counting_host() as host:
        for name in ("one.get", "two.get", "one.get"):
            assert (await call(executor, host.url, name=name)).ok
    assert host.connections() == [0, 1, 0]
