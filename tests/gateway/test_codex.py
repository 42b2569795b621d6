"""The real Codex, as its makers ship it, in a pod where every way out leads to the proxy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from tests.gateway.topology import RUNNER_UID, Topology
from tests.mcp_peers.peers import client_program
from tests.one_call import MODEL
from tests.sdks.responses.model import CaseModel


@pytest.mark.long
@pytest.mark.parametrize("every_form", ["compose"], indirect=True)
@pytest.mark.requirement("responses:codex", "responses:clients-fail", "transparent:unaware")
def test_codex_runs_its_own_tool_behind_a_hidden_call_repeats_what_failed_behind_a_write_and_remembers_all(
    pod: Topology, tmp_path: Path
) -> None:
    model = CaseModel()
    pod.provider.model = model
    pod.desk.routes |= {
        ("GET", "/balance"): JSONResponse({"usd": 1}),
        ("POST", "/trade"): JSONResponse({"traded": True}),
    }
    assert "There are three files for 1." in run_codex(pod, tmp_path, "case:native 1;")
    assert "Done with write for 1." in run_codex(pod, tmp_path, "resume", "--last", "case:write 1;")
    assert "I remember: balance, exec_command, trade." in run_codex(
        pod, tmp_path, "resume", "--last", "case:again 1;"
    )
    assert model.refused == []
    assert [request.path for request in pod.desk.received] == ["/balance", "/trade"]


def run_codex(pod: Topology, home: Path, *words: str) -> str:
    (home / ".codex").mkdir(exist_ok=True)
    (home / ".codex" / "config.toml").write_text(f'model = "{MODEL}"\n', encoding="utf-8")
    for at, _, files in os.walk(home):
        for name in ("", *files):
            os.chown(Path(at, name), RUNNER_UID, RUNNER_UID)
    command = [
        *client_program("codex"),
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        *words,
    ]
    pod.runner.opened_to_all(home)
    return pod.runs(
        "env", f"--chdir={home}", f"HOME={home}", f"PATH={os.environ['PATH']}", *command
    )
