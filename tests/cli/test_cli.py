"""``claw`` as a user runs it: exit codes, output, and the files that it writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fork_server import ROOT, run_claw

DESK = ROOT / "pods" / "trading-desk"
SECRETS = {
    "TRADING_API_TOKEN": "planted-trading-token",
    "CLAW_MASTER_SECRET": "planted-master-secret",
}


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    for part in ("descriptors", "agents", ".claw-discovered"):
        shutil.copytree(DESK / part, tmp_path / part)
    shutil.copy(DESK / "claw-pod.yml", tmp_path)
    return tmp_path


def run(directory: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command in ``directory``, with no more environment than it needs."""
    path = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=path | environ,
        capture_output=True,
        text=True,
        check=False,
    )


def claw(directory: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_claw(
        arguments, directory, {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environ}
    )


@pytest.mark.requirement("cli:compile")
def test_compile_writes_the_tree_and_says_what_each_agent_may_do(desk: Path) -> None:
    result = claw(desk, "compile", **SECRETS)
    assert result.returncode == 0, result.stderr
    assert result.stdout == (
        "analyst: 4 tools\n"
        "  journal.add_entry               write\n"
        "  journal.find_entries            read\n"
        "  trading-api.get_market_context  read\n"
        "  trading-api.get_quote           read\n"
        "executor: 6 tools\n"
        "  journal.find_entries            read\n"
        "  trading-api.get_market_context  read\n"
        "  trading-api.get_quote           read\n"
        "  trading-api.execute_trade       write\n"
        "  trading-api.get_order_history   read\n"
        "  trading-api.cancel_order        write\n"
        "journal: tools from the snapshot .claw-discovered/journal.claw-describe.json\n"
        "trading-api: tools from the descriptor descriptors/trading-api.claw-describe.json\n"
        "wrote .claw-runtime and compose.generated.yml\n"
    )
    assert names(desk / ".claw-runtime" / "context") == ["analyst", "executor"]


def test_the_module_compiles_as_the_command_does(desk: Path) -> None:
    assert claw(desk, "compile", "claw-pod.yml", "-o", "one", **SECRETS).returncode == 0
    assert run(desk, "-m", "claw_compile", "claw-pod.yml", "-o", "two", **SECRETS).returncode == 0
    assert run(desk, "-m", "claw_compile", "--nonsense").returncode == 2
    for file in ("context/analyst/tools.json", "agents/executor/env"):
        assert (desk / "one" / file).read_bytes() == (desk / "two" / file).read_bytes()


@pytest.mark.requirement("cli:diagnostic-format")
def test_a_mistake_is_shown_with_its_place_its_line_and_a_remedy(desk: Path) -> None:
    text = (desk / "claw-pod.yml").read_text(encoding="utf-8")
    (desk / "claw-pod.yml").write_text(
        text.replace("[get_market_context,", "[get_market_contxt,"), encoding="utf-8"
    )
    result = claw(desk, "check", **SECRETS)
    assert result.returncode == 1
    assert result.stdout.startswith(
        "claw-pod.yml:10:15: error[unknown-tool]: trading-api declares no tool "
        "'get_market_contxt'\n"
        "  10 |       allow: [get_market_contxt, get_quote]\n"
        "     |               ^^^^^^^^^^^^^^^^^  did you mean 'get_market_context'?\n"
        "  help: trading-api declares get_market_context, get_quote, "
    )
    assert result.stdout.endswith("1 error, 1 warning\n")


@pytest.mark.requirement("cli:nothing-written-on-error")
def test_an_error_writes_nothing_and_leaves_the_old_tree(desk: Path) -> None:
    assert claw(desk, "compile", **SECRETS).returncode == 0
    before = (desk / ".claw-runtime" / "context" / "analyst" / "metadata.json").read_bytes()
    (desk / "agents" / "analyst" / "AGENTS.md").unlink()
    listing = names(desk)
    result = claw(desk, "compile", **SECRETS)
    assert (result.returncode, result.stdout) == (1, "")
    assert "claw-pod.yml:18:14: error[unreadable-file]" in result.stderr
    assert (desk / ".claw-runtime" / "context" / "analyst" / "metadata.json").read_bytes() == before
    assert names(desk) == listing


def test_a_first_compile_with_an_error_makes_no_master_secret(desk: Path) -> None:
    result = claw(desk, "compile")
    assert result.returncode == 1
    assert "TRADING_API_TOKEN is not set: set it to any long random string" in result.stderr
    assert names(desk) == [".claw-discovered", "agents", "claw-pod.yml", "descriptors"]


@pytest.mark.requirement("cli:check-writes-nothing")
def test_check_writes_nothing_and_speaks_json(desk: Path) -> None:
    result = claw(desk, "check", "--format", "json", TRADING_API_TOKEN="planted-trading-token")
    assert result.returncode == 0
    report = json.loads(result.stdout)
    assert (report["errors"], report["warnings"]) == (0, 1)
    (found,) = report["diagnostics"]
    assert (found["code"], found["file"], found["line"], found["column"]) == (
        "write-granted-by-all",
        "claw-pod.yml",
        31,
        18,
    )
    assert names(desk) == [".claw-discovered", "agents", "claw-pod.yml", "descriptors"]


@pytest.mark.requirement("cli:exit-codes")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["check", "missing.yml"], 1),
        (["compile", "."], 1),
        (["check", "--bad"], 2),
        (["nonsense"], 2),
    ],
)
def test_errors_exit_1_and_wrong_usage_exits_2(desk: Path, arguments: list[str], code: int) -> None:
    result = claw(desk, *arguments, **SECRETS)
    assert result.returncode == code
    assert "Traceback" not in result.stderr


