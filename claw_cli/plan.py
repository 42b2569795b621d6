"""``claw plan [POD]``: show what a compile would change, and write nothing.

Specification: docs/spec/compile.md "Verbs".
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import typer

from claw_cli.arguments import AsJson, File, Output, Pod, pod_file
from claw_cli.screen import print_json, print_lines
from claw_compile.changes import Changes, ToolChange, changes
from claw_compile.compiler import check_pod, compose_file_of, output_of, preview
from claw_compile.diagnostics.report import as_text
from claw_compile.output.write import read_compiled_tree

_SAME = 0
_FAILED = 1
_CHANGED = 2
_SIGNS = {"gained": "+", "lost": "-", "changed": "~", "new": "+", "gone": "-"}


def plan(
    pod: Pod = None, file: File = None, output: Output = None, as_json: AsJson = False
) -> None:
    """List who would gain or lose a tool, and which files would change.

    Exit 0 where nothing would change, 2 where something would (and for wrong usage), 1 for errors.
    """
    named = pod_file(pod, file)
    checked = check_pod(named, os.environ)
    sys.stderr.write(as_text(checked.diagnostics))
    if checked.value is None:
        raise typer.Exit(_FAILED)

    directory = output_of(named, output)
    compose_file = compose_file_of(named, output)
    try:
        tree, compose = preview(checked.value)
        compiled = {**tree, PurePosixPath(compose_file.name): compose}
        difference = changes(read_compiled_tree(directory, compose_file), compiled)
    except OSError as error:
        sys.stderr.write(
            f"{error.filename or directory}: the last compile can't be read: {error.strerror}\n"
        )
        raise typer.Exit(_FAILED) from None

    if as_json:
        print_json(_data(difference), ascii_only=True)
    else:
        print_lines(_lines(difference, directory))
    raise typer.Exit(_CHANGED if difference else _SAME)


def _lines(difference: Changes, directory: Path) -> Iterator[str]:
    if not difference:
        yield f"nothing would change in {directory}"
        return

    if difference.tools:
        yield "authority"
        yield from _tool_lines(difference.tools)

    yield f"files in {directory}"
    for file in difference.files:
        yield f"  {_SIGNS[file.kind]} {file.path}"


def _tool_lines(tools: tuple[ToolChange, ...]) -> Iterator[str]:
    agent_width = max(len(change.agent) for change in tools)
    tool_width = max(len(change.tool) for change in tools)
    for change in tools:
        start = f"{_SIGNS[change.kind]} {change.agent:<{agent_width}}  {change.tool:<{tool_width}}"
        # "read → write", or one effect alone: a gained tool has none before, a lost tool has none
        # after, and an effect that stayed is printed once.
        effects = dict.fromkeys((change.before, change.after))
        arrow = " → ".join(effect for effect in effects if effect is not None)
        parts = f"  ({', '.join(change.what)})" if change.what else ""
        mark = "  ! gains a write" if change.gains_write else ""
        yield f"  {start}  {arrow}{parts}{mark}"


def _data(difference: Changes) -> dict[str, Any]:
    return {
        "tools": [
            {
                "agent": change.agent,
                "tool": change.tool,
                "change": change.kind,
                "before": change.before,
                "after": change.after,
                "parts": list(change.what),
                "gains_write": change.gains_write,
            }
            for change in difference.tools
        ],
        "files": [{"path": str(file.path), "change": file.kind} for file in difference.files],
    }
