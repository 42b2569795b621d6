"""``claw plan``: the changes that a compile would make, reported without making them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import SECRETS, claw


def replaced(pod: Path, old: str, new: str) -> None:
    text = pod.read_text(encoding="utf-8")
    assert old in text
    pod.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.requirement("cli:plan")
def test_before_the_first_compile_all_is_gained_and_nothing_is_written(desk: Path) -> None:
    before = sorted(desk.rglob("*"))
    result = claw(desk, "plan", **SECRETS)
    assert result.returncode == 2
    assert result.stdout.startswith(
        "authority\n"
        "  + analyst   journal.add_entry               write  ! gains a write\n"
        "  + analyst   journal.find_entries            read\n"
        "  + analyst   trading-api.get_market_context  read\n"
        "  + analyst   trading-api.get_quote           read\n"
        "  + executor  journal.find_entries            read\n"
        "  + executor  trading-api.cancel_order        write  ! gains a write\n"
    )
    assert "  + context/analyst/tools.json\n" in result.stdout
    assert sorted(desk.rglob("*")) == before


@pytest.mark.requirement("cli:plan")
def test_behind_a_compile_nothing_would_change(desk: Path) -> None:
    assert claw(desk, "compile", **SECRETS).returncode == 0
    result = claw(desk, "plan", **SECRETS)
    assert (result.returncode, result.stdout) == (0, "nothing would change in .claw-runtime\n")


@pytest.mark.requirement("cli:plan")
def test_who_gains_or_loses_what_is_told_by_agent_and_tool(desk: Path) -> None:
    assert claw(desk, "compile", **SECRETS).returncode == 0
    replaced(desk / "claw-pod.yml", "allow: all", "allow: [cancel_order]")
    replaced(
        desk / "claw-pod.yml",
        "          allow: [add_entry]\n",
        "          allow: [add_entry]\n        - {service: trading-api, allow: [execute_trade]}\n",
    )
    replaced(
        desk / "descriptors" / "trading-api.claw-describe.json",
        "Get the last price",
        "Look up the last price",
    )
    result = claw(desk, "plan", "--json", **SECRETS)
    assert result.returncode == 2
    plan = json.loads(result.stdout)
    assert [
        (
            each["agent"],
            each["tool"].partition(".")[2],
            each["change"],
            each["parts"],
            each["gains_write"],
        )
        for each in plan["tools"]
    ] == [
        ("analyst", "execute_trade", "gained", [], True),
        ("analyst", "get_quote", "changed", ["description"], False),
        ("executor", "execute_trade", "lost", [], False),
        ("executor", "get_order_history", "lost", [], False),
        ("executor", "get_quote", "changed", ["description"], False),
    ]
    changed = {each["path"] for each in plan["files"]}
    assert {
        "context/analyst/tools.json",
        "context/executor/tools.json",
        "compose.generated.yml",
    } <= changed
    assert "agents/analyst/env" not in changed


@pytest.mark.requirement("cli:plan")
def test_a_damaged_tree_is_a_change_and_a_pod_with_errors_is_none(
    desk: Path,
) -> None:
    assert claw(desk, "compile", **SECRETS).returncode == 0
    (desk / ".claw-runtime" / "context" / "analyst" / "tools.json").write_text(
        "{", encoding="utf-8"
    )
    result = claw(desk, "plan", **SECRETS)
    assert result.returncode == 2
    assert "  + analyst  trading-api.get_quote           read\n" in result.stdout
    assert "executor" not in result.stdout
    result = claw(desk, "plan")
    assert (result.returncode, result.stdout) == (1, "")
    assert "error[unset-variable]" in result.stderr


@pytest.mark.requirement("cli:plan")
def test_no_credential_is_in_a_plan(desk: Path) -> None:
    for arguments in ((), ("--json",)):
        result = claw(desk, "plan", *arguments, **SECRETS)
        for secret in SECRETS.values():
            assert secret not in result.stdout + result.stderr
