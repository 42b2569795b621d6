"""``claw token``: one token on standard output, or one line with the reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from claw_cli.app import app
from claw_compile.compiler import compile_pod
from tests.compile.worked_pods import WORKED_PODS


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (fleet,) = (each for each in WORKED_PODS if each.name == "fleet")
    file = fleet.copy(tmp_path)
    assert compile_pod(file, fleet.environ).value is not None
    monkeypatch.chdir(file.parent)
    monkeypatch.delenv("CLAW_CONTEXT_ROOT", raising=False)
    return file


def token(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["token", *arguments])


@pytest.mark.requirement("cli:token")
def test_the_token_and_nothing_else_is_printed(
    pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = (pod.parent / ".claw-runtime" / "agents" / "triage-1" / "env").read_text(encoding="utf-8")
    first = token("triage-1")
    assert (first.exit_code, first.stderr) == (0, "")
    assert f"OPENAI_API_KEY={first.stdout}" in env
    assert first.stdout.startswith("triage-1:")
    monkeypatch.chdir(tmp_path)
    assert token("triage-1", "-f", str(pod)).stdout == first.stdout
    monkeypatch.setenv("CLAW_CONTEXT_ROOT", str(pod.parent / ".claw-runtime" / "context"))
    assert token("triage-1").stdout == first.stdout


@pytest.mark.requirement("cli:token")
@pytest.mark.usefixtures("pod")
@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ("triage", "did you mean 'triage-2'?"),
        ("nobody", "it has auditor, resolver, triage-0, triage-1, triage-2"),
        ("../agents/auditor", "it has auditor, resolver, triage-0, triage-1, triage-2"),
        ("a\x1b[2J\nb", "it has auditor, resolver, triage-0, triage-1, triage-2"),
        ("", "it has auditor, resolver, triage-0, triage-1, triage-2"),
    ],
)
def test_an_unknown_agent_is_one_line_with_those_there_are(agent: str, says: str) -> None:
    refused = token(agent)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == f"error: .claw-runtime has no agent {agent!a}: {says}\n"


@pytest.mark.requirement("cli:token")
def test_a_pod_that_was_not_compiled_is_one_line_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLAW_CONTEXT_ROOT", raising=False)
    refused = token("analyst")
    assert (refused.exit_code, refused.stdout) == (1, "")
    remedy = "run `claw compile claw-pod.yml`, or name another pod with -f"
    assert refused.stderr == f"error: there is no compiled tree at .claw-runtime: {remedy}\n"
    monkeypatch.setenv("CLAW_CONTEXT_ROOT", "/nowhere/context")
    refused = token("analyst")
    assert (refused.exit_code, refused.stdout) == (1, "")
    remedy = "correct CLAW_CONTEXT_ROOT, which names it, or unset it"
    assert refused.stderr == f"error: there is no compiled tree at /nowhere: {remedy}\n"


@pytest.mark.requirement("cli:token")
@pytest.mark.parametrize("content", [None, b"", b"CLLAMA_TOKEN=\n", b"\xff\xfe\x00garbage"])
def test_a_tree_without_the_token_is_one_line_with_the_remedy(
    pod: Path, content: bytes | None
) -> None:
    file = pod.parent / ".claw-runtime" / "agents" / "auditor" / "env"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    refused = token("auditor")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith(
        "error: .claw-runtime/agents/auditor/env holds no token: run `claw compile claw-pod.yml`"
    )
    assert refused.stderr.count("\n") == 1
