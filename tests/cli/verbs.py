"""All verbs of ``claw``, and those about a pod."""

from __future__ import annotations

import sys
from pathlib import Path

import typer
from typer.testing import CliRunner, Result

from claw_cli.app import app

DOCS = Path(__file__).parents[2] / "docs"
VERBS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
CLAW = [sys.executable, "-c", "from claw_cli.app import main; main()"]
OF_A_POD = ["check", "compile", "down", "lock", "plan", "up"]
OF_A_PART = ["discover", "explain", "inspect", "rotate", "token"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"TERM": "dumb", "COLUMNS": "80"})
