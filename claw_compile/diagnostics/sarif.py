"""Diagnostics as SARIF 2.1.0 (OASIS), for code scanning; and as the workflow commands of GitHub Actions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from claw_compile.diagnostics.diagnostic import Code, Diagnostic, Span

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


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
    """Return the message with its hint and help, for readers that show nothing else."""
    return "\n".join(part for part in (diagnostic.message, diagnostic.hint, diagnostic.help) if part)


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
    """Escape text as the runner decodes it: percent, line breaks, and in a property what would end it."""
    return "".join(f"%{ord(char):02X}" if char in f"%\r\n{more}" else char for char in text)
