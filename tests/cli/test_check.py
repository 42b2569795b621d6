"""``claw check``: its report, its exit code, and that it writes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import SECRETS, claw, names


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
        32,
        18,
    )
    assert names(desk) == [".claw-discovered", "agents", "claw-pod.yml", "descriptors"]


def test_a_terminal_without_unicode_gets_no_traceback(desk: Path) -> None:
    (desk / "claw-pod.yml").write_text("x-claw: {pod: café}\n", encoding="utf-8")
    result = claw(desk, "check", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (1, "")
