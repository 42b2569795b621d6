"""Tables and CSV of ``claw audit``: every value, and none that a terminal or spreadsheet obeys."""

from __future__ import annotations

import csv
import re
from io import StringIO

import pytest

from claw_audit.turns import RecordedCall
from tests.audit.proxy_files import ProxyFiles, call
from tests.cli.audited import DOCS, EVIL, claw, words


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


@pytest.mark.requirement("live:audit")
def test_the_time_to_the_first_content_stands_behind_that_of_the_turns(files: ProxyFiles) -> None:
    files.ends("turn_4f1c", stream_mode="live", ttft_ms=20)
    output = words(claw("--history", str(files.directory), "--log", str(files.log)).stdout)
    assert any(
        line.endswith("(p95); live ones showed content after 20 ms (p50), 20 ms (p95)")
        for line in output
    )


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
