"""The report of a reload about agents, and the text of their status."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_mediate.providers.registry import AuthPaths, ProviderRegistry
from claw_mediate.reload import describe_agents, reload_files
from claw_mediate.telemetry.event_log import EventLog
from tests.mediate.agents.test_directory import ContextRoot, tool


@pytest.fixture
def pod(tmp_path: Path) -> ContextRoot:
    return ContextRoot(tmp_path / "context")


@pytest.mark.requirement("mcp:ends")
def test_a_reload_tells_which_agent_has_changed(pod: ContextRoot, tmp_path: Path) -> None:
    registry = ProviderRegistry(
        AuthPaths(tmp_path / "auth", tmp_path / "keys"), {}, EventLog(lambda _: None), {}
    )
    registry.all()
    for agent in ("analyst", "trader"):
        pod.write(agent, tool("desk.good"))
        pod.names(agent)
    assert reload_files(pod.agents, registry, pod.changed.append) == []
    assert pod.changed == []
    pod.write("analyst", tool("desk.better"))
    assert reload_files(pod.agents, registry, pod.changed.append) == [
        "analyst: + desk.better, - desk.good"
    ]
    assert pod.changed == ["analyst"]


@pytest.mark.requirement("mcp:runs")
def test_a_tool_over_mcp_is_listed_with_its_service(pod: ContextRoot) -> None:
    mcp = {"transport": "mcp", "service": "desk", "base_url": "http://desk:1", "tool_name": "t"}
    pod.write("analyst", tool("desk.mcp", execution=mcp))
    assert "  desk.mcp · unknown · desk" in describe_agents(pod.root).splitlines()
