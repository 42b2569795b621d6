"""``claw audit`` as an operator runs it: tables, JSON, CSV, a transcript, and a verdict."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from claw_audit.report import Report, document
from claw_compile.compiler import compile_pod
from tests.audit.proxy_files import ProxyFiles, call
from tests.cli.audited import DOCS, claw, words


@pytest.mark.requirement("cli:audit")
def test_json_is_one_document_and_its_members_are_those_of_the_page(history: str) -> None:
    result = claw("--json", "--status", "error", CLAW_SESSION_HISTORY_DIR=history)
    output = json.loads(result.stdout)
    assert output.keys() == document(Report(0)).keys()
    page = (DOCS / "audit.md").read_text(encoding="utf-8")
    for names in (
        output,
        output["turns"],
        output["used"],
        output["tools"][0],
        output["agents"][0],
        output["unread"],
        output["failures"][0],
    ):
        assert [
            name for name in names if f"`{name}`" not in page and f"`{name}[]`" not in page
        ] == []
    assert [(row["turn_id"], row["code"]) for row in output["calls"]] == [("turn_4f2d", "timeout")]
    assert result.stdout == claw("--history", history, "--json", "--status", "error").stdout


@pytest.mark.requirement("cli:audit")
def test_a_log_is_read_from_standard_input_without_history(files: ProxyFiles) -> None:
    files.ends("turn_1", error="provider_http_429", status_code=429)
    result = claw("--log", "-", given=files.log.read_bytes())
    assert (result.exit_code, words(result.stdout)[1]) == (0, "1 turn: 1 failed, 1 in the log only")


@pytest.mark.requirement("cli:audit")
def test_unreadable_input_is_named_on_standard_error(files: ProxyFiles) -> None:
    with files.file().open("ab") as file:
        file.write(b"\x1b[2J half\n")
    result = claw("--history", str(files.directory), "--csv")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (0, "1 line could not be read:")
    assert f"{files.file()}:3 (byte " in result.stderr.replace("\n", "")
    assert "\x1b" not in result.stderr
    gone = claw("--history", str(files.directory), "--log", str(files.log) + ".gone")
    assert (gone.exit_code, gone.stderr.splitlines()[-1]) == (
        1,
        f"error: {files.log}.gone: No such file or directory",
    )


@pytest.mark.requirement("cli:audit")
def test_missing_history_and_an_unknown_agent_are_reported(files: ProxyFiles) -> None:
    nobody = claw("--history", str(files.directory), "--agent", "nobody")
    assert (nobody.exit_code, nobody.stdout) == (2, "")
    assert nobody.stderr.endswith(": has no agent nobody; it has analyst, clerk\n")
    empty = claw("--history", str(files.directory / "analyst"))
    assert (empty.exit_code, empty.stdout) == (0, "0 turns\n")
    assert empty.stderr == f"note: {files.directory / 'analyst'} has no directory of an agent\n"


@pytest.mark.requirement("cli:audit-show")
def test_show_finds_one_turn_by_the_beginning_of_its_id(history: str) -> None:
    shown = claw("show", "4f1", "--history", history)
    assert (shown.exit_code, shown.stdout.splitlines()[0].split(" · ")[0]) == (0, "turn turn_4f1c")
    assert "model → cllama: desk.trade" in shown.stdout
    assert (
        json.loads(claw("show", "9", "--history", history, "--json").stdout)["turn_id"]
        == "turn_9aaa"
    )
    both, none = claw("show", "4f", "--history", history), claw("show", "5", "--history", history)
    assert (both.exit_code, both.stdout, both.stderr) == (
        2,
        "",
        "error: 4f: several turns begin so: turn_4f1c, turn_4f2d\n",
    )
    assert (none.exit_code, none.stderr) == (2, "error: 5: no turn of history begins so\n")


@pytest.mark.requirement("cli:audit-show")
def test_show_prints_the_last_attempt_after_the_headlines_of_the_others(files: ProxyFiles) -> None:
    files.turn("turn_b1", error="runner_left", status_code=499, ts="2026-01-02T00:00:00Z")
    files.turn("turn_b1", call(), resumed=True, ts="2026-01-02T00:00:05Z")
    shown = claw("show", "b1", "--history", str(files.directory)).stdout.splitlines()
    assert shown[0] == (
        "an earlier attempt: turn turn_b1 · error 499 runner_left · agent analyst · "
        "2026-01-02T00:00:00Z"
    )
    assert shown[1] == "turn turn_b1 · ok 200 · agent analyst · 2026-01-02T00:00:05Z"


@pytest.mark.requirement("cli:audit-verify")
def test_the_verdict_names_the_first_broken_line_and_is_the_exit_code(files: ProxyFiles) -> None:
    whole = claw("verify", "--history", str(files.directory))
    note = (
        "note: without --log, whole lines that are missing at the beginning or the end of "
        "history do not show\n"
    )
    assert whole.exit_code == 0
    assert (
        whole.stdout == f"analyst: 2 lines, the chain holds\nclerk: 1 line, the chain holds\n{note}"
    )
    files.file().write_bytes(files.file().read_bytes().replace(b"timeout", b"success"))
    broken = claw("verify", "--history", str(files.directory))
    place = f"{files.file()}:2 (byte {len(files.lines()[0])})"
    assert (broken.exit_code, broken.stdout.splitlines()[:2]) == (
        1,
        ["analyst: 2 lines, BROKEN", f"  {place}: was edited: its hash does not match its bytes"],
    )
    output = json.loads(claw("verify", "--history", str(files.directory), "--json").stdout)
    assert (output["holds"], [chain["broken"] for chain in output["chains"]]) == (False, [1, 0])


@pytest.mark.requirement("cli:audit-verify", "audit:verify-anchor")
def test_turns_that_history_lacks_are_listed(tmp_path: Path) -> None:
    files = ProxyFiles(tmp_path, 2500)
    for number in range(40):
        files.logged(f"turn_{1 + number:032x}")
    arguments = ("verify", "--history", str(files.directory), "--log", str(files.log))
    broken = claw(*arguments)
    _, first, note, *more = broken.stdout.splitlines()
    left = len(files.lines()) + len(files.lines(name="history.jsonl.1"))
    assert broken.exit_code == 1
    assert f"records {40 - left} lines that are missing, which the proxy rotated away" in first
    assert len(more) == 11
    assert more[0].startswith(f"  missing: turn_{1:032x} of analyst at 20")
    assert more[10] == f"  missing: {40 - left - 10} more, rotated"
    assert "rotated away: the chain holds from here on" in note
    (chain,) = json.loads(claw(*arguments, "--json").stdout)["chains"]
    assert [(each["why"], each["count"], len(each["turns"])) for each in chain["missing"]] == [
        ("rotated", 40 - left, 10)
    ]


@pytest.mark.requirement("cli:audit")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "no history is named: give --history DIR"),
        (("verify",), 2, "no history is named"),
        (("--history", "gone"), 1, "gone: No such file or directory"),
        (("--log", "x", "--since", "yesterday"), 2, "--since: yesterday is no time"),
        (("--log", "x", "--json", "--csv"), 2, "only one of them"),
        (("verify", "--history", ".", "--agent", "x\x1b[2J"), 2, "--agent: x�[2J is no name"),
        (("show", "\udcff", "--history", "."), 2, "TURN: � is no name"),
        (("nowhere.yml", "--log", "x"), 1, "the pod was never compiled"),
    ],
)
def test_wrong_usage_is_one_line_with_the_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = claw(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def pod_of(home: Path) -> Path:
    tools = [
        {"name": name, "description": name, "inputSchema": {"type": "object"}}
        for name in ("look", "sell")
    ]
    for tool in tools:
        tool["http"] = {"method": "POST", "path": f"/{tool['name']}"}  # type: ignore[assignment]
    (home / "api.json").write_text(json.dumps({"version": 2, "tools": tools}), encoding="utf-8")
    (home / "AGENTS.md").write_text("Be good.\n", encoding="utf-8")
    pod: dict[str, Any] = {
        "x-claw": {"pod": "desk", "cllama-defaults": {"proxy": "passthrough"}},
        "services": {
            "analyst": {
                "image": "a:1",
                "x-claw": {"agent": "AGENTS.md", "tools": [{"service": "api", "allow": ["look"]}]},
            },
            "api": {
                "image": "b:1",
                "x-claw": {"describe-file": "api.json", "base-url": "http://api:1"},
            },
        },
    }
    (home / "claw-pod.yml").write_text(json.dumps(pod), encoding="utf-8")
    assert compile_pod(home / "claw-pod.yml", {}).value is not None
    return home / "claw-pod.yml"


@pytest.mark.requirement("audit:withheld")
def test_a_pod_adds_its_tools_that_were_not_shown_and_its_agents(files: ProxyFiles) -> None:
    pod = str(pod_of(files.directory.parent))
    output = json.loads(claw(pod, "--history", str(files.directory), "--json").stdout)
    assert output["withheld"] == [
        {"agent": "analyst", "tool": "api.sell", "why": "not granted", "turns": None}
    ]
    nobody = claw(pod, "--history", str(files.directory), "--agent", "nobody")
    assert (nobody.exit_code, nobody.stderr) == (
        2,
        f"error: {pod}: has no agent nobody; it has analyst\n",
    )


@pytest.mark.requirement("cli:audit")
@pytest.mark.parametrize(("megabytes", "shown"), [(1, False), (80, True)])
def test_progress_is_shown_on_a_terminal_for_large_files_only(
    files: ProxyFiles, megabytes: int, *, shown: bool
) -> None:
    with files.file().open("ab") as file:
        file.truncate(megabytes << 20)
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-c",
        "from claw_cli.app import main; main()",
        "audit",
        "--history",
        str(files.directory),
    ]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=environ, check=False)
    os.close(theirs)
    said = b""
    with suppress(
        OSError
    ):  # raised at the end of the output, since nobody has the terminal open any more
        while data := os.read(ours, 65536):
            said += data
    os.close(ours)
    assert (done.returncode, b"reading" in said, b"\x1b" in done.stdout) == (0, shown, False)


@pytest.mark.requirement("cli:audit")
def test_the_commands_of_the_page_do_what_it_says(
    files: ProxyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = files.directory.parent
    pod_of(home)
    files.ends("turn_4f1c", history_hash=json.loads(files.lines()[0])["hash"])
    monkeypatch.chdir(home)
    page = (DOCS / "audit.md").read_text(encoding="utf-8")
    commands = [
        line.partition("#")[0].split()[2:]
        for line in page.splitlines()
        if line.startswith("    claw audit")
    ]
    assert len(commands) == 5
    for arguments in commands:
        result = claw(*arguments, CLAW_SESSION_HISTORY_DIR="history")
        assert (result.exit_code, result.stderr, bool(result.stdout)) == (0, "", True), arguments
