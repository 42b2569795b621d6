"""The source of what is deployed: its digests, and the containers of a service."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.compiler import check_pod
from claw_compile.output.deployment import Deployment
from claw_contract.secret import Secret

POD = """
x-claw: {pod: desk}
services:
  plain: {x-claw: {agent: AGENTS.md}}
  base: {x-claw: {agent: AGENTS.md, cllama: passthrough, count: 2}}
"""


def deployment(directory: Path, pod: str = POD, master: str = "a-master-secret") -> Deployment:
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (directory / "claw-pod.yml").write_text(pod, encoding="utf-8")
    plan = check_pod(directory / "claw-pod.yml", {}).value
    assert plan is not None
    return Deployment(plan.loaded.pod, plan.resolved, {}, Secret(master))


@pytest.mark.requirement("compile:same-input-same-bytes")
def test_a_digest_stays_what_it_was_in_earlier_versions(tmp_path: Path) -> None:
    digest = deployment(tmp_path).digest({"b": b"", "a": b"xyz"})
    assert digest == "bbba88b8739825a9d43fa09d5f033c58"


def test_a_digest_changes_with_a_name_a_byte_and_the_master_secret(tmp_path: Path) -> None:
    one = deployment(tmp_path)
    other = deployment(tmp_path, master="another-master-secret")
    contents = [{"a": b"xyz"}, {"b": b"xyz"}, {"a": b"xyZ"}, {"a": b"xy", "z": b""}, {}]
    digests = {one.digest(each) for each in contents} | {other.digest(contents[0])}
    assert len(digests) == 6


def test_a_counted_agent_is_several_containers_and_a_service_is_one(tmp_path: Path) -> None:
    made = deployment(tmp_path)
    assert made.containers("base") == ["base-0", "base-1"]
    assert made.containers("plain") == ["plain"]
    assert made.containers("no-agent") == ["no-agent"]


@pytest.mark.parametrize(
    ("mode", "uses_ca", "intercepts"),
    [("base-url", False, False), ("proxy", True, False), ("transparent", True, True)],
)
def test_the_mode_of_an_agent_decides_whether_the_pod_needs_a_ca(
    tmp_path: Path, mode: str, *, uses_ca: bool, intercepts: bool
) -> None:
    pod = POD.replace("cllama: passthrough", f"cllama: {{proxy: passthrough, mode: {mode}}}")
    made = deployment(tmp_path, pod)
    assert made.has_proxy
    assert (made.uses_ca, made.intercepts) == (uses_ca, intercepts)
