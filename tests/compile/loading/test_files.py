"""Files of the pod's directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.compiler import check_pod


@pytest.mark.requirement("compile:paths-stay-inside")
def test_a_symlink_out_of_the_pod_is_refused_and_one_inside_is_not(tmp_path: Path) -> None:
    pod = tmp_path / "pod"
    pod.mkdir()
    (tmp_path / "secret").write_text("outside", encoding="utf-8")
    (pod / "AGENTS.md").write_text("inside", encoding="utf-8")
    (pod / "out").symlink_to(tmp_path / "secret")
    (pod / "in").symlink_to("AGENTS.md")
    for name, codes in (("out", ["path-escapes-pod"]), ("in", [])):
        (pod / "claw-pod.yml").write_text(
            f"x-claw: {{pod: desk}}\nservices: {{one: {{x-claw: {{agent: {name}}}}}}}\n",
            encoding="utf-8",
        )
        assert [
            diagnostic.code.name for diagnostic in check_pod(pod / "claw-pod.yml", {}).diagnostics
        ] == codes
