"""``claw mcp-stdio``: settings that can't be used are one line.

A wrapper that serves is in ``tests/mcp/test_wrapper.py``.
"""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from claw_cli.app import app


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({}, "CLAW_MCP_COMMAND"),
        ({"CLAW_MCP_COMMAND": "server", "CLAW_MCP_ARGS": "{"}, "CLAW_MCP_ARGS"),
    ],
)
def test_settings_that_can_not_be_used_are_one_line(environ: dict[str, str], says: str) -> None:
    unset = {"CLAW_MCP_COMMAND": "", "CLAW_MCP_ARGS": ""}
    result = CliRunner().invoke(app, ["mcp-stdio"], env={"TERM": "dumb", **unset, **environ})
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
