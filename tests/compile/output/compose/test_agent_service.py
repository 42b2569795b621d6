"""An agent's service in compose.generated.yml, as Docker Compose itself reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compile.composed import agent, compiled


@pytest.mark.requirement("compose:count")
def test_each_ordinal_has_its_own_credential_network_and_labels(tmp_path: Path) -> None:
    services = compiled(tmp_path, agent(", count: 2"))["services"]
    first, second = services["one-0"], services["one-1"]
    assert first["environment"]["CLLAMA_TOKEN"].startswith("one-0:")
    assert second["environment"]["CLLAMA_TOKEN"].startswith("one-1:")
    assert "one-0" not in str(second)
    labels = {"claw.pod": "desk", "claw.service": "one", "claw.ordinal": "1"}
    assert labels.items() <= second["labels"].items()
    assert first["labels"]["claw.digest"] != second["labels"]["claw.digest"]


@pytest.mark.requirement("compose:passes-through")
def test_what_the_user_wrote_for_an_agent_stays_beside_what_is_ours(tmp_path: Path) -> None:
    (tmp_path / "own.env").write_text("OWN=$KEPT\n", encoding="utf-8")
    compose = """    healthcheck: {test: [CMD, "true"], interval: 7s}
    env_file: own.env
    volumes: ["data:/data"]
    depends_on: [desk]
    command: ["echo", "$$HOME ${KEPT:-x}"]"""
    service = compiled(tmp_path, agent(compose=compose, rest="volumes: {data: {}}"), KEPT="kept")[
        "services"
    ]["one"]
    assert service["healthcheck"] == {"test": ["CMD", "true"], "interval": "7s"}
    assert service["environment"]["OWN"] == "kept"
    assert service["command"] == ["echo", "$HOME kept"]
    assert [mount["target"] for mount in service["volumes"]] == [
        "/data",
        "/claw/AGENTS.md",
        "/claw/CLAWDAPUS.md",
    ]
    assert {name: each["condition"] for name, each in service["depends_on"].items()} == {
        "cllama": "service_healthy",
        "desk": "service_started",
    }


@pytest.mark.requirement("compose:surfaces")
def test_volumes_and_host_paths_are_mounted_whatever_is_in_their_names(tmp_path: Path) -> None:
    surfaces = ", surfaces: ['volume://notes', 'volume://scratch rw', 'host:///srv/a:b$$c']"
    config = compiled(tmp_path, agent(surfaces))
    mounts = {mount["target"]: mount for mount in config["services"]["one"]["volumes"]}
    assert mounts["/mnt/notes"]["read_only"] is True
    assert mounts["/mnt/scratch"].get("read_only", False) is False
    assert mounts["/srv/a:b$c"] | {"bind": {}} == {
        "type": "bind",
        "source": "/srv/a:b$c",
        "target": "/srv/a:b$c",
        "read_only": True,
        "bind": {},
    }
    assert {"notes", "scratch"} <= set(config["volumes"])


@pytest.mark.requirement("compose:modes")
def test_a_runner_behind_the_forward_proxy_trusts_the_pods_ca_and_asks_surfaces_directly(
    tmp_path: Path,
) -> None:
    claw = ", surfaces: ['service://bystander']"
    pod = agent(claw).replace("cllama: passthrough", "cllama: {proxy: passthrough, mode: proxy}")
    config = compiled(tmp_path, pod)
    service = config["services"]["one"]
    environment = service["environment"]
    assert environment["HTTPS_PROXY"] == "http://cllama:8082"
    assert "OPENAI_BASE_URL" not in environment
    assert environment["NO_PROXY"] == "localhost,127.0.0.1,::1,cllama,bystander"
    targets = {mount["target"]: Path(mount["source"]).name for mount in service["volumes"]}
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        assert targets[environment[name]] == "ca-bundle.pem"
    assert targets[environment["NODE_EXTRA_CA_CERTS"]] == "ca-cert.pem"
    assert not any("private" in mount["source"] for mount in service["volumes"])
    proxy = config["services"]["cllama"]
    assert proxy["environment"]["CLLAMA_CA"] == "/claw/ca"
    assert any(mount["target"] == "/claw/ca" and mount["read_only"] for mount in proxy["volumes"])