@pytest.mark.requirement("compile:master-secret")
def test_a_new_master_secret_is_announced_and_not_shown(desk: Path) -> None:
    result = claw(desk, "compile", TRADING_API_TOKEN="planted-trading-token")
    assert result.returncode == 0
    assert "made .claw-master: the pod's master secret" in result.stderr
    assert (desk / ".claw-master").read_text(
        encoding="utf-8"
    ).strip() not in result.stderr + result.stdout


@pytest.mark.requirement("compile:secrets-never-printed")
def test_no_secret_is_printed_or_written_where_it_does_not_belong(desk: Path) -> None:
    literal = (
        (desk / "claw-pod.yml")
        .read_text(encoding="utf-8")
        .replace(
            "    image: python:3.13-slim\n", "    environment: {HELD: planted-trading-token}\n", 1
        )
    )
    for name, text in (("held.yml", literal), ("cut.yml", literal + "  x: [\n"), ("fine.yml", "")):
        (desk / name).write_text(
            text or (desk / "claw-pod.yml").read_text(encoding="utf-8"), encoding="utf-8"
        )
        for verb in (["check"], ["check", "--format", "json"], ["compile"]):
            result = claw(desk, verb[0], name, *verb[1:], **SECRETS)
            assert not any(secret in result.stdout + result.stderr for secret in SECRETS.values())
    holders = {
        str(path.relative_to(desk / ".claw-runtime" / ".tree"))
        for path in (desk / ".claw-runtime" / ".tree").rglob("*")
        if path.is_file()
        and any(secret.encode() in path.read_bytes() for secret in SECRETS.values())
    }
    assert holders == {"context/analyst/tools.json", "context/executor/tools.json"}
    everybody_reads = (desk / "compose.generated.yml").read_text(encoding="utf-8")
    assert not any(secret in everybody_reads for secret in SECRETS.values())


def test_a_terminal_without_unicode_gets_no_traceback(desk: Path) -> None:
    (desk / "claw-pod.yml").write_text("x-claw: {pod: café}\n", encoding="utf-8")
    result = claw(desk, "check", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (1, "")
