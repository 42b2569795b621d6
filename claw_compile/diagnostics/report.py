"""Diagnostics as text for people and as JSON for programs (docs/spec/compile.md "Diagnostics").

Rules. A line of the file is shown without the values of environment variables, and of what is called a password or a token, and
without what looks like a key: they may be credentials. Only a bare ``${NAME}`` stays readable.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from claw_compile.diagnostics.diagnostic import Diagnostic, Span
from claw_contract.known_providers import KEY_SHAPE

_CONFIDENTIAL = r"(?:\w+[-_])?(?:password|passwd|token|api[-_]?key|private[-_]?key)|\w+[-_]secret"
_ASSIGNMENT = re.compile(rf"""(?P<name>\b(?:[A-Z][A-Z0-9_]*|{_CONFIDENTIAL})["']?\s*[:=]\s*)(?P<value>\S.*)$""")
_USER = re.compile(r"(?<=://)[^/\s@]*(?=@)")
_REFERENCE = re.compile(r"""["']?\$(\w+|\{\w+(:?\?[^{}]*)?\})["']?[\s,}\]]*(#.*)?""")
_MASK = "•"


def plain_streams() -> None:
    """Make standard output and error replace characters that the terminal does not have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def as_text(diagnostics: Iterable[Diagnostic]) -> str:
    """Return each diagnostic with its line, carets under its place, and its notes and help."""
    return "".join(f"{line}\n" for diagnostic in diagnostics for line in _lines(diagnostic))


def as_json(diagnostics: Iterable[Diagnostic]) -> str:
    """Return ``{"diagnostics": […], "errors": n, "warnings": n}``; places are 1-based, ``end_column`` exclusive."""
    every = tuple(diagnostics)
    errors = sum(each.is_error for each in every)
    data = {"diagnostics": [_data(each) for each in every], "errors": errors, "warnings": len(every) - errors}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def count(diagnostics: Iterable[Diagnostic]) -> str:
    """Return ``2 errors, 1 warning``; empty when there is nothing to count."""
    every = tuple(diagnostics)
    errors = sum(each.is_error for each in every)
    numbers = (("error", errors), ("warning", len(every) - errors))
    return ", ".join(f"{number} {name}{'s' if number > 1 else ''}" for name, number in numbers if number)


def _lines(diagnostic: Diagnostic) -> Iterator[str]:
    yield f"{diagnostic.span}: {diagnostic.code.severity}[{diagnostic.code.name}]: {diagnostic.message}"
    if diagnostic.span.text:
        yield from _excerpt(diagnostic.span, diagnostic.hint)
    elif diagnostic.hint:
        yield f"  {diagnostic.hint}"
    for note in diagnostic.notes:
        yield f"{note.span}: note: {note.message}"
    if diagnostic.help:
        first, *rest = diagnostic.help.splitlines()
        yield f"  help: {first}"
        yield from (f"        {line}" for line in rest)


def _excerpt(span: Span, hint: str | None) -> Iterator[str]:
    number = str(span.line)
    shown = "".join(char if char.isprintable() else " " for char in _mask(span.text)).rstrip()
    carets = "^" * max(span.end_column - span.column, 1)
    yield f"  {number} | {shown}"
    yield f"  {' ' * len(number)} | {' ' * (span.column - 1)}{carets}{f'  {hint}' if hint else ''}"


def _mask(line: str) -> str:
    """Hide what follows ``NAME:`` or ``NAME=`` in a line; the length stays, so that carets fit.

    >>> _masked("    API_TOKEN: abc")
    '    API_TOKEN: •••'
    """
    for shape in (KEY_SHAPE, _USER):
        line = shape.sub(lambda match: _MASK * len(match[0]), line)
    match = _ASSIGNMENT.search(line)
    if match is None or _REFERENCE.fullmatch(match["value"]):
        return line
    return line[: match.start("value")] + _MASK * len(match["value"])


def _data(diagnostic: Diagnostic) -> dict[str, Any]:
    return {
        "code": diagnostic.code.name,
        "severity": diagnostic.code.severity,
        "message": diagnostic.message,
        **_span_data(diagnostic.span),
        "hint": diagnostic.hint,
        "help": diagnostic.help,
        "notes": [{"message": note.message, **_span_data(note.span)} for note in diagnostic.notes],
    }


def _span_data(span: Span) -> dict[str, Any]:
    return {"file": span.file, "line": span.line, "column": span.column, "end_column": span.end_column}
