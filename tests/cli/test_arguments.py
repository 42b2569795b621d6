"""The arguments that verbs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.verbs import OF_A_PART, OF_A_POD, VERBS, run


@pytest.mark.requirement("cli:pod-argument")
def test_every_verb_about_a_pod_takes_its_file_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert {
        *OF_A_POD,
        *OF_A_PART,
        "audit",
        "certs",
        "doctor",
        "init",
        "mcp-stdio",
        "proxy",
        "schema",
        "state",
        "tools",
    } == set(VERBS)
    for verb in OF_A_POD:
        results = [run(verb), run(verb, "claw-pod.yml"), run(verb, "-f", "claw-pod.yml")]
        assert {(each.exit_code, each.output) for each in results} == {(1, results[0].output)}, verb
        assert "claw-pod.yml" in results[0].output or verb == "down"
        twice = run(verb, "one.yml", "-f", "two.yml")
        assert (twice.exit_code, twice.stdout) == (2, "")
        assert "the pod file is named twice" in twice.stderr
    for verb in OF_A_PART:
        results = [run(verb, "someone"), run(verb, "someone", "--file", "claw-pod.yml")]
        assert {(each.exit_code, each.output) for each in results} == {(1, results[0].output)}, verb
    assert list(tmp_path.iterdir()) == []
