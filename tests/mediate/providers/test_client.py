"""The client of all providers: agents share no connection."""

from __future__ import annotations

import pytest

from claw_mediate.core.model_policy import Provider
from claw_mediate.core.observer import RequestInfo
from claw_mediate.providers.client import ProviderClient, ProviderResponse
from tests.mediate.counting_host import counting_host

WHO = ("analyst", "analyst", "executor", "analyst", "executor")


@pytest.mark.requirement("connections:apart")
async def test_agents_share_no_connection_to_a_provider() -> None:
    sender = ProviderClient()
    request = RequestInfo("POST", "/v1/chat/completions", [], b"{}")
    with counting_host() as host:
        provider = Provider("p", host.url, "none", "openai", ())
        for agent_id in WHO:
            assert isinstance(await sender.send(agent_id, provider, request), ProviderResponse)
        await sender.close()
    assert host.connections() == [0, 0, 1, 0, 1]
