"""``claw rotate AGENT``: a new token for one agent (docs/spec/compile.md "Tokens")."""

import os
import sys

import typer

from claw_cli.arguments import AgentId, File, pod_file
from claw_compile.diagnostics.report import as_text
from claw_compile.lock_update import rotate_pod


def rotate(agent: AgentId, file: File = None) -> None:
    """Give an agent a new token, from the next compile on.

    Exit 0; 1 for errors, 2 for wrong usage.
    """
    result = rotate_pod(pod_file(None, file), os.environ, agent)
    sys.stderr.write(as_text(result.diagnostics))
    if result.value is None:
        raise typer.Exit(1)
    sys.stdout.write(
        f"{agent}: epoch {result.value.epoch}, in {result.value.file}\n"
        f"The next compile gives {agent} a new token, and the old one ends with it: compile, and "
        "recreate its container.\n"
    )
