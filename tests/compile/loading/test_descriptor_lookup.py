"""The sources of a descriptor are files inside the pod's directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.compiler import check_pod

DESCRIPTOR = '{"version": 1}'


def codes(pod: Path) -> list[str]:
    return [
        diagnostic.code.name
        for diagnostic in check_pod(pod, {}).diagnostics
        if diagnostic.code.name != "no-agents"
    ]


@pytest.mark.requirement("compile:paths-stay-inside")
def test_a_descriptor_that_is_a_symlink_out_of_the_pod_is_not_read(tmp_path: Path) -> None:
    pod = tmp_path / "pod"
    (pod / "built").mkdir(parents=True)
    (tmp_path / "secret.json").write_text(DESCRIPTOR, encoding="utf-8")
    (pod / "claw-pod.yml").write_text(
        "x-claw: {pod: desk}\nservices: {api: {build: built}}\n", encoding="utf-8"
    )
    (pod / "built" / ".claw-describe.json").symlink_to(tmp_path / "secret.json")
    assert codes(pod / "claw-pod.yml") == ["path-escapes-pod"]
    (pod / "built" / ".claw-describe.json").unlink()
    (pod / "built" / ".claw-describe.json").symlink_to(pod / "built")
    assert codes(pod / "claw-pod.yml") == ["unreadable-file"]


def test_a_descriptor_of_unreasonable_size_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "claw-pod.yml").write_text(
        "x-claw: {pod: desk}\nservices: {api: {build: .}}\n", encoding="utf-8"
    )
    (tmp_path / ".claw-describe.json").write_text(" " * (4 * 1024 * 1024 + 1), encoding="utf-8")
    assert codes(tmp_path / "claw-pod.yml") == ["unreadable-file"]
