"""A fleet of proxies in Kubernetes (``--topology gateway``), checked with the API's own schemas."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from claw_cli.app import app
from claw_compile.compiler import CompileResult, compile_pod
from claw_compile.diagnostics.diagnostic import Result
from tests.compile.composed import DESCRIPTOR, MASTER, agent
from tests.compile.manifests import peers, reaches_the_world, read, spec_of

STATE = "redis://:planted-password@valkey:6379/0"
CLAW_PROXY = ("claw", "proxy", "--workers")
METRICS = Path(__file__).parents[4] / "docs" / "metrics.md"


def pod(claw: str = "", state: str | None = STATE, rest: str = "", **env: str) -> str:
    """Return a pod whose agent is governed, with this state and this environment of the proxy."""
    variables = env | ({} if state is None else {"CLAW_STATE": state})
    defaults = f", cllama-defaults: {{env: {variables}}}" if variables else ""
    return agent(claw, pod=defaults, rest=f"{rest}  valkey: {{image: 'v:1', expose: [6379]}}\n")


def compiled(directory: Path, text: str) -> Result[CompileResult]:
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (directory / "desk.json").write_text(DESCRIPTOR, encoding="utf-8")
    (directory / "claw-pod.yml").write_text(text, encoding="utf-8")
    return compile_pod(
        directory / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER}, None, "kubernetes", "gateway"
    )


def manifests(directory: Path, text: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Compile; return the objects by kind and name, each of them valid."""
    result = compiled(directory, text)
    assert result.value is not None, [(each.code.name, each.message) for each in result.diagnostics]
    return read(result.value.deployed)


def refused(directory: Path, text: str) -> tuple[str, str]:
    """Return the code of the one error, and what stands at its place."""
    result = compiled(directory, text)
    assert result.value is None
    (error,) = (each for each in result.diagnostics if each.is_error)
    return error.code.name, text.splitlines()[error.span.line - 1][error.span.column - 1 :]


