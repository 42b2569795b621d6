"""The proxy's services in compose.generated.yml, as Docker Compose itself reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.output.compose.proxy_service import REDIRECT
from claw_compile.output.deployment import HOLDER
from tests.compile.composed import agent, compiled


@pytest.mark.requirement("compose:proxy")
def test_the_proxy_has_no_root_no_capability_and_nowhere_to_write_but_its_volumes(
    tmp_path: Path,
) -> None:
    proxy = compiled(tmp_path, agent())["services"]["cllama"]
    assert proxy["read_only"] is True
    assert proxy["cap_drop"] == ["ALL"]
    assert proxy["security_opt"] == ["no-new-privileges:true"]
    assert proxy["user"] == "1000:1000"
    assert "privileged" not in proxy
    assert "cap_add" not in proxy
    assert {mount["target"] for mount in proxy["volumes"] if not mount.get("read_only")} == {
        "/claw/history",
        "/claw/state",
    }
    assert "ports" not in proxy
    assert proxy["environment"]["CLLAMA_EGRESS"] == "deny"


@pytest.mark.requirement("paths:compiled")
def test_the_proxy_gets_the_paths_that_its_agents_open_and_none_where_none_does(
    tmp_path: Path,
) -> None:
    plain = compiled(tmp_path, agent())
    assert "CLLAMA_PATHS" not in plain["services"]["cllama"]["environment"]

    paths = 'cllama: {proxy: passthrough, paths: ["POST /v1/fine_tuning/*", "GET /v1/skills", "GET /v1/skills"]}'
    opened = compiled(tmp_path, agent().replace("cllama: passthrough", paths))
    assert (
        opened["services"]["cllama"]["environment"]["CLLAMA_PATHS"]
        == "POST /v1/fine_tuning/*, GET /v1/skills"
    )


@pytest.mark.requirement("compose:proxy")
def test_a_setting_of_the_operator_wins_over_ours(tmp_path: Path) -> None:
    config = compiled(tmp_path, agent(", cllama-env: {CLLAMA_EGRESS: allow}"))
    assert config["services"]["cllama"]["environment"]["CLLAMA_EGRESS"] == "allow"


@pytest.mark.requirement("compose:modes")
def test_an_unaware_runner_finds_its_proxy_under_the_providers_names(tmp_path: Path) -> None:
    pod = agent(", cllama-env: {CLLAMA_HOSTS: 'models.test=openai'}").replace(
        "cllama: passthrough", "cllama: {proxy: passthrough, mode: transparent}"
    )
    services = compiled(tmp_path, pod)["services"]
    assert not {"HTTPS_PROXY", "OPENAI_BASE_URL"} & services["one"]["environment"].keys()
    holder = services[HOLDER]
    links = [f"{HOLDER}:{name}" for name in ("api.openai.com", "api.anthropic.com", "models.test")]
    assert set(links) <= set(services["one"]["links"])
    # An alias holds for everybody on the network, the proxy too: under a provider's name it would
    # find itself.
    assert {name for network in holder["networks"].values() for name in network["aliases"]} == {
        "cllama"
    }
    assert services[REDIRECT]["cap_add"] == ["NET_ADMIN"]
    assert services[REDIRECT]["restart"] == "no"
    for name in ("cllama", HOLDER):
        assert "cap_add" not in services[name]
    assert (
        services["cllama"]["network_mode"]
        == services[REDIRECT]["network_mode"]
        == f"service:{HOLDER}"
    )
    assert (
        services["cllama"]["depends_on"][REDIRECT]["condition"] == "service_completed_successfully"
    )
    assert "transparent@8083" in services["cllama"]["command"]
