"""Paths that no agent may get: what a mount of a path gives, after links are followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.compiler import check_pod
from claw_compile.loading.private_paths import bind_source, expand_home, host_directory
from claw_compile.parsing.node import Source, child, items_of
from claw_compile.parsing.yaml_reader import read_yaml

PRIVATE = "private-mount"


def codes(directory: Path, volume: str) -> set[str]:
    """Return the codes of a pod that mounts the volume into an agent."""
    (directory / "harmless").mkdir(exist_ok=True)
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    file = directory / "claw-pod.yml"
    file.write_text(
        "x-claw: {pod: desk}\nservices:\n"
        f"  one: {{volumes: ['{volume}:/x'], x-claw: {{agent: AGENTS.md}}}}\n",
        encoding="utf-8",
    )
    return {each.code.name for each in check_pod(file, {}).diagnostics}


@pytest.mark.requirement("compile:starvation")
@pytest.mark.parametrize(
    "path",
    [
        ".",
        "./harmless/../.env",
        ".claw-master",
        ".claw-ca/private/key.pem",
        ".claw-runtime",
        ".claw-runtime/agents/two/env",
        ".claw-runtime/agents/one/claw",
        ".claw-runtime/context/one/AGENTS.md",
    ],
)
def test_what_leads_to_a_private_path_or_is_below_one_is_refused(tmp_path: Path, path: str) -> None:
    assert PRIVATE in codes(tmp_path, f"./{path}")


@pytest.mark.requirement("compile:starvation")
def test_a_link_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / ".claw-runtime")
    assert PRIVATE in codes(tmp_path, "./link")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "harmless")
    assert codes(tmp_path, "./link") == set()


@pytest.mark.parametrize("path", ["./harmless", "./.claw-ca/public", "./.claw-runtime-of-another"])
def test_a_neighbour_of_a_private_path_may_be_mounted(tmp_path: Path, path: str) -> None:
    assert PRIVATE not in codes(tmp_path, path)


@pytest.mark.parametrize(
    ("item", "source"),
    [
        ("./data:/data:ro", "./data"),
        ("~/data:/data", "~/data"),
        ("${HERE}/data:/data", "/here/data"),
        ("{type: bind, source: data, target: /data}", "data"),
        ("named:/data", None),
        ("/data", None),
        ("{type: volume, source: data, target: /data}", None),
        ("[]", None),
    ],
)
def test_the_source_of_a_volume_is_a_path_or_a_name(item: str, source: str | None) -> None:
    root = read_yaml(Source("pod", f"volumes:\n  - {item}\n")).value
    (node,) = items_of(child(root, "volumes"))
    assert bind_source(node, {"HERE": "/here"}.get) == source


def test_a_home_and_a_directory_of_the_host_are_known_in_any_spelling() -> None:
    assert expand_home("~/key", {"HOME": "/root"}.get) == "/root/key"
    assert expand_home("~other/key", {"HOME": "/root"}.get) == "~other/key"
    assert expand_home("~", {}.get) == "~"
    assert host_directory("//etc/./") == "/etc"
    assert host_directory("/etc/hosts") is None
    assert host_directory("etc") is None
