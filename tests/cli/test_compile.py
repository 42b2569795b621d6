"""``claw compile`` as a user runs it: its output, and the files that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import SECRETS, claw, names, run


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