@pytest.mark.requirement("gateway:fleet")
def test_a_pod_has_one_deployment_of_proxies_and_its_agents_none_beside_them(
    tmp_path: Path,
) -> None:
    objects = manifests(tmp_path, pod(", count: 2"))
    assert "initContainers" not in spec_of(objects, "desk-one-0")
    assert ("PersistentVolumeClaim", "desk-one-0.state") not in objects
    fleet, spec = objects["Deployment", "desk-cllama"]["spec"], spec_of(objects, "desk-cllama")
    assert "replicas" not in fleet, "the autoscaler sets it, and a new apply must not"
    assert fleet["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
    }
    (proxy,) = spec["containers"]
    assert {
        probe: proxy[probe]["httpGet"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    } == {
        "startupProbe": {"path": "/health", "port": 8080},
        "livenessProbe": {"path": "/health", "port": 8080},
        "readinessProbe": {"path": "/ready", "port": 8080},
    }
    assert {proxy[probe]["timeoutSeconds"] for probe in ("livenessProbe", "readinessProbe")} == {
        5
    }, "a busy proxy is alive"
    assert proxy["securityContext"]["readOnlyRootFilesystem"] is True
    assert proxy["securityContext"]["runAsNonRoot"] is True
    assert proxy["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {each["topologyKey"] for each in spec["topologySpreadConstraints"]} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }
    (context,) = (
        each["projected"]["sources"] for each in spec["volumes"] if each["name"] == "context"
    )
    paths = {item["path"] for source in context for item in source["secret"]["items"]}
    assert {
        "one-0/metadata.json",
        "one-0/tools.json",
        "one-1/metadata.json",
        "one-1/tools.json",
    } <= paths
    service = objects["Service", "cllama"]["spec"]
    assert (
        service["selector"]
        == fleet["selector"]["matchLabels"]
        == {"claw.pod": "desk", "claw.member": "cllama"}
    )
    assert [port["port"] for port in service["ports"]] == [8080, 8082]
    assert "sessionAffinity" not in service
    budget = objects["PodDisruptionBudget", "desk-cllama"]["spec"]
    assert (budget["maxUnavailable"], budget["selector"]) == (1, fleet["selector"])


@pytest.mark.requirement("gateway:scales")
def test_it_is_scaled_by_its_turns_which_it_tells_to_who_has_the_token(tmp_path: Path) -> None:
    objects = manifests(tmp_path, pod())
    scaler = objects["HorizontalPodAutoscaler", "desk-cllama"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == "desk-cllama"
    assert scaler["minReplicas"] > 1
    (metric,) = scaler["metrics"]
    name = metric["pods"]["metric"]["name"]
    assert f"| `{name}` | gauge |  |" in METRICS.read_text(encoding="utf-8"), (
        "one number for each proxy"
    )
    env = {each["name"]: each for each in spec_of(objects, "desk-cllama")["containers"][0]["env"]}
    assert env["CLAW_METRICS_ADDR"]["value"] == ":9464"
    assert env["CLAW_METRICS_TOKEN"]["valueFrom"]["secretKeyRef"] == {
        "name": "desk.metrics",
        "key": "token",
    }
    assert len(base64.b64decode(objects["Secret", "desk.metrics"]["data"]["token"])) == 48


@pytest.mark.requirement("gateway:scales", "workers:compiled")
@pytest.mark.parametrize(("asked", "workers"), [("1", 1), ("4", 4), ("auto", 1)])
def test_a_proxy_with_workers_has_the_turns_and_the_resources_of_so_many(
    asked: str, workers: int, tmp_path: Path
) -> None:
    text = pod().replace("cllama: passthrough", f"cllama: {{proxy: passthrough, workers: {asked}}}")
    objects = manifests(tmp_path, text)
    (proxy,) = spec_of(objects, "desk-cllama")["containers"]
    assert proxy["command"][:4] == (
        ["mitmdump", "-s", "addons/cllama.py", "--set"] if asked == "1" else [*CLAW_PROXY, asked]
    )
    assert proxy["resources"]["requests"] == {
        "cpu": f"{500 * workers}m",
        "memory": f"{256 * workers}Mi",
    }
    (metric,) = objects["HorizontalPodAutoscaler", "desk-cllama"]["spec"]["metrics"]
    assert metric["pods"]["target"]["averageValue"] == str(50 * workers)


@pytest.mark.requirement("gateway:drains")
@pytest.mark.parametrize(
    ("claw", "env", "drain"),
    [
        ("", {}, 120_000),
        (", tool-policy: {total-timeout-ms: 200000}", {}, 200_000),
        (", tool-policy: {total-timeout-ms: 2000000}", {}, 600_000),
        ("", {"CLLAMA_DRAIN_MS": "7000"}, 7_000),
    ],
)
def test_a_stopped_proxy_leaves_the_service_and_then_has_the_time_of_a_turn(
    claw: str, env: dict[str, str], drain: int, tmp_path: Path
) -> None:
    spec = spec_of(manifests(tmp_path, pod(claw, **env)), "desk-cllama")
    variables = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
    assert env or variables["CLLAMA_DRAIN_MS"] == str(drain)
    assert spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
    assert spec["terminationGracePeriodSeconds"] == 5 + drain / 1000 + 5


@pytest.mark.requirement("gateway:shared-state")
def test_the_url_of_the_state_is_a_secret_of_its_own(tmp_path: Path) -> None:
    objects = manifests(tmp_path, pod(OTHER="x"))
    env = {each["name"]: each for each in spec_of(objects, "desk-cllama")["containers"][0]["env"]}
    assert env["CLAW_STATE"]["valueFrom"]["secretKeyRef"] == {"name": "desk.state", "key": "url"}
    assert base64.b64decode(objects["Secret", "desk.state"]["data"]["url"]).decode() == STATE
    assert objects["Secret", "desk.proxy-env"]["data"].keys() == {"OTHER"}


@pytest.mark.requirement("gateway:shared-state")
@pytest.mark.parametrize(
    "state",
    [
        None,
        "",
        "/claw/state/state.db",
        "redis://localhost/0",
        "rediss://[::1]:6379",
        "redis://x:y",
        "redis://:p@ss/w@v/0",
    ],
)
def test_a_fleet_without_a_state_that_its_proxies_share_is_refused(
    state: str | None, tmp_path: Path
) -> None:
    code, place = refused(tmp_path, pod(state=state))
    assert (code, place.startswith("desk" if state is None else "'CLAW_STATE'")) == (
        "unshared-state",
        True,
    )


@pytest.mark.requirement("gateway:transparent")
def test_an_agent_whose_traffic_would_have_to_be_redirected_to_another_pod_is_refused(
    tmp_path: Path,
) -> None:
    text = pod().replace("cllama: passthrough", "cllama: {proxy: passthrough, mode: transparent}")
    code, place = refused(tmp_path, text)
    assert (code, place.startswith("cllama:")) == ("transparent-gateway", True)


@pytest.mark.requirement("gateway:policies")
def test_an_agent_reaches_the_fleet_and_its_surfaces_and_the_fleet_what_it_calls(
    tmp_path: Path,
) -> None:
    web = "  web: {image: 'w:1', expose: [9000, '53/udp']}\n"
    objects = manifests(tmp_path, pod(", surfaces: ['service://web']", rest=web))
    policies = {
        name: each["spec"] for (kind, name), each in objects.items() if kind == "NetworkPolicy"
    }
    to_fleet, to_web, names = policies["desk-one"]["egress"]
    assert (peers([to_fleet], "to"), peers([to_web], "to")) == ({"cllama"}, {"web"})
    assert {(each["protocol"], each["port"]) for each in to_web["ports"]} == {
        ("TCP", 9000),
        ("UDP", 53),
    }
    assert {each["port"] for each in names["ports"]} == {53}
    assert policies["desk-one"]["ingress"] == []
    fleet = policies["desk-cllama"]
    assert peers(fleet["ingress"], "from") == {"one"}
    assert [port["port"] for port in fleet["ingress"][0]["ports"]] == [8080, 8082]
    assert peers(fleet["egress"], "to") == {"desk", "valkey"}
    assert reaches_the_world(objects["NetworkPolicy", "desk-cllama"])
    assert not reaches_the_world(objects["NetworkPolicy", "desk-one"])
    assert "cllama" in peers(policies["desk-desk"]["ingress"], "from")
    assert "one" not in peers(policies["desk-desk"]["ingress"], "from")
    assert "one" in peers(policies["desk-web"]["ingress"], "from")


@pytest.mark.requirement("gateway:policies")
@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("10.1.2.3", {"ipBlock": {"cidr": "10.1.2.3/32"}}),
        ("[fd00::5]", {"ipBlock": {"cidr": "fd00::5/128"}}),
        (
            "cache.data.svc.cluster.local",
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "data"}}},
        ),
        ("cache", {"podSelector": {}}),
        ("cache.example.com", None),
    ],
)
def test_a_state_beside_the_pod_is_reached_on_its_port_alone(
    host: str, peer: Any, tmp_path: Path
) -> None:
    egress = manifests(tmp_path, pod(state=f"redis://{host}:7000/1"))[
        "NetworkPolicy", "desk-cllama"
    ]["spec"]["egress"]
    rules = [rule for rule in egress if rule.get("ports") == [{"protocol": "TCP", "port": 7000}]]
    assert rules == (
        [] if peer is None else [{"to": [peer], "ports": [{"protocol": "TCP", "port": 7000}]}]
    )


