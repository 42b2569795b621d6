"""Reports of diagnostics, safe for a terminal and without a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.compiler import check_pod
from claw_compile.diagnostics.report import as_json, as_text
from tests.compile.case import CASES, ENVIRON, case_files


@pytest.mark.requirement("compile:secrets-never-printed")
@pytest.mark.parametrize("case", case_files(), ids=lambda case: f"{case.parent.name}/{case.stem}")
def test_no_report_holds_the_value_of_a_variable(case: Path) -> None:
    diagnostics = check_pod(case, ENVIRON).diagnostics
    for report in (as_text(diagnostics), as_json(diagnostics)):
        assert ENVIRON["CASE_TOKEN"] not in report
        assert "never closed" not in report


def test_what_a_descriptor_says_moves_no_cursor() -> None:
    diagnostics = check_pod(CASES / "descriptor-checks.yml", ENVIRON).diagnostics
    assert "\\x1b[2J" in as_text(diagnostics)
    for each in diagnostics:
        assert "\x1b" not in each.message + "".join(note.message for note in each.notes) + (
            each.hint or ""
        )
