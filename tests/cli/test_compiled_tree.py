"""The compiled tree that verbs read."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_cli.compiled_tree import find_tree, read_env
from claw_compile.output.kubernetes.objects import parse_env_pairs


@pytest.mark.requirement("cli:proxy")
def test_only_a_line_feed_ends_a_line_of_an_env_file(tmp_path: Path) -> None:
    breaks = "\u2028\u2029\x0b\x0c\x1c\x1d\x1e\x85\r"
    value = "".join(f"x{each}CLLAMA_EGRESS=allow" for each in breaks)
    (tmp_path / "env").write_bytes(f"A={value}\nB=2\n".encode())
    assert read_env(tmp_path / "env") == {"A": value, "B": "2"}
    assert parse_env_pairs((tmp_path / "env").read_bytes()) == {"A": value.encode(), "B": b"2"}


def test_a_named_pod_comes_before_the_variable_and_the_variable_before_the_default(
    tmp_path: Path,
) -> None:
    environ = {"CLAW_CONTEXT_ROOT": str(tmp_path / "tree" / "context")}
    named = find_tree(tmp_path / "pod" / "claw-pod.yml", environ)
    assert named.context == tmp_path / "pod" / ".claw-runtime" / "context"
    by_variable = find_tree(None, environ)
    assert by_variable.root == tmp_path / "tree"
    assert "CLAW_CONTEXT_ROOT" in by_variable.remedy
    assert find_tree(None, {}).root == Path(".claw-runtime")


def test_a_tree_has_the_agents_of_its_folders_and_their_variables(tmp_path: Path) -> None:
    tree = find_tree(tmp_path / "claw-pod.yml", {})
    assert not tree.is_compiled
    assert f"run `claw compile {tmp_path / 'claw-pod.yml'}`" in tree.missing
    for agent in ("two", "one"):
        (tree.context / agent).mkdir(parents=True)
    (tree.context / "no-folder").write_text("", encoding="utf-8")
    (tree.root / "agents" / "one").mkdir(parents=True)
    (tree.root / "agents" / "one" / "env").write_text("A=1=2\nB\n", encoding="utf-8")
    assert tree.is_compiled
    assert tree.agents() == ["one", "two"]
    assert tree.runner_env("one") == {"A": "1=2"}
    assert tree.runner_env("two") == {}
