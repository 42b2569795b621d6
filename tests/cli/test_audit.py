"""``claw audit`` as an operator runs it: tables, JSON, CSV, a transcript, and a verdict."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from claw_audit.report import Report, document
from claw_audit.turns import RecordedCall
from claw_cli.app import app
from claw_compile.compiler import compile_pod
from tests.audit.proxy_files import ProxyFiles, call

DOCS = Path(__file__).parents[2] / "docs"
EVIL = "\x1b[2J\x9b31m=cmd|'/c calc'!A1\u202e"


def claw(*arguments: str, given: bytes = b"", **environ: str) -> Result:
    runner = CliRunner()
    return runner.invoke(
        app, ["audit", *arguments], env={"CLAW_SESSION_HISTORY_DIR": "", **environ}, input=given
    )


@pytest.fixture
def files(tmp_path: Path) -> ProxyFiles:
    """Return two turns of ``analyst`` and one of ``clerk``, which failed after a failed call."""
    home = ProxyFiles(tmp_path)
    home.turn(
        "turn_4f1c",
        call(ms=10),
        call("desk.trade", effect="write", ms=40),
        ts="2026-01-01T00:00:00Z",
    )
    failed = call("desk.trade", "timeout", effect="write", ms=90, status_code=504)
    home.turn("turn_4f2d", failed, ts="2026-01-01T00:00:01Z", error="provider_http_500")
    home.turn("turn_9aaa", agent="clerk", ts="2026-01-01T00:00:02Z")
    return home


@pytest.fixture
def history(files: ProxyFiles) -> str:
    return str(files.directory)


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


@pytest.mark.requirement("cli:audit")
def test_tables_show_agents_tools_failures_tokens_and_cost(history: str) -> None:
    result = claw("--history", history)
    assert (result.exit_code, result.stderr) == (0, "")
    output = words(result.stdout)
    assert output[:3] == [
        "from 2026-01-01T00:00:00.000Z to 2026-01-01T00:00:02.000Z",
        "3 turns: 2 ok, 1 failed",
        "30 tokens in (3 cached), 6 out, $1.5000; turns took 100 ms (p50), 100 ms (p95)",
    ]
    assert "analyst 2 1 1 0 3 1 100 100 20 4 1.0000" in output
    assert "desk.trade write 2 1 2 0 40 90" in output
    assert "timeout 1" in output
    assert "2026-01-01T00:00:01Z analyst turn_4f2d desk.trade timeout 504" in output


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
def test_csv_has_every_call_and_its_columns_are_those_of_the_page(history: str) -> None:
    result = claw("--history", history, "--csv")
    rows = list(csv.DictReader(StringIO(result.stdout)))
    assert [(row["turn_id"], row["tool"], row["latency_ms"], row["ran"]) for row in rows] == [
        ("turn_4f1c", "desk.balance", "10", "true"),
        ("turn_4f1c", "desk.trade", "40", "true"),
        ("turn_4f2d", "desk.trade", "90", "true"),
    ]
    page = (DOCS / "audit.md").read_text(encoding="utf-8").partition("## --csv")[2]
    assert re.findall(r"`(\w+)`", page)[: len(RecordedCall.__struct_fields__)] == list(rows[0])


@pytest.mark.requirement("cli:audit-safe")
def test_names_from_a_model_are_harmless_in_a_terminal_and_in_a_spreadsheet(
    files: ProxyFiles,
) -> None:
    for name in (EVIL, "=1+1", "+1", "-1", "@sum", "\t=1", "\r=1"):
        files.turn(
            "turn_evil", call(name, "unknown_tool", ran=False), agent="evil", error=f"{name}\n"
        )
        files.events.event("intervention", name, turn_id=name, intervention=name)
    log, history = str(files.log), str(files.directory)
    outputs = [
        claw("--history", history, "--log", log, *how).stdout
        for how in ((), ("--json",), ("--csv",))
    ]
    outputs += [claw("show", "turn_evil", "--history", history).stdout]
    for output in outputs:
        assert [sign for sign in output if not (sign.isprintable() or sign == "\n")] == []
    cells = [cell for row in csv.reader(StringIO(outputs[2])) for cell in row]
    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))] == []
    assert "'=1+1" in cells


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
