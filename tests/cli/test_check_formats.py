"""Every format of ``claw check`` reports the same diagnostics, with the same places."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.cli.running import claw

POD = """\
x-claw:
  pod: x
services:
  a:
    x-claw:
      agent: AGENTS.md
      tools: [..., ..., {service: b, alow: all}]
"""
COMMAND = re.compile(
    r"::(?P<severity>error|warning) file=(?P<file>[^,]+),line=(?P<line>\d+),col=(?P<column>\d+)"
    r",endColumn=(?P<end_column>\d+),title=(?P<code>[a-z0-9-]+)::(?P<text>.*)"
)


def said(directory: Path, output_format: str) -> str:
    result = claw(directory, "check", "odd,%name:.yml", "--format", output_format)
    assert (result.returncode, result.stderr) == (1, "")
    return result.stdout


@pytest.fixture
def diagnostics(tmp_path: Path) -> list[dict[str, Any]]:
    (tmp_path / "odd,%name:.yml").write_text(POD, encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(said(tmp_path, "json"))["diagnostics"]
    assert len(found) > 3
    return found


def place(found: dict[str, Any]) -> tuple[str, int, int, int]:
    return found["file"], found["line"], found["column"], found["end_column"]


@pytest.mark.requirement("cli:check-sarif")
def test_sarif_holds_each_diagnostic_with_its_rule_place_and_notes(
    tmp_path: Path, diagnostics: list[dict[str, Any]]
) -> None:
    log = json.loads(said(tmp_path, "sarif"))
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]

    def located(location: dict[str, Any]) -> tuple[str, int, int, int]:
        physical = location["physicalLocation"]
        region, uri = physical["region"], physical["artifactLocation"]["uri"]
        return unquote(uri), region["startLine"], region["startColumn"], region["endColumn"]

    assert (log["version"], run["columnKind"]) == ("2.1.0", "unicodeCodePoints")
    assert [rule["id"] for rule in rules] == sorted({found["code"] for found in diagnostics})
    assert len(run["results"]) == len(diagnostics)
    for result, found in zip(run["results"], diagnostics, strict=True):
        assert (result["ruleId"], result["level"]) == (found["code"], found["severity"])
        assert rules[result["ruleIndex"]]["id"] == found["code"]
        assert result["message"]["text"].startswith(found["message"])
        assert [located(each) for each in result["locations"]] == [place(found)]
        related = [
            (located(each), each["message"]["text"]) for each in result.get("relatedLocations", ())
        ]
        assert related == [(place(note), note["message"]) for note in found["notes"]]


@pytest.mark.requirement("cli:check-github")
def test_github_is_told_each_diagnostic_on_a_line_of_its_own(
    tmp_path: Path, diagnostics: list[dict[str, Any]]
) -> None:
    lines = said(tmp_path, "github").splitlines()
    assert len(lines) == len(diagnostics)
    for line, found in zip(lines, diagnostics, strict=True):
        command = COMMAND.fullmatch(line)
        assert command is not None, line
        assert (command["severity"], command["code"]) == (found["severity"], found["code"])
        assert unquote(command["file"]) == found["file"]
        assert [int(command[name]) for name in ("line", "column", "end_column")] == list(
            place(found)[1:]
        )
        told = [found["message"], found["hint"], found["help"]]
        assert (
            unquote(command["text"]).splitlines()
            == "\n".join(part for part in told if part).splitlines()
        )
