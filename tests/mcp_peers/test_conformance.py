"""The official conformance suite against ``claw mcp-stdio``, around a stdio server that has all
that the suite asks for.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.mcp_peers.peers import npm_program, wrapper
from tests.mcp_peers.sdk import SECONDS, program

CHILD = Path(__file__).parent / "conformance_server.py"
APPLY = (
    "server-initialize",
    "logging-set-level",
    "ping",
    "completion-complete",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-with-logging",
    "tools-call-error",
    "tools-call-with-progress",
    "json-schema-2020-12",
    "server-sse-multiple-streams",
    "resources-list",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "resources-subscribe",
    "resources-unsubscribe",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
    "dns-rebinding-protection",
)
DO_NOT_APPLY = {
    "tools-call-sampling": (
        "a child of many sessions can ask none of them, and the wrapper declares no such capability"
    ),
    "tools-call-elicitation": "the same",
    "elicitation-sep1034-defaults": "the same",
    "elicitation-sep1330-enums": "the same",
    "server-sse-polling": "the tool must close its HTTP stream, and a stdio server has none",
}
"""Scenarios that no server on stdio behind one wrapper can pass, each with the reason."""

FOLDER = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


@pytest.mark.long
@pytest.mark.requirement("mcp:conformance")
def test_the_wrapper_passes_every_scenario_that_a_server_on_stdio_can_pass(tmp_path: Path) -> None:
    checks = run_suite(tmp_path)
    assert checks.keys() == {*APPLY, *DO_NOT_APPLY}
    assert {
        scenario: checks[scenario] for scenario in APPLY if not has_passed(checks[scenario])
    } == {}
    assert [scenario for scenario in DO_NOT_APPLY if has_passed(checks[scenario])] == []


def run_suite(home: Path) -> dict[str, list[tuple[str, str]]]:
    """Return each scenario with its checks: SUCCESS, FAILURE, WARNING or INFO, and
    the suite's message.
    """
    with wrapper([program("python"), "-P", str(CHILD)], home) as url:
        suite = [
            *npm_program("conformance"),
            "server",
            "--url",
            url,
            "--suite",
            "all",
            "-o",
            str(home / "results"),
        ]
        subprocess.run(suite, cwd=home, capture_output=True, check=False, timeout=SECONDS)
    files = (home / "results").glob("*/checks.json")
    return {FOLDER.fullmatch(file.parent.name)[1]: checks_of(file) for file in files}  # type: ignore[index]


def checks_of(file: Path) -> list[tuple[str, str]]:
    checks = json.loads(file.read_text(encoding="utf-8"))
    return [(check["status"], check.get("errorMessage", "")) for check in checks]


def has_passed(checks: list[tuple[str, str]]) -> bool:
    statuses = {status for status, _ in checks}
    return "SUCCESS" in statuses and statuses <= {"SUCCESS", "INFO"}
