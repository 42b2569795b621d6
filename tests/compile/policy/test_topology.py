"""Networks: each agent reaches what the pod file gives it, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compile.composed import agent, compiled, networks, reachable


@pytest.mark.requirement("compose:derived-networks")
def test_an_agent_reaches_its_proxy_and_nothing_else(tmp_path: Path) -> None:
    config = compiled(tmp_path, agent())
    assert networks(config) == {
        "claw-agent-one": {"one", "cllama"},
        "claw-tool-desk": {"desk", "cllama"},
        "claw-egress": {"cllama"},
        "default": {"desk", "bystander"},
    }
    assert {name for name, network in config["networks"].items() if network.get("internal")} == {
        "claw-agent-one",
        "claw-tool-desk",
    }


@pytest.mark.requirement("compose:derived-networks")
def test_a_surface_is_the_only_way_to_a_service_and_to_the_world(tmp_path: Path) -> None:
    pod = agent(", surfaces: ['service://bystander', 'egress://']").replace(
        "tools: [{service: desk, allow: all}], ", ""
    )
    config = compiled(tmp_path, pod)
    assert reachable(config, "one") == {"cllama", "bystander"}
    assert config["networks"]["claw-agent-one"].get("internal", False) is False
    assert reachable(config, "cllama") == {"one", "bystander"}


@pytest.mark.requirement("compose:derived-networks")
def test_agents_do_not_reach_each_other_though_they_share_a_service(tmp_path: Path) -> None:
    pod = agent(", count: 2, surfaces: ['service://bystander']")
    config = compiled(tmp_path, pod)
    assert reachable(config, "one-0") == reachable(config, "one-1") == {"cllama", "bystander"}


@pytest.mark.requirement("compose:derived-networks")
def test_a_model_server_and_a_shared_state_of_the_pod_are_reached_by_the_proxy(
    tmp_path: Path,
) -> None:
    env = (
        ", cllama-env: {OLLAMA_BASE_URL: 'http://bystander:11434/v1', CLAW_STATE: "
        "'redis://desk:6379/0'}"
    )
    config = compiled(tmp_path, agent(env))
    assert reachable(config, "cllama") == {"one", "desk", "bystander"}
    assert config["services"]["cllama"]["environment"]["CLAW_STATE"] == "redis://desk:6379/0"
