"""The codes of diagnostics: each is proved by a case, and documented."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from claw_compile import codes
from claw_compile.codes import CODES, page
from tests.compile.case import case_files, expectations

REPOSITORY = Path(__file__).parents[2]
_KUBERNETES = "output/kubernetes"
ELSEWHERE = {
    "unwritable-output": "output/test_write.py",
    **dict.fromkeys(
        ("not-carried", "made-by-hand", "kubernetes-name", "no-image", "proxys-user"),
        f"{_KUBERNETES}/test_manifests.py",
    ),
    "duplicate-object": f"{_KUBERNETES}/test_objects_names.py",
    **dict.fromkeys(
        ("shared-reach", "surface-redirected", "surface-partly-redirected"),
        f"{_KUBERNETES}/test_network_guard.py",
    ),
    **dict.fromkeys(("unshared-state", "transparent-gateway"), f"{_KUBERNETES}/test_gateway.py"),
    "unknown-agent": "test_lock_update.py",
}
"""Codes that no pod file can earn, and the test files with their cases."""


def test_every_code_has_a_case() -> None:
    named = {expected.code for case in case_files() for expected in expectations(case)}
    for code, file in ELSEWHERE.items():
        assert f'"{code}"' in (Path(__file__).parent / file).read_text(encoding="utf-8")
    assert sorted(CODES.keys() - named - ELSEWHERE.keys()) == []
    assert sorted(named - CODES.keys()) == []


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
