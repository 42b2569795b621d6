"""compose.generated.yml, as Docker Compose itself reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claw_compile.compiler import compile_pod
from claw_compile.output.compose.proxy_service import REDIRECT
from claw_compile.output.deployment import HOLDER
from tests.compile.oracle import compose_config

MASTER = "a-master-secret-for-tests"
DESCRIPTOR = """{"version": 2, "tools": [{"name": "get", "description": "Get it.", "inputSchema": {"type": "object"},
 "http": {"method": "GET", "path": "/get"}, "annotations": {"readOnly": true}}]}"""


def compiled(directory: Path, pod: str, **environ: str) -> dict[str, Any]:
    """Compile the pod in the directory; return the generated file as Compose reads it."""
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (directory / "desk.json").write_text(DESCRIPTOR, encoding="utf-8")
    (directory / "claw-pod.yml").write_text(pod, encoding="utf-8")
    result = compile_pod(directory / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER, **environ})
    assert result.value is not None, [
        (diagnostic.code.name, diagnostic.message) for diagnostic in result.diagnostics
    ]
    return compose_config(directory / "compose.generated.yml", **environ)


def agent(claw: str = "", compose: str = "", pod: str = "", rest: str = "") -> str:
    """Return a pod with one agent, a desk whose tools it may call, and a service
    without a part in it.
    """
    return f"""
name: desk-of-tests
x-claw: {{pod: desk{pod}}}
services:
  one:
    image: runner
    x-claw: {{agent: AGENTS.md, cllama: passthrough, tools: [{{service: desk, allow: all}}]{claw}}}
{compose}
  desk:
    image: desk
    expose: ["4000"]
    x-claw: {{describe-file: desk.json}}
  bystander: {{image: bystander}}
{rest}"""


def networks(config: dict[str, Any]) -> dict[str, set[str]]:
    """Return each network with the services on it."""
    members: dict[str, set[str]] = {name: set() for name in config["networks"]}
    for name, service in config["services"].items():
        for network in service.get("networks", {}):
            members[network].add(name)
    return members


def reachable(config: dict[str, Any], name: str) -> set[str]:
    return set().union(*(members for members in networks(config).values() if name in members)) - {
        name
    }


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


@pytest.mark.requirement("compose:passes-through")
@pytest.mark.parametrize("form", ["[back, front]", "{back: {aliases: [bot]}, front: null}"])
def test_networks_that_the_user_gave_an_agent_are_kept_in_either_form(
    tmp_path: Path, form: str
) -> None:
    pod = agent(
        compose=f"    networks: {form}",
        rest="networks: {back: {driver: bridge}, front: {internal: true}}",
    )
    config = compiled(tmp_path, pod)
    kept = config["services"]["one"]["networks"]
    assert set(kept) == {"back", "front", "claw-agent-one"}
    assert (kept["back"] or {}).get("aliases") == (["bot"] if "bot" in form else None)
    assert config["networks"]["front"]["internal"] is True


@pytest.mark.requirement("compose:passes-through")
@pytest.mark.parametrize("form", ["[back]", "{back: {aliases: [api]}}"])
def test_networks_that_the_user_gave_a_provider_are_kept_in_either_form(
    tmp_path: Path, form: str
) -> None:
    pod = agent(rest="networks: {back: {}}").replace(
        "    image: desk\n", f"    image: desk\n    networks: {form}\n"
    )
    assert set(compiled(tmp_path, pod)["services"]["desk"]["networks"]) == {
        "back",
        "claw-tool-desk",
    }


@pytest.mark.requirement("compose:count")
@pytest.mark.parametrize(
    "form",
    ["[one, desk]", "{one: {condition: service_healthy}, desk: {condition: service_started}}"],
)
def test_who_waits_for_a_counted_agent_waits_for_each_with_its_condition(
    tmp_path: Path, form: str
) -> None:
    pod = agent(
        ", count: 3",
        rest=(
            f"  last: {{image: last, depends_on: {form}, links: ['one'], volumes_from: ['one:ro']}}"
        ),
    )
    config = compiled(tmp_path, pod)
    waits = config["services"]["last"]["depends_on"]
    condition = "service_started" if form.startswith("[") else "service_healthy"
    assert {name: each["condition"] for name, each in waits.items()} == {
        "desk": "service_started",
        **{f"one-{ordinal}": condition for ordinal in range(3)},
    }
    assert config["services"]["last"]["links"] == ["one-0", "one-1", "one-2"]
    assert config["services"]["last"]["volumes_from"] == ["one-0:ro", "one-1:ro", "one-2:ro"]
    assert "one" not in config["services"]


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
@pytest.mark.parametrize("form", ["{mine: kept, claw.pod: forged}", "[mine=kept, claw.pod=forged]"])
def test_labels_of_the_user_are_kept_and_ours_can_not_be_forged(tmp_path: Path, form: str) -> None:
    labels = compiled(tmp_path, agent(compose=f"    labels: {form}"))["services"]["one"]["labels"]
    assert labels["mine"] == "kept"
    assert labels["claw.pod"] == "desk"


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


@pytest.mark.requirement("compose:secrets")
def test_a_secret_with_a_dollar_sign_arrives_byte_for_byte(tmp_path: Path) -> None:
    secret = "p$word ${x} $$ 'q' \"r\" #s \\n"
    (tmp_path / "file.txt").write_text(secret, encoding="utf-8")
    pod = agent(
        ", cllama-env: {OPENAI_API_KEY: '${KEY}', ALERTS: '${KEY}'}",
        pod=", secrets: {env: {env: KEY}, file: {file: file.txt}}",
    ).replace(
        "    image: desk\n",
        "    image: desk\n    environment: {TOKEN: '${KEY}', LITERAL: 'p$$word'}\n",
    )
    config = compiled(tmp_path, pod, KEY=secret)
    assert config["services"]["desk"]["environment"] == {"TOKEN": secret, "LITERAL": "p$word"}
    assert config["services"]["cllama"]["environment"]["ALERTS"] == secret
    assert "OPENAI_API_KEY" not in config["services"]["cllama"]["environment"]
    keys = json.loads(
        (tmp_path / ".claw-runtime" / "auth" / "providers.json").read_text(encoding="utf-8")
    )
    assert keys["providers"]["openai"]["keys"][0]["secret"] == secret
    mounted = {
        each["target"]: Path(config["secrets"][each["source"]]["file"])
        for each in config["services"]["cllama"]["secrets"]
    }
    assert {name: path.read_text(encoding="utf-8") for name, path in mounted.items()} == {
        "env": secret,
        "file": secret,
    }
    assert secret not in (tmp_path / "compose.generated.yml").read_text(encoding="utf-8")


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


@pytest.mark.requirement("compose:proxy")
def test_a_change_of_an_agent_recreates_that_agent_and_no_other(tmp_path: Path) -> None:
    pod = agent(rest="  two: {image: runner, x-claw: {agent: AGENTS2.md, cllama: passthrough}}")
    (tmp_path / "AGENTS2.md").write_text("# Two\n", encoding="utf-8")

    def digests() -> dict[str, str]:
        services = compiled(tmp_path, pod)["services"]
        return {
            name: each["labels"]["claw.digest"]
            for name, each in services.items()
            if "labels" in each
        }

    before = digests()
    (tmp_path / "AGENTS2.md").write_text("# Two, changed\n", encoding="utf-8")
    after = digests()
    assert {name for name in before if before[name] != after[name]} == {"two"}


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
