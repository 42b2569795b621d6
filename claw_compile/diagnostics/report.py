"""Reports of diagnostics, for people and for programs.

The text is for people. JSON, SARIF 2.1.0 and the workflow commands of GitHub Actions are for
programs.

A report shows lines of files, which may hold credentials. So the values of environment variables,
of anything called a password or a token, and whatever looks like a key are masked. Only a bare
``${NAME}`` stays readable.
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
# ``NAME: value`` or ``NAME=value``, where the name is that of a variable or of a credential.
_ASSIGNMENT = re.compile(
    rf"""(?P<name>\b(?:[A-Z][A-Z0-9_]*|{_CONFIDENTIAL})["']?\s*[:=]\s*)(?P<value>\S.*)$"""
)
# The user and password of a URL.
_USER = re.compile(r"(?<=://)[^/\s@]*(?=@)")
# A value that is nothing but a variable's name. A default, as in ``${NAME:-value}``, may be a
# secret.
_REFERENCE = re.compile(r"""["']?\$(\w+|\{\w+(:?\?[^{}]*)?\})["']?[\s,}\]]*(#.*)?""")
_MASK = "•"


def plain_streams() -> None:
    """Make standard output and error replace characters that the terminal can't encode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def as_text(diagnostics: Iterable[Diagnostic]) -> str:
    """Return each diagnostic with its line, carets under its place, and its notes and help."""
    lines: list[str] = []
    for diagnostic in diagnostics:
        lines.extend(_lines(diagnostic))
    return "".join(f"{line}\n" for line in lines)


def as_json(diagnostics: Iterable[Diagnostic]) -> str:
    """Return ``{"diagnostics": […], "errors": n, "warnings": n}``.

    Lines and columns are 1-based; ``end_column`` is exclusive.
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
    """Return a count such as ``2 errors, 1 warning``, or "" without diagnostics."""
    every = tuple(diagnostics)
    errors = sum(each.is_error for each in every)
    numbers = {"error": errors, "warning": len(every) - errors}

    parts = []
    for name, number in numbers.items():
        if number:
            plural = "s" if number > 1 else ""
            parts.append(f"{number} {name}{plural}")
    return ", ".join(parts)


def _lines(diagnostic: Diagnostic) -> Iterator[str]:
    code = diagnostic.code
    yield f"{diagnostic.span}: {code.severity}[{code.name}]: {diagnostic.message}"

    if diagnostic.span.text:
        yield from _excerpt(diagnostic.span, diagnostic.hint)
    elif diagnostic.hint:
        yield f"  {diagnostic.hint}"

    for note in diagnostic.notes:
        yield f"{note.span}: note: {note.message}"

    if diagnostic.help:
        first, *rest = diagnostic.help.splitlines()
        yield f"  help: {first}"
        for line in rest:
            yield f"        {line}"


def _excerpt(span: Span, hint: str | None) -> Iterator[str]:
    # A control character becomes one blank: columns stay, and nothing moves the cursor.
    shown = "".join(char if char.isprintable() else " " for char in _mask(span.text))
    number = str(span.line)
    yield f"  {number} | {shown.rstrip()}"

    margin = " " * len(number)
    indent = " " * (span.column - 1)
    carets = "^" * max(span.end_column - span.column, 1)
    suffix = f"  {hint}" if hint else ""
    yield f"  {margin} | {indent}{carets}{suffix}"


def _mask(line: str) -> str:
    """Mask what may be a credential; the length stays the same, so that the carets still fit.

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
    """Return one SARIF run, with the rules that its results refer to."""
    every = tuple(diagnostics)
    codes = sorted({each.code.name: each.code for each in every}.items())
    index_of = {name: index for index, (name, _code) in enumerate(codes)}

    driver = {"name": "claw", "rules": [_rule(code) for _name, code in codes]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, index_of[each.code.name]) for each in every],
    }
    data = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def as_github(diagnostics: Iterable[Diagnostic]) -> str:
    """Return one workflow command a line, which GitHub shows next to the code.

    The format: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
    """
    return "".join(f"{_command(each)}\n" for each in diagnostics)


def _rule(code: Code) -> dict[str, Any]:
    return {
        "id": code.name,
        "shortDescription": {"text": code.meaning},
        "help": {"text": code.remedy},
        "defaultConfiguration": {"level": code.severity},
    }


def _result(diagnostic: Diagnostic, rule_index: int) -> dict[str, Any]:
    result = {
        "ruleId": diagnostic.code.name,
        "ruleIndex": rule_index,
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
    parts = (diagnostic.message, diagnostic.hint, diagnostic.help)
    return "\n".join(part for part in parts if part)


def _command(diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    properties = {
        "file": span.file,
        "line": str(span.line),
        "col": str(span.column),
        "endColumn": str(span.end_column),
        "title": diagnostic.code.name,
    }
    # A comma would end a property, and a colon all of them.
    escaped = [f"{name}={_escape(value, ',:')}" for name, value in properties.items()]
    text = _escape(_full_text(diagnostic))
    return f"::{diagnostic.code.severity} {','.join(escaped)}::{text}"


def _escape(text: str, more: str = "") -> str:
    """Write ``%``, line breaks and the characters of ``more`` as %XX, as GitHub decodes it."""
    escaped = set("%\r\n" + more)
    return "".join(f"%{ord(char):02X}" if char in escaped else char for char in text)
