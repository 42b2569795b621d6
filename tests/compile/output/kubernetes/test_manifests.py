"""The output for Kubernetes, checked with the API's own schemas."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from claw_compile.compiler import compile_pod
from claw_compile.output.kubernetes.objects import PROXY_UID
from tests.compile.composed import agent
from tests.compile.composed import compiled as in_compose
from tests.compile.manifests import compiled, manifests, read, spec_of
from tests.compile.worked_pods import WORKED_PODS, WorkedPod

SECRET = "planted: p$word"


@pytest.mark.requirement("kubernetes:schemas")
@pytest.mark.parametrize("pod", WORKED_PODS, ids=lambda pod: pod.name)
@pytest.mark.long
def test_every_worked_pod_is_sound_for_kubernetes(pod: WorkedPod, tmp_path: Path) -> None:
    file = pod.copy(tmp_path)
    result = compile_pod(file, pod.environ, target="kubernetes")
    assert result.value is not None, [
        (diagnostic.code.name, diagnostic.message) for diagnostic in result.diagnostics
    ]
    assert read(result.value.deployed)
    assert not file.with_name("compose.generated.yml").exists()


@pytest.mark.requirement("kubernetes:sidecar")
def test_the_proxy_is_a_native_sidecar_without_rights_that_is_healthy_before_its_agent_starts(
    tmp_path: Path,
) -> None:
    spec = spec_of(manifests(tmp_path, agent()), "desk-one")
    guard, proxy = spec["initContainers"]
    assert (proxy["name"], proxy["restartPolicy"]) == ("cllama", "Always")
    assert proxy["startupProbe"]["httpGet"] == {"path": "/health", "port": 8080}
    assert proxy["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert proxy["securityContext"]["runAsNonRoot"] is True
    assert proxy["securityContext"]["readOnlyRootFilesystem"] is True
    assert proxy["command"][:3] == ["mitmdump", "-s", "addons/cllama.py"]
    assert proxy["readinessProbe"]["httpGet"] == {"path": "/ready", "port": 8080}
    drain = next(int(each["value"]) for each in proxy["env"] if each["name"] == "CLLAMA_DRAIN_MS")
    assert spec["terminationGracePeriodSeconds"] == drain / 1000 + 5
    assert "restartPolicy" not in guard
    assert guard["securityContext"]["capabilities"] == {"add": ["NET_ADMIN"], "drop": ["ALL"]}
    assert f"meta skuid {proxy['securityContext']['runAsUser']} accept" in guard["command"][1]
    assert spec["hostAliases"] == [{"ip": "127.0.0.1", "hostnames": ["cllama"]}]
    assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.requirement("kubernetes:sidecar")
def test_an_agent_mounts_its_pages_and_none_of_its_proxys_files(tmp_path: Path) -> None:
    objects = manifests(tmp_path, agent())
    spec = spec_of(objects, "desk-one")
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    (main,) = spec["containers"]
    assert [mount["name"] for mount in main["volumeMounts"]] == ["pages"]
    assert set(objects["ConfigMap", "desk-one.pages"]["binaryData"]) == {
        "AGENTS.md",
        "CLAWDAPUS.md",
    }
    assert volumes["context"]["secret"]["secretName"] == "desk-one.context"
    assert {item["path"] for item in volumes["context"]["secret"]["items"]} >= {
        "metadata.json",
        "tools.json",
    }
    assert spec["automountServiceAccountToken"] is False


@pytest.mark.requirement("kubernetes:secrets")
def test_values_are_in_secrets_only_and_the_file_is_its_owners(tmp_path: Path) -> None:
    pod = agent(
        ", cllama-env: {OPENAI_API_KEY: '${KEY}'}", pod=", secrets: {token: {env: KEY}}"
    ).replace("    image: desk\n", "    image: desk\n    environment: {TOKEN: '${KEY}'}\n")
    result = compiled(tmp_path, pod, KEY=SECRET)
    assert result.value is not None
    objects = read(result.value.deployed)
    packed = base64.b64encode(SECRET.encode()).decode()
    holders = {(kind, name) for (kind, name), each in objects.items() if packed in str(each)}
    assert holders == {("Secret", "desk-desk.env"), ("Secret", "desk.secrets")}
    assert (
        SECRET
        in base64.b64decode(objects["Secret", "desk.auth"]["data"]["providers.json"]).decode()
    )
    assert SECRET not in result.value.deployed.read_text(encoding="utf-8")
    assert stat.S_IMODE(result.value.deployed.stat().st_mode) == 0o600
    sources = next(
        each for each in spec_of(objects, "desk-one")["volumes"] if each["name"] == "secrets"
    )
    assert sources["projected"]["sources"] == [{"secret": {"name": "desk.secrets"}}]


@pytest.mark.requirement("kubernetes:names")
def test_no_service_takes_the_place_of_the_clusters_own(tmp_path: Path) -> None:
    result = compiled(tmp_path, agent(rest="  kubernetes:\n    image: x\n    expose: [443]\n"))
    assert result.value is None
    assert "kubernetes-name" in {each.code.name for each in result.diagnostics}


@pytest.mark.requirement("kubernetes:not-carried")
def test_what_has_no_counterpart_is_told_each_where_it_stands(tmp_path: Path) -> None:
    pod = agent(
        ", surfaces: ['service://desk', 'host:///srv', 'volume://notes rw']",
        compose="    ulimits: {nproc: 5}\n    volumes: [./here:/there]",
        pod=", secrets: {cert: {file: AGENTS.md}}",
        rest="  odd_name: {user: somebody}\n  built: {build: .}\nconfigs: {c: {content: x}}",
    ).replace("cllama: passthrough", "cllama: {proxy: passthrough, mode: proxy}")
    result = compiled(tmp_path, pod)
    assert result.value is None
    assert not (tmp_path / ".claw-runtime").exists()
    lines = pod.splitlines()
    reported = {
        (
            diagnostic.code.name,
            lines[diagnostic.span.line - 1][diagnostic.span.column - 1 :].split(":")[0],
        )
        for diagnostic in result.diagnostics
    }
    expected = {
        ("not-carried", "ulimits"),
        ("not-carried", "./here"),
        ("not-carried", "configs"),
        ("not-carried", "user"),
        ("made-by-hand", "build"),
        ("not-carried", "'host"),
        ("made-by-hand", "cert"),
        ("made-by-hand", "desk, secrets"),
        ("kubernetes-name", "odd_name"),
        ("no-image", "odd_name"),
    }
    assert expected <= reported


@pytest.mark.requirement("kubernetes:modes")
def test_an_unaware_runner_is_redirected_in_its_own_pod(tmp_path: Path) -> None:
    pod = agent().replace("cllama: passthrough", "cllama: {proxy: passthrough, mode: transparent}")
    spec = spec_of(manifests(tmp_path, pod), "desk-one")
    guard, proxy = spec["initContainers"]
    assert (
        f'meta skuid != {PROXY_UID} oifname != "lo" tcp dport {{ 80, 443 }} redirect to :8083'
        in guard["command"][1]
    )
    assert "policy drop" in guard["command"][1]
    assert "transparent@8083" in proxy["command"]
    mounts = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    assert mounts["/etc/ssl/claw"] == "trust"
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["trust"]["secret"]["secretName"] == "desk.ca-public"
    assert volumes["ca"]["secret"]["secretName"] == "desk.ca"


@pytest.mark.requirement("workers:compiled")
@pytest.mark.parametrize(
    ("workers", "start"),
    [
        ("1", ["mitmdump", "-s", "addons/cllama.py"]),
        ("4", ["claw", "proxy", "--workers", "4"]),
        ("auto", ["claw", "proxy", "--workers", "auto"]),
    ],
)
def test_the_proxy_has_as_many_workers_as_the_pod_file_says(
    tmp_path: Path, workers: str, start: list[str]
) -> None:
    pod = agent().replace(
        "cllama: passthrough",
        f"cllama: {{proxy: passthrough, workers: {workers}, mode: transparent}}",
    )
    proxy = spec_of(manifests(tmp_path, pod), "desk-one")["initContainers"][1]
    compose = in_compose(tmp_path, pod)["services"]["cllama"]
    for command in (proxy["command"], compose["command"]):
        assert command[: len(start)] == start
        assert command[len(start) :][:3] == ["--set", "confdir=/tmp/mitmproxy", "--mode"]


@pytest.mark.requirement("paths:compiled")
def test_the_proxy_gets_the_paths_that_the_pod_opens_in_kubernetes_too(tmp_path: Path) -> None:
    opened = 'cllama: {proxy: passthrough, paths: ["POST /v1/fine_tuning/*"], mode: transparent}'
    proxy = spec_of(
        manifests(tmp_path, agent().replace("cllama: passthrough", opened)), "desk-one"
    )["initContainers"][1]
    assert {"name": "CLLAMA_PATHS", "value": "POST /v1/fine_tuning/*"} in proxy["env"]


@pytest.mark.requirement("kubernetes:guarded")
def test_an_agent_gets_no_right_by_which_it_could_leave_past_its_proxy(tmp_path: Path) -> None:
    past = [
        "setuid",
        "CAP_NET_RAW",
        "cap_net_admin",
        "Cap_Sys_Admin",
        "SYS_TIME",
        "CHECKPOINT_RESTORE",
        "all",
    ]
    powers = (
        f"    privileged: true\n    cap_add: [CHOWN, cap_kill, {', '.join(past)}]\n    "
        "cap_drop: [MKNOD]"
    )
    result = compiled(tmp_path, agent(compose=powers))
    assert result.value is not None
    context = spec_of(read(result.value.deployed), "desk-one")["containers"][0]["securityContext"]
    assert context == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "KILL"]},
    }
    reported = [
        diagnostic.message
        for diagnostic in result.diagnostics
        if diagnostic.code.name == "not-carried"
    ]
    lost = ["privileged", *(name.upper().removeprefix("CAP_") for name in past)]
    assert all(any(f"'{name}'" in each for each in reported) for name in lost)
    assert len(reported) == len(lost)


@pytest.mark.requirement("kubernetes:guarded")
def test_an_agent_is_not_its_proxys_user(tmp_path: Path) -> None:
    result = compiled(tmp_path, agent(compose=f"    user: '{PROXY_UID}:5'"))
    assert result.value is None
    assert "proxys-user" in {diagnostic.code.name for diagnostic in result.diagnostics}


@pytest.mark.requirement("kubernetes:schemas")
def test_ordinals_are_deployments_of_their_own(tmp_path: Path) -> None:
    objects = manifests(tmp_path, agent(", count: 2"))
    first, second = (
        objects["Secret", "desk-one-0.env"]["data"],
        objects["Secret", "desk-one-1.env"]["data"],
    )
    assert base64.b64decode(first["CLLAMA_TOKEN"]).startswith(b"one-0:")
    assert base64.b64decode(second["CLLAMA_TOKEN"]).startswith(b"one-1:")
    assert "one-0" not in str(objects["Deployment", "desk-one-1"])
