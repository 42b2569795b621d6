"""Every case file, compared with all its diagnostics."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from claw_compile import codes
from claw_compile.codes import CODES, page
from claw_compile.compiler import check_pod
from claw_compile.diagnostics.report import as_json, as_text
from tests.compile.case import ENVIRON, as_found, case_files, expectations

REPOSITORY = Path(__file__).parents[2]
ELSEWHERE = {
    "unwritable-output": "test_write.py",
    **dict.fromkeys(
        ("not-carried", "made-by-hand", "kubernetes-name", "no-image", "proxys-user"),
        "test_kubernetes.py",
    ),
    "duplicate-object": "test_kubernetes_names.py",
    **dict.fromkeys(
        ("shared-reach", "surface-redirected", "surface-partly-redirected"),
        "test_kubernetes_guard.py",
    ),
    **dict.fromkeys(("unshared-state", "transparent-gateway"), "test_kubernetes_gateway.py"),
    "unknown-agent": "test_lock.py",
}
"""Codes that no pod file can earn, and the test files with their cases."""


@pytest.mark.requirement("compile:diagnostics-on-the-line", "compile:all-errors-in-one-run")
@pytest.mark.parametrize("case", case_files(), ids=lambda case: f"{case.parent.name}/{case.stem}")
def test_a_case_earns_exactly_the_diagnostics_that_it_names(case: Path) -> None:
    diagnostics = check_pod(case, ENVIRON).diagnostics
    assert [str(each) for each in as_found(case, diagnostics)] == [
        str(each) for each in expectations(case)
    ]


@pytest.mark.requirement("compile:secrets-never-printed")
@pytest.mark.parametrize("case", case_files(), ids=lambda case: f"{case.parent.name}/{case.stem}")
def test_no_report_holds_the_value_of_a_variable(case: Path) -> None:
    diagnostics = check_pod(case, ENVIRON).diagnostics
    for report in (as_text(diagnostics), as_json(diagnostics)):
        assert ENVIRON["CASE_TOKEN"] not in report
        assert "never closed" not in report


def test_what_a_descriptor_says_moves_no_cursor() -> None:
    diagnostics = check_pod(
        Path(__file__).parent / "cases" / "descriptor-checks.yml", ENVIRON
    ).diagnostics
    assert "\\x1b[2J" in as_text(diagnostics)
    for each in diagnostics:
        assert "\x1b" not in each.message + "".join(note.message for note in each.notes) + (
            each.hint or ""
        )


def test_every_code_has_a_case() -> None:
    named = {expected.code for case in case_files() for expected in expectations(case)}
    for code, file in ELSEWHERE.items():
        assert f'"{code}"' in (Path(__file__).parent / file).read_text(encoding="utf-8")
    assert sorted(CODES.keys() - named - ELSEWHERE.keys()) == []
    assert sorted(named - CODES.keys()) == []


def test_diagnostics_are_sorted_by_place() -> None:
    for case in case_files():
        places = [
            (diagnostic.span.file, diagnostic.span.line, diagnostic.span.column)
            for diagnostic in check_pod(case, ENVIRON).diagnostics
        ]
        assert places == sorted(places)


@pytest.mark.requirement("compile:codes-are-documented")
def test_the_page_of_diagnostics_is_current() -> None:
    assert (REPOSITORY / "docs" / "diagnostics.md").read_text(encoding="utf-8") == page()


def test_every_code_is_named_in_one_way() -> None:
    assert [name for name in CODES if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)] == []


@pytest.mark.requirement("compile:codes-are-documented")
def test_no_code_takes_the_place_of_another_one() -> None:
    statements = ast.parse(Path(codes.__file__).read_text(encoding="utf-8")).body
    constants = Counter(
        target.id
        for statement in statements
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    )
    assert [name for name, times in constants.items() if times > 1] == []
