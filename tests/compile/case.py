"""A case: a pod file whose comments name the diagnostics of their lines.

``# E:19 unknown-tool`` is an error at column 19 of its line, ``# W:…`` a warning; several are
separated by commas. ``# in FILE E:3:5 code`` expects one in another file, since JSON takes no
comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from claw_compile.diagnostics.diagnostic import Diagnostic

CASES = Path(__file__).parent / "cases"
ENVIRON = {"CASE_TOKEN": "planted-secret-value"}
_HERE = re.compile(r"(?P<severity>[EW]):(?P<column>[0-9]+) (?P<code>[a-z0-9-]+)")
_THERE = re.compile(
    r"# in (?P<file>\S+) (?P<severity>[EW]):(?P<line>[0-9]+):(?P<column>[0-9]+) "
    r"(?P<code>[a-z0-9-]+)"
)


@dataclass(frozen=True, order=True)
class ExpectedDiagnostic:
    file: str
    line: int
    column: int
    severity: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column} {self.severity} {self.code}"


def case_files() -> list[Path]:
    return sorted([*CASES.glob("*.yml"), *CASES.glob("*/claw-pod.yml")])


def expectations(case: Path) -> list[ExpectedDiagnostic]:
    expected: list[ExpectedDiagnostic] = []
    for number, line in enumerate(case.read_text(encoding="utf-8").splitlines(), start=1):
        if there := _THERE.fullmatch(line.strip()):
            place = int(there["line"]), int(there["column"])
            expected.append(
                ExpectedDiagnostic(there["file"], *place, there["severity"], there["code"])
            )
        elif "# " in line:
            expected.extend(
                ExpectedDiagnostic(
                    case.name, number, int(here["column"]), here["severity"], here["code"]
                )
                for here in _HERE.finditer(line.partition("# ")[2])
            )
    return sorted(expected)


def as_found(case: Path, diagnostics: tuple[Diagnostic, ...]) -> list[ExpectedDiagnostic]:
    return sorted(
        ExpectedDiagnostic(
            str(Path(diagnostic.span.file).relative_to(case.parent)),
            diagnostic.span.line,
            diagnostic.span.column,
            diagnostic.code.severity[0].upper(),
            diagnostic.code.name,
        )
        for diagnostic in diagnostics
    )
