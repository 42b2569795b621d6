"""A pod compiled for Kubernetes: its objects, each held to the API's own schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from claw_compile.compiler import CompileResult, compile_pod
from claw_compile.diagnostics.diagnostic import Result
from tests.compile.composed import DESCRIPTOR, MASTER
from tests.compile.kubernetes_schemas import validate


def compiled(directory: Path, pod: str, **environ: str) -> Result[CompileResult]:
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (directory / "desk.json").write_text(DESCRIPTOR, encoding="utf-8")
    (directory / "claw-pod.yml").write_text(pod, encoding="utf-8")
    return compile_pod(
        directory / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER, **environ}, target="kubernetes"
    )


def manifests(directory: Path, pod: str, **environ: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Compile; return the objects by kind and name, each of them valid."""
    result = compiled(directory, pod, **environ)
    assert result.value is not None, [
        (diagnostic.code.name, diagnostic.message) for diagnostic in result.diagnostics
    ]
    return read(result.value.deployed)


def read(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    manifests = {}
    for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
        validate(document)
        manifests[document["kind"], document["metadata"]["name"]] = document
    return manifests


def spec_of(objects: dict[tuple[str, str], dict[str, Any]], name: str) -> dict[str, Any]:
    spec: dict[str, Any] = objects["Deployment", name]["spec"]["template"]["spec"]
    return spec


def peers(rules: list[dict[str, Any]], key: str) -> set[str]:
    """Return the members that a policy's rules name."""
    return {
        peer["podSelector"]["matchLabels"]["claw.member"]
        for rule in rules
        for peer in rule[key]
        if "podSelector" in peer
    }


def reaches_the_world(policy: dict[str, Any]) -> bool:
    return any("ipBlock" in peer for rule in policy["spec"]["egress"] for peer in rule["to"])
