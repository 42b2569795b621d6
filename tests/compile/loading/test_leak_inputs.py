"""The texts of an agent's container that are searched for credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.compiler import check_pod, compile_pod
from tests.compile.leaking import MASTER, PROXY_KEY, leaks


@pytest.mark.requirement("compile:own-token-is-no-key")
def test_an_agents_own_env_file_may_be_named_before_it_is_there_and_anothers_never(
    tmp_path: Path,
) -> None:
    mine, theirs = (
        "env_file: .claw-runtime/agents/one/env",
        "env_file: .claw-runtime/agents/two/env",
    )
    assert leaks(tmp_path, mine) == []
    assert compile_pod(tmp_path / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER}).value is not None
    assert leaks(tmp_path, mine) == []
    assert set(leaks(tmp_path, theirs)) == {
        "token-visible-to-agent: holds the token of the agent two"
    }


@pytest.mark.requirement("compile:starvation")
def test_what_lies_in_the_home_of_who_compiles_is_found_there(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(PROXY_KEY, encoding="utf-8")
    home = {"HOME": str(tmp_path)}
    words = ["token-visible-to-agent: holds the proxy's OPENAI_API_KEY"]
    assert leaks(tmp_path, "secrets: [mine]", "secrets: {mine: {file: ~/key}}\n", **home) == words
    assert leaks(tmp_path, "volumes: ['~/key:/key']", **home) == words
    pod = tmp_path / "claw-pod.yml"
    pod.write_text(pod.read_text(encoding="utf-8").replace("~/key:", "~:"), encoding="utf-8")
    assert [each.code.name for each in check_pod(pod, home).diagnostics] == ["private-mount"]
