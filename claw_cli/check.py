"""``claw check [POD] [--format text|json|sarif|github]``: report mistakes and write nothing.

Specification: docs/spec/compile.md "Verbs".
"""

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from claw_cli.arguments import File, Pod, pod_file
from claw_compile.compiler import check_pod, summary
from claw_compile.diagnostics.diagnostic import has_errors
from claw_compile.diagnostics.report import as_github, as_json, as_sarif, as_text, count


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


_WRITERS = {
    Format.TEXT: as_text,
    Format.JSON: as_json,
    Format.SARIF: as_sarif,
    Format.GITHUB: as_github,
}


def check(
    pod: Pod = None,
    file: File = None,
    output_format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TEXT,
) -> None:
    """Report every mistake of a pod; write nothing.

    Exit 0; 1 for errors, 2 for wrong usage.
    """
    result = check_pod(pod_file(pod, file), os.environ)
    sys.stdout.write(_WRITERS[output_format](result.diagnostics))
    if output_format is Format.TEXT:  # the other formats are read by programs
        totals = count(result.diagnostics)
        if totals:
            sys.stdout.write(f"{totals}\n")
        if result.value is not None:
            sys.stdout.write(summary(result.value))

    raise typer.Exit(1 if has_errors(result.diagnostics) else 0)
