"""Diagnostics as text for people; as JSON and SARIF 2.1.0 for programs; as workflow
commands of GitHub Actions.

Rules. A line of the file is shown without the values of environment variables, and of what is
called a password or a token, and without what looks like a key: they may be credentials. Only a
bare ``${NAME}`` stays readable.
"""

import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from claw_compile.diagnostics.diagnostic import Code, Diagnostic, Span
from claw_contract.known_providers import KEY_SHAPE

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_CONFIDENTIAL = r"(?:\w+[-_])?(?:password|passwd|token|api[-_]?key|private[-_]?key)|\w+[-_]secret"
_ASSIGNMENT = re.compile(
    rf"""(?P<name>\b(?:[A-Z][A-Z0-9_]*|{_CONFIDENTIAL})["']?\s*[:=]\s*)(?P<value>\S.*)$"""
)
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
    """Return ``{"diagnostics": […], "errors": n, "warnings": n}``; places are
    1-based, ``end_column`` exclusive.
    """
    every = tuple(diagnostics)
    errors = sum(each.is_error for each in every)
    data = {
        "diagnostics": [_data(each) for each in every],
        "errors": errors,
        "warnings": len(every) - errors,
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def count(diagnostics: Iterable[Diagnostic]) -> str:
    """Return ``2 errors, 1 warning``; empty when there is nothing to count."""
    every = tuple(diagnostics)
    errors = sum(each.is_error for each in every)
    numbers = (("error", errors), ("warning", len(every) - errors))
    return ", ".join(
        f"{number} {name}{'s' if number > 1 else ''}" for name, number in numbers if number
    )


def _lines(diagnostic: Diagnostic) -> Iterator[str]:
    yield (
        f"{diagnostic.span}: {diagnostic.code.severity}[{diagnostic.code.name}]: "
        f"{diagnostic.message}"
    )
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

    >>> _mask("    API_TOKEN: abc")
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
    return {
        "file": span.file,
        "line": span.line,
        "column": span.column,
        "end_column": span.end_column,
    }


def as_sarif(diagnostics: Iterable[Diagnostic]) -> str:
    """Return one SARIF run with the rules that it needs, and a related place for each note."""
    every = tuple(diagnostics)
    rules = sorted({each.code.name: each.code for each in every}.items())
    numbers = {name: number for number, (name, _) in enumerate(rules)}
    driver = {"name": "claw", "rules": [_rule(code) for _, code in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, numbers[each.code.name]) for each in every],
    }
    data = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def as_github(diagnostics: Iterable[Diagnostic]) -> str:
    """Return one workflow command a line; GitHub's runner shows it beside the code."""
    return "".join(f"{_command(each)}\n" for each in diagnostics)


def _rule(code: Code) -> dict[str, Any]:
    return {
        "id": code.name,
        "shortDescription": {"text": code.meaning},
        "help": {"text": code.remedy},
        "defaultConfiguration": {"level": code.severity},
    }


def _result(diagnostic: Diagnostic, rule: int) -> dict[str, Any]:
    result = {
        "ruleId": diagnostic.code.name,
        "ruleIndex": rule,
        "level": diagnostic.code.severity,
        "message": {"text": _full_text(diagnostic)},
        "locations": [_location(diagnostic.span)],
    }
    if diagnostic.notes:
        result["relatedLocations"] = [
            {"id": number, **_location(note.span), "message": {"text": note.message}}
            for number, note in enumerate(diagnostic.notes)
        ]
    return result


def _location(span: Span) -> dict[str, Any]:
    region = {"startLine": span.line, "startColumn": span.column, "endColumn": span.end_column}
    artifact = {"uri": quote(PurePath(span.file).as_posix())}
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}


def _full_text(diagnostic: Diagnostic) -> str:
    return "\n".join(
        part for part in (diagnostic.message, diagnostic.hint, diagnostic.help) if part
    )


def _command(diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    properties = {
        "file": span.file,
        "line": str(span.line),
        "col": str(span.column),
        "endColumn": str(span.end_column),
        "title": diagnostic.code.name,
    }
    named = ",".join(f"{name}={_escape(value, ',:')}" for name, value in properties.items())
    return f"::{diagnostic.code.severity} {named}::{_escape(_full_text(diagnostic))}"


def _escape(text: str, more: str = "") -> str:
    """Escape text as the runner decodes it: percent, line breaks, and in a property
    what would end it.
    """
    return "".join(f"%{ord(char):02X}" if char in f"%\r\n{more}" else char for char in text)