@pytest.mark.requirement("gateway:history")
def test_each_proxy_writes_a_history_of_its_own_that_outlives_it(tmp_path: Path) -> None:
    objects = manifests(tmp_path, pod())
    spec = spec_of(objects, "desk-cllama")
    (proxy,) = spec["containers"]
    (mount,) = (each for each in proxy["volumeMounts"] if each["mountPath"] == "/claw/history")
    (replica,) = (each for each in proxy["env"] if each["name"] == "CLAW_REPLICA")
    assert (mount["subPathExpr"], replica["valueFrom"]) == (
        "$(CLAW_REPLICA)",
        {"fieldRef": {"fieldPath": "metadata.name"}},
    )
    (volume,) = (each for each in spec["volumes"] if each["name"] == mount["name"])
    claim = objects["PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch", (
        "a start does not walk through all of it"
    )


@pytest.mark.requirement("gateway:sessions")
def test_a_client_of_the_broker_stays_with_the_proxy_that_has_its_session(tmp_path: Path) -> None:
    service = manifests(tmp_path, pod(", delivery: native"))["Service", "cllama"]["spec"]
    assert service["sessionAffinity"] == "ClientIP"
    assert service["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"] > 1800


@pytest.mark.requirement("gateway:fleet")
@pytest.mark.parametrize(
    ("words", "said"), [(["gateway"], "for --target kubernetes"), (["x"], "'sidecar', 'gateway'")]
)
def test_a_topology_for_compose_or_an_unknown_one_is_wrong_usage(
    words: list[str], said: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(
        app, ["compile", str(tmp_path / "claw-pod.yml"), "--topology", *words]
    )
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
