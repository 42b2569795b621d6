"""Requests through the real mitmdump, and the figures that ``claw audit`` then reports of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse
from typer.testing import CliRunner, Result

from claw_cli.app import app
from tests.peers import calls, text
from tests.proxy.pod import Pod, headers, pod_at
from tests.waiting import eventually


def ask(pod: Pod, words: str, agent: str = "analyst", **more: Any) -> int:
    body = {"model": "gpt-test", "messages": [{"role": "user", "content": words}], **more}
    return httpx2.post(
        f"{pod.url}/v1/chat/completions", headers=headers(pod, agent), json=body, timeout=30
    ).status_code


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """Yield a pod after seven requests of ``analyst`` (five mediated turns, one in
    two attempts) and one of ``clerk``.
    """
    with pod_at(tmp_path_factory.mktemp("pod")) as pod:
        pod.agent("analyst", pod.tool("balance"), pod.tool("trade", "POST"))
        pod.agent("clerk")
        pod.start()
        pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 1})
        pod.service.routes["POST", "/trade"] = JSONResponse({"order": 1})
        pod.provider.says(calls(("c1", "desk__balance", {})), text("One dollar."))
        assert ask(pod, "How much?") == 200
        pod.provider.says(
            calls(("c1", "desk__balance", {})),
            calls(("c2", "desk__balance", {})),
            text("Still one."),
        )
        assert ask(pod, "And now?") == 200
        pod.provider.says(calls(("c1", "desk__nope", {})), text("There is no such thing."))
        assert ask(pod, "Try it") == 200
        refused = JSONResponse({"error": {"message": "no"}}, 400)
        pod.provider.says(calls(("c1", "desk__trade", {})), refused)
        assert ask(pod, "Buy") == 400
        pod.provider.says(text("Bought."))
        assert ask(pod, "Buy") == 200  # the same turn goes on
        pod.provider.says(refused)
        assert ask(pod, "Fail") == 400
        pod.provider.says(text("No tools."))
        assert ask(pod, "Hello", tool_choice="none") == 200
        pod.provider.says(text("Hello."))
        assert ask(pod, "Hello", "clerk") == 200
        eventually(
            lambda: len([one for one in pod.log() if "total_rounds" in one]) == 8,
            "all ends are logged",
        )
        yield pod


def claw(pod: Pod, *arguments: str, log: bool = True) -> Result:
    log_file = pod.home / "audited.log"
    log_file.write_text("".join(json.dumps(event) + "\n" for event in pod.log()), encoding="utf-8")
    named = ["--history", str(pod.home / "history"), *(["--log", str(log_file)] if log else [])]
    result = CliRunner().invoke(app, ["audit", *arguments, *named])
    assert result.stderr == ""
    return result


def counted(result: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {
        tool["tool"]: tuple(tool[name] for name in ("calls", "failed", "ran", "duplicates"))
        for tool in result["tools"]
    }


@pytest.mark.requirement("audit:real")
@pytest.mark.parametrize("log", [False, True])
def test_what_audit_counts_of_a_real_run_is_what_happened(worked: Pod, *, log: bool) -> None:
    result = json.loads(claw(worked, "--json", log=log).stdout)
    turns = result["turns"]
    assert [
        turns[name] for name in ("total", "ok", "failed", "resumed", "attempts", "only_in_log")
    ] == [7, 6, 1, 1, 8, 0]
    assert counted(result) == {
        "desk.balance": (3, 1, 2, 1),
        "desk__nope": (1, 1, 0, 0),
        "desk.trade": (1, 0, 1, 0),
    }
    ran = len(worked.service.received)
    assert sum(tool["ran"] for tool in result["tools"]) == ran == 3
    history = worked.history("analyst") + worked.history("clerk")
    for total, name in (("tokens_in", "prompt_tokens"), ("tokens_out", "completion_tokens")):
        assert result["used"][total] == sum(line["usage"][name] for line in history) > 0
    assert {one["name"]: one["count"] for one in result["call_errors"]} == {
        "duplicate_tool_call": 1,
        "unknown_tool": 1,
    }
    interventions = {one["name"]: one["count"] for one in result["interventions"]}
    assert interventions.pop("tool_choice_none", 1) == 1
    assert interventions == {
        "duplicate_managed_tool_call:desk.balance": 1,
        "unknown_tool_rejected:desk__nope": 1,
    }
    assert [agent["turns"]["total"] for agent in result["agents"]] == [6, 1]
    withheld = [(row["tool"], row["why"], row["turns"]) for row in result["withheld"]]
    assert withheld == [
        ("desk.balance", "tool_choice_none", 1),
        ("desk.trade", "tool_choice_none", 1),
    ]


@pytest.mark.requirement("audit:real")
def test_the_chain_of_a_real_run_holds_and_its_log_records_every_line(
    worked: Pod, tmp_path: Path
) -> None:
    verdict = claw(worked, "verify")
    assert (verdict.exit_code, verdict.stdout) == (
        0,
        "analyst: 7 lines, the chain holds\nclerk: 1 line, the chain holds\n",
    )
    cut = tmp_path / "history" / "clerk"
    cut.mkdir(parents=True)
    (cut / "history.jsonl").touch()
    cut_off = CliRunner().invoke(
        app,
        [
            "audit",
            "verify",
            "--agent",
            "clerk",
            "--history",
            str(cut.parent),
            "--log",
            str(worked.home / "audited.log"),
        ],
    )
    assert (cut_off.exit_code, "records 1 line that is missing" in cut_off.stdout) == (1, True)


@pytest.mark.requirement("audit:pushed-out", "history:free-turns-short")
def test_an_agent_that_pushes_its_history_out_is_found_by_the_log(
    running_of_small_files: Pod,
) -> None:
    pod = running_of_small_files
    pod.provider.says(text("Done."))
    assert ask(pod, "A deed that nobody shall see") == 200
    wait_for_ends(pod, 1)
    (deed,) = pod.history("analyst")
    refused = 0
    while any(line["turn_id"] == deed["turn_id"] for line in every_line(pod)):
        pod.provider.says(JSONResponse({"error": {"message": "no"}}, 400))
        assert ask(pod, "x" * 250_000) == 400
        refused += 1
        wait_for_ends(pod, 1 + refused)
    assert refused > 10  # a refused request is short in history
    assert claw(pod, "verify", log=False).exit_code == 0
    verdict = claw(pod, "verify")
    assert verdict.exit_code == 1
    assert f"missing: {deed['turn_id']} of analyst at " in verdict.stdout


def wait_for_ends(pod: Pod, number: int) -> None:
    eventually(
        lambda: len([one for one in pod.log() if "total_rounds" in one]) == number,
        "all ends are logged",
    )


def every_line(pod: Pod) -> list[dict[str, Any]]:
    files = (pod.home / "history" / "analyst").iterdir()
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


@pytest.fixture
def running_of_small_files(pod: Pod) -> Iterator[Pod]:
    """Yield a pod whose history has room for some twenty refused requests."""
    pod.environment |= {
        "CLLAMA_SESSION_HISTORY_MAX_BYTES": "60000",
        "CLLAMA_SESSION_HISTORY_FILES": "2",
    }
    pod.agent("analyst")
    pod.start()
    yield pod
    pod.stop()


@pytest.mark.requirement("audit:real")
def test_show_prints_the_transcript_of_a_real_turn(worked: Pod) -> None:
    (failed,) = {line["turn_id"] for line in worked.history("analyst") if line.get("resumed")}
    shown = claw(worked, "show", failed.removeprefix("turn_")[:12], log=False).stdout
    assert shown.startswith(f"an earlier attempt: turn {failed} · error 400")
    for words in ("Buy", "model → cllama: desk.trade", '{"order": 1}', "Bought."):
        assert words in shown
    assert worked.token("analyst") not in shown
