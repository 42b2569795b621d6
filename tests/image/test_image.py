"""The image that compose.generated.yml and Kubernetes expect."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from claw_compile.output.compose.proxy_service import HEALTH, IMAGE
from claw_compile.output.kubernetes.objects import PROXY_UID
from claw_compile.output.proxy_env import CA_MOUNT, HISTORY, RUNTIME_MOUNT, STATE
from claw_contract.manifest import read_manifest
from claw_contract.metadata import Metadata
from tests.compile.composed import agent, compiled
from tests.compile.kubernetes_schemas import validate
from tests.compile.manifests import manifests, spec_of
from tests.image.dockerfile import ROOT, commanded, copied_context, installed, last, stages

BY_HAND = ROOT / "docs" / "kubernetes-sidecar.yml"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied_context(tmp_path_factory.mktemp("image"))


def by_hand() -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(BY_HAND.read_text(encoding="utf-8")))
    return documents


def by_hand_proxy() -> dict[str, Any]:
    (deployment,) = [each for each in by_hand() if each["kind"] == "Deployment"]
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]["initContainers"][0]
    return found


@pytest.mark.requirement("image:linted")
def test_the_linter_has_nothing_to_say_of_the_dockerfile() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    said = subprocess.run(
        [linter, ROOT / "Dockerfile"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


@pytest.mark.requirement("image:same-command")
def test_the_image_compose_and_kubernetes_run_the_same_command(tmp_path: Path) -> None:
    base = commanded(last("CMD"))
    proxy = compiled(tmp_path, agent())["services"]["cllama"]
    assert base == proxy["command"] == by_hand_proxy()["command"]
    assert base == spec_of(manifests(tmp_path, agent()), "desk-one")["initContainers"][1]["command"]
    pod = agent().replace("cllama: passthrough", "cllama: {proxy: passthrough, mode: transparent}")
    modes = compiled(tmp_path, pod)["services"]["cllama"]["command"]
    assert modes == spec_of(manifests(tmp_path, pod), "desk-one")["initContainers"][1]["command"]
    assert modes[:3] == base[:3]


@pytest.mark.requirement("image:same-command")
def test_the_image_and_compose_ask_for_its_health_in_the_same_words(tmp_path: Path) -> None:
    check = compiled(tmp_path, agent())["services"]["cllama"]["healthcheck"]
    assert commanded(last("HEALTHCHECK")) == check["test"][1:] == ["python", "-c", HEALTH]
    times = last("HEALTHCHECK").flags
    assert {
        name.replace("-", "_"): times[name] for name in ("interval", "timeout", "start-period")
    } == {name: check[name] for name in ("interval", "timeout", "start_period")}


@pytest.mark.requirement("image:contents")
def test_what_the_mounts_of_compose_need_is_in_the_image(tmp_path: Path) -> None:
    proxy = compiled(tmp_path, agent())["services"]["cllama"]
    made = next(step.rest for step in stages()[-1] if step.name == "RUN")
    assert f"--mode=1777 {HISTORY} {STATE}" in made
    assert "nftables" in made
    below = f"{last('WORKDIR').rest}/"
    targets = {volume["target"] for volume in proxy["volumes"]}
    assert targets == {RUNTIME_MOUNT, HISTORY, STATE}
    assert all(target.startswith(below) for target in (*targets, CA_MOUNT))
    assert "/tmp/mitmproxy" in commanded(last("CMD"))[-1]
    assert proxy["tmpfs"][0].startswith("/tmp:")
    assert last("USER").rest == f"{PROXY_UID}:{PROXY_UID}"


@pytest.mark.requirement("image:contents")
def test_every_path_that_is_copied_is_there_and_nothing_else_is_sent_to_the_build(
    context: Path,
) -> None:
    sent = {entry.name for entry in context.iterdir()}
    packages = {entry.name for entry in ROOT.glob("claw_*")}
    assert sent == packages | {
        "addons",
        "LICENSE",
        "README.md",
        "constraints.txt",
        "pyproject.toml",
    }
    for step in (
        step
        for stage in stages()
        for step in stage
        if step.name == "COPY" and "from" not in step.flags
    ):
        *sources, target = step.words
        assert all((context / source).exists() for source in sources)
        assert (
            target == "."
            or f"{target}/cllama.py" == f"{last('WORKDIR').rest}/{commanded(last('CMD'))[2]}"
        )
    constrained = next(step.rest for step in stages()[0] if step.name == "ENV")
    assert "PIP_CONSTRAINT=/build/constraints.txt" in constrained


@pytest.mark.requirement("image:contents")
def test_what_is_installed_has_every_package_and_its_data(context: Path, tmp_path: Path) -> None:
    site = installed(context, tmp_path)
    for package in sorted(context.glob("claw_*")):
        kept = {str(file.relative_to(context)) for file in package.rglob("*") if file.is_file()}
        there = {
            str(file.relative_to(site))
            for file in (site / package.name).rglob("*")
            if file.is_file()
        }
        assert kept - there == set()


@pytest.mark.requirement("image:contents")
def test_the_image_tells_the_version_that_it_has_and_compose_asks_for() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "version"
    ]
    assert f'org.opencontainers.image.version="{version}"' in last("LABEL").rest
    assert f"docker build -t clawdapus/cllama:{version} ." in (ROOT / "Dockerfile").read_text(
        encoding="utf-8"
    )
    assert f"${{CLLAMA_IMAGE:-clawdapus/cllama:{version}}}" == IMAGE


@pytest.mark.requirement("kubernetes:by-hand")
def test_the_manifest_for_those_without_the_compiler_is_sound_and_has_its_probes_and_its_time() -> (
    None
):
    for document in by_hand():
        validate(document)
    proxy = by_hand_proxy()
    probes = {
        name: proxy[name]["httpGet"]["path"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert probes == {
        "startupProbe": "/health",
        "livenessProbe": "/health",
        "readinessProbe": "/ready",
    }
    (deployment,) = [each for each in by_hand() if each["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    drain = next(int(each["value"]) for each in proxy["env"] if each["name"] == "CLLAMA_DRAIN_MS")
    assert spec["terminationGracePeriodSeconds"] == drain / 1000 + 5
    assert proxy["restartPolicy"] == "Always"
    context = next(
        each["stringData"] for each in by_hand() if each["metadata"]["name"] == "analyst-context"
    )
    token = Metadata.model_validate_json(context["metadata.json"]).token
    assert token is not None
    assert token.reveal() in {each["value"] for each in spec["containers"][0]["env"]}
    manifest, left_out = read_manifest(context["tools.json"].encode())
    assert ([tool.name for tool in manifest.tools], left_out) == (["desk.balance"], ())


@pytest.mark.requirement("kubernetes:by-hand")
def test_the_proxy_of_the_manifest_is_locked_as_the_compiled_one_is(tmp_path: Path) -> None:
    theirs = spec_of(manifests(tmp_path, agent()), "desk-one")["initContainers"][1]
    proxy = by_hand_proxy()
    assert proxy["securityContext"] == theirs["securityContext"]
    same = (
        "CLAW_CONTEXT_ROOT",
        "CLAW_SESSION_HISTORY_DIR",
        "CLAW_STATE",
        "CLLAMA_EGRESS",
        "CLLAMA_DRAIN_MS",
        "HOME",
    )
    told = [
        {each["name"]: each.get("value") for each in container["env"]}
        for container in (proxy, theirs)
    ]
    assert {name: told[0][name] for name in same} == {name: told[1][name] for name in same}


@pytest.mark.requirement("compose:grace")
@pytest.mark.parametrize(
    ("env", "drain", "grace"),
    [
        ("", "25000", "30s"),
        (", cllama-env: {CLLAMA_DRAIN_MS: '120500'}", "120500", "2m6s"),
    ],
)
def test_the_proxy_has_more_time_to_end_than_the_requests_that_it_ends(
    tmp_path: Path, env: str, drain: str, grace: str
) -> None:
    proxy = compiled(tmp_path, agent(env))["services"]["cllama"]
    assert (proxy["environment"]["CLLAMA_DRAIN_MS"], proxy["stop_grace_period"]) == (drain, grace)
