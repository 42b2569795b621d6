"""Rules about a pod's services; most mistakes are in the cases of ``compile/cases``."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.compiler import check_pod
from claw_compile.loading.load import LoadedPod, load
from claw_compile.policy.agent import ResolvedPod
from claw_compile.policy.check_services import (
    check_counted_services,
    check_host,
    check_images,
    check_names,
    check_reach,
)
from claw_compile.policy.resolve import resolve

AGENT = "x-claw: {agent: AGENTS.md, cllama: passthrough}"
COUNTED = "x-claw: {agent: AGENTS.md, cllama: passthrough, count: 2}"


def pod(directory: Path, services: str) -> tuple[LoadedPod, ResolvedPod]:
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    file = directory / "claw-pod.yml"
    file.write_text(f"x-claw: {{pod: desk}}\nservices:\n{services}\n", encoding="utf-8")
    loaded = load(file, {}).value
    assert loaded is not None
    resolved = resolve(loaded).value
    assert resolved is not None
    return loaded, resolved


def codes(directory: Path, services: str) -> list[str]:
    """Return the codes that the rules of this module report."""
    loaded, resolved = pod(directory, services)
    found = (
        *check_host(loaded, resolved),
        *check_images(loaded, resolved),
        *check_names(loaded.pod),
        *check_counted_services(loaded, resolved),
        *check_reach(loaded.pod, resolved),
    )
    assert set(found) <= {*check_pod(directory / "claw-pod.yml", {}).diagnostics}
    return [each.code.name for each in found]


@pytest.mark.requirement("compile:diagnostics-on-the-line")
def test_a_sound_pod_breaks_none_of_the_rules(tmp_path: Path) -> None:
    sound = f"  one: {{image: 'runner:1', {AGENT}}}\n  web: {{image: 'web@sha256:{'0' * 64}'}}"
    assert codes(tmp_path, sound) == []


@pytest.mark.requirement("compile:diagnostics-on-the-line")
@pytest.mark.parametrize(
    ("services", "expected"),
    [
        (f"  one: {{image: 'runner:1', privileged: true, {AGENT}}}", ["agent-takes-host"]),
        (f"  one: {{image: 'runner:latest', {AGENT}}}", ["unpinned-image"]),
        (f"  one: {{image: 'here:5000/runner', {AGENT}}}", ["unpinned-image"]),
        (f"  one: {{image: 'runner:1', {AGENT}}}\n  ONE: {{image: 'x:1'}}", ["same-host"]),
        (f"  one: {{image: 'runner:1', {AGENT}}}\n  cllama: {{image: 'x:1'}}", ["reserved-name"]),
        (
            f"  one: {{image: 'runner:1', {COUNTED}}}\n  one-1: {{image: 'x:1'}}",
            ["ordinal-collision"],
        ),
    ],
)
def test_a_rule_that_is_broken_is_told_once(
    tmp_path: Path, services: str, expected: list[str]
) -> None:
    assert codes(tmp_path, services) == expected
