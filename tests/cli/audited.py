"""``claw audit`` over the files of a proxy."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from claw_cli.app import app

DOCS = Path(__file__).parents[2] / "docs"
EVIL = "\x1b[2J\x9b31m=cmd|'/c calc'!A1\u202e"


def claw(*arguments: str, given: bytes = b"", **environ: str) -> Result:
    runner = CliRunner()
    return runner.invoke(
        app, ["audit", *arguments], env={"CLAW_SESSION_HISTORY_DIR": "", **environ}, input=given
    )


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]
