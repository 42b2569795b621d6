"""Every case file, compared with all its diagnostics."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.compiler import check_pod
from tests.compile.case import ENVIRON, as_found, case_files, expectations


@pytest.mark.requirement("compile:diagnostics-on-the-line", "compile:all-errors-in-one-run")
@pytest.mark.parametrize("case", case_files(), ids=lambda case: f"{case.parent.name}/{case.stem}")
def test_a_case_earns_exactly_the_diagnostics_that_it_names(case: Path) -> None:
    diagnostics = check_pod(case, ENVIRON).diagnostics
    assert [str(each) for each in as_found(case, diagnostics)] == [
        str(each) for each in expectations(case)
    ]
