"""A service with ``tools-host``: what is compiled of it, for Compose and for Kubernetes."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from claw_compile.compiler import compile_pod
from claw_compile.lock_update import rotate_pod
from claw_compile.output.kubernetes.objects import PROXY_UID
from tests.compile.composed import MASTER, compiled, networks
from tests.compile.manifests import manifests, spec_of
from tests.compile.tools_host_pod import codes_of, config, pod, written


@pytest.mark.requirement("toolspod:container", "compose:oracle")
def test_compose_runs_the_host_without_rights_and_with_its_files(tmp_path: Path) -> None:
    composed = compiled(tmp_path, pod())
    service = composed["services"]["files"]
    assert service["image"] == "clawdapus/claw-tools:0.1.0"
    serve = "exec claw tools serve --config /claw/tools/toolhost.yml"
    assert service["entrypoint"] == [
        "/bin/sh",
        "-c",
        f"mkdir -p -m 0700 /claw/workspaces/one && {serve}",
    ]
    assert service["user"] == "1000:1000"
    assert (service["read_only"], service["cap_drop"], service["init"]) == (True, ["ALL"], True)
    assert (service["security_opt"], service["pids_limit"]) == (["no-new-privileges:true"], 2048)
    assert "http://127.0.0.1:8080/health" in service["healthcheck"]["test"][-1]
    mounts = {
        each["target"]: (each["source"], each.get("read_only", False))
        for each in service["volumes"]
    }
    runtime = str(tmp_path / ".claw-runtime")
    assert mounts == {
        "/claw/workspaces": ("files-workspaces", False),
        "/claw/tools/toolhost.yml": (f"{runtime}/tools-hosts/files.yml", True),
        "/claw/tools/tokens/one": (f"{runtime}/secrets/toolhost.files.one", True),
    }
    assert "files-workspaces" in composed["volumes"]
    assert networks(composed)["claw-tool-files"] == {"files", "cllama"}
    assert "files" in networks(composed)["default"], "web_fetch reaches the world"


@pytest.mark.requirement("toolspod:principals")
def test_each_agent_is_a_principal_with_exactly_its_grants_and_a_workspace_of_its_own(
    tmp_path: Path,
) -> None:
    compiled(
        tmp_path, pod("{limits: {calls_per_minute: 60, read_bytes: 1MiB}}", two="[memory_read]")
    )
    host = config(tmp_path)["toolhost"]
    assert {
        name: (each["workspace"], each["tools"]) for name, each in host["principals"].items()
    } == {
        "one": ("/claw/workspaces/one", ["read_file", "write_file"]),
        "two": ("/claw/workspaces/two", ["memory_read"]),
    }
    assert {each["token"]["file"] for each in host["principals"].values()} == {
        "/claw/tools/tokens/one",
        "/claw/tools/tokens/two",
    }
    assert [each["limits"] for each in host["principals"].values()] == [
        {"calls_per_minute": 60}
    ] * 2
    assert host["limits"] == {"read_bytes": "1MiB"}
    assert host["listen"] == {
        "host": "0.0.0.0",
        "port": 8080,
        "path": "/mcp",
        "allowed_hosts": ["files", "files:8080"],
    }


@pytest.mark.requirement("toolspod:principals")
def test_an_agent_that_is_granted_nothing_is_no_principal_and_each_of_several_is_one(
    tmp_path: Path,
) -> None:
    compiled(
        tmp_path, pod().replace("agent: AGENTS.md, cllama", "agent: AGENTS.md, count: 2, cllama", 1)
    )
    assert list(config(tmp_path)["toolhost"]["principals"]) == ["one-0", "one-1"]


@pytest.mark.requirement("toolspod:tokens")
def test_proxy_and_host_have_the_same_token_and_no_other_file_has_it(tmp_path: Path) -> None:
    composed = compiled(tmp_path, pod(two="[memory_read]"))
    tokens = {name: written(tmp_path, f"secrets/toolhost.files.{name}") for name in ("one", "two")}
    assert len({*tokens.values()}) == 2
    for name, token in tokens.items():
        assert len(token) == 48
        tools = json.loads(written(tmp_path, f"context/{name}/tools.json"))["tools"]
        reference = {"type": "bearer", "token": {"secret": f"toolhost.files.{name}"}}
        assert {json.dumps(tool["execution"]["auth"]) for tool in tools} == {json.dumps(reference)}
        own = json.loads(written(tmp_path, f"context/{name}/service-auth/files.json"))
        assert (own["token"], own["principal"]) == (reference["token"], name)
        held = [
            path
            for path in tmp_path.rglob("*")
            if path.is_file() and token.encode() in path.read_bytes()
        ]
        assert {path.name for path in held} == {f"toolhost.files.{name}"}
    secrets = {each["target"] for each in composed["services"]["cllama"]["secrets"]}
    assert secrets == {"toolhost.files.one", "toolhost.files.two"}
    assert "secrets" not in composed["services"]["one"]


@pytest.mark.requirement("toolspod:rotate")
def test_rotation_changes_the_token_of_that_agent_only(tmp_path: Path) -> None:
    compiled(tmp_path, pod(two="[memory_read]"))
    before = [written(tmp_path, f"secrets/toolhost.files.{name}") for name in ("one", "two")]
    assert (
        rotate_pod(tmp_path / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER}, "one").value
        is not None
    )
    compiled(tmp_path, pod(two="[memory_read]"))
    after = [written(tmp_path, f"secrets/toolhost.files.{name}") for name in ("one", "two")]
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, True]


@pytest.mark.requirement("toolspod:variables")
def test_a_variable_of_a_credential_is_the_containers_and_its_value_in_no_file(
    tmp_path: Path,
) -> None:
    settings = (
        "{web_search: {endpoint: 'https://search.example/${NAMED}', api_key: {env: SEARCH_KEY}}, "
        "mcp_servers: {hub:"
        " {url: 'https://hub.example/mcp', headers: {Authorization: 'Bearer ${HUB_TOKEN}'}}}}"
    )
    values = {"SEARCH_KEY": "planted-search-key", "HUB_TOKEN": "planted-hub-token", "NAMED": "v1"}
    service = compiled(tmp_path, pod(settings), **values)["services"]["files"]
    assert service["environment"] == {
        "SEARCH_KEY": "planted-search-key",
        "HUB_TOKEN": "planted-hub-token",
    }
    tools = config(tmp_path)["tools"]
    assert tools["mcp_servers"]["hub"]["headers"] == {"Authorization": "Bearer ${HUB_TOKEN}"}
    assert tools["web_search"] == {
        "endpoint": "https://search.example/v1",
        "api_key": {"env": "SEARCH_KEY"},
    }
    held = [
        path for path in tmp_path.rglob("*") if path.is_file() and b"planted-" in path.read_bytes()
    ]
    assert held == []


@pytest.mark.requirement("toolspod:own-keys-win")
def test_what_the_user_wrote_wins(tmp_path: Path) -> None:
    own = (
        "    image: mine:2\n    command: [other]\n    user: '7:7'\n    read_only: false\n    "
        "pids_limit: 5\n"
        "    expose: ['9000']\n    volumes: ['more:/more']\n    environment: {SEARCH_KEY: "
        "own}\nvolumes: {more: null}\n"
    )
    settings = (
        "{volume: shared, web_search: {endpoint: 'https://search.example', api_key: {env: "
        "SEARCH_KEY}}}"
    )
    composed = compiled(tmp_path, pod(settings, compose=own), SEARCH_KEY="of-the-shell")
    service = composed["services"]["files"]
    assert (service["image"], service["user"], service["pids_limit"]) == ("mine:2", "7:7", 5)
    assert (service.get("entrypoint"), service["command"], service.get("read_only", False)) == (
        None,
        ["other"],
        False,
    )
    assert service["environment"] == {"SEARCH_KEY": "own"}
    targets = {each["target"]: each["source"] for each in service["volumes"]}
    assert (targets["/more"], targets["/claw/workspaces"]) == ("more", "shared")
    assert config(tmp_path)["toolhost"]["listen"]["port"] == 9000
    assert "http://127.0.0.1:9000/health" in service["healthcheck"]["test"][-1]


@pytest.mark.requirement("toolspod:kubernetes")
def test_kubernetes_runs_the_same_and_has_the_files_in_a_secret(tmp_path: Path) -> None:
    objects = manifests(tmp_path, pod("{exec: {enabled: true}}", two="[exec_shell]"))
    spec = spec_of(objects, "desk-files")
    (main,) = spec["containers"]
    assert main["image"] == "clawdapus/claw-tools:0.1.0"
    assert main["command"][-1].endswith("exec claw tools serve --config /claw/tools/toolhost.yml")
    assert main["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsGroup": PROXY_UID,
        "runAsNonRoot": True,
        "runAsUser": PROXY_UID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert spec["securityContext"] == {"fsGroup": PROXY_UID}
    assert {each["mountPath"] for each in main["volumeMounts"]} == {
        "/claw/tools",
        "/claw/workspaces",
        "/tmp",
    }
    (volume,) = [each["secret"] for each in spec["volumes"] if each["name"] == "toolhost"]
    data = objects["Secret", volume["secretName"]]["data"]
    files = {item["path"]: base64.b64decode(data[item["key"]]).decode() for item in volume["items"]}
    assert sorted(files) == ["tokens/one", "tokens/two", "toolhost.yml"]
    proxys = objects["Secret", "desk.secrets"]["data"]
    assert {
        base64.b64decode(proxys[f"toolhost.files.{name}"]).decode() for name in ("one", "two")
    } == {
        files["tokens/one"],
        files["tokens/two"],
    }
    assert objects["Service", "files"]["spec"]["ports"][0]["port"] == 8080
    assert ("PersistentVolumeClaim", "desk-files-workspaces.volume") in objects


@pytest.mark.requirement("toolspod:no-leak")
def test_a_pod_that_gives_an_agent_a_token_of_the_host_is_refused(tmp_path: Path) -> None:
    compiled(tmp_path, pod())
    token = written(tmp_path, "secrets/toolhost.files.one")
    leaking = pod().replace(
        "image: runner:1", f"image: runner:1\n    environment: {{STOLEN: {token}}}", 1
    )
    ((code, text),) = codes_of(tmp_path, leaking)
    assert code == "token-visible-to-agent"
    assert "the token of one at files" in text
    assert token not in text


@pytest.mark.requirement("toolspod:container")
def test_the_same_pod_gives_the_same_bytes(tmp_path: Path) -> None:
    text = pod("{exec: {enabled: true, allow: [git]}}", two="[memory_read]")
    compiled(tmp_path, text)
    before = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert compile_pod(tmp_path / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER}).value is not None
    assert before == {
        path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    }
