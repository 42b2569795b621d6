"""Diagnostics: their order."""

from __future__ import annotations

from claw_compile.compiler import check_pod
from tests.compile.case import ENVIRON, case_files


def test_diagnostics_are_sorted_by_place() -> None:
    for case in case_files():
        places = [
            (diagnostic.span.file, diagnostic.span.line, diagnostic.span.column)
            for diagnostic in check_pod(case, ENVIRON).diagnostics
        ]
        assert places == sorted(places)
