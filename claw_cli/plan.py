"""``claw plan [POD]``: show what a compile would change, and write nothing (docs/spec/compile.md "Verbs")."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import typer

from claw_cli.arguments import AsJson, File, Output, Pod, pod_file
from claw_compile.changes import Changes, FileChange, ToolChange, changes
from claw_compile.compiler import check_pod, compose_file_of, output_of, preview
from claw_compile.diagnostics.report import as_text
from claw_compile.output.write import read_compiled_tree

SAME, FAILED, CHANGED = 0, 1, 2
_SIGNS = {"gained": "+", "lost": "-", "changed": "~", "new": "+", "gone": "-"}


def plan(
    pod: Pod = None,
    file: File = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """List who would gain or lose a tool, and which files would change.

    Exit 0 where nothing would change, 2 where something would (and for wrong usage), 1 for errors.
    """
    named = pod_file(pod, file)
    checked = check_pod(named, os.environ)
    sys.stderr.write(as_text(checked.diagnostics))
    if checked.value is None:
        raise typer.Exit(FAILED)
    directory, compose_file = output_of(named, output), compose_file_of(named, output)
    try:
        tree, compose = preview(checked.value)
        difference = changes(
            read_compiled_tree(directory, compose_file), {**tree, PurePosixPath(compose_file.name): compose}
        )
    except OSError as error:
        sys.stderr.write(f"{error.filename or directory}: the last compile can't be read: {error.strerror}\n")
        raise typer.Exit(FAILED) from None
    sys.stdout.write(
        json.dumps(_data(difference), indent=2) + "\n" if as_json else "".join(_lines(difference, directory))
    )
    raise typer.Exit(CHANGED if difference else SAME)


def _lines(difference: Changes, directory: Path) -> Iterator[str]:
    if not difference:
        yield f"nothing would change in {directory}\n"
        return
    if difference.tools:
        yield "authority\n"
        yield from _tool_lines(difference.tools)
    yield f"files in {directory}\n"
    yield from (f"  {_SIGNS[file.kind]} {file.path}\n" for file in difference.files)


def _tool_lines(tools: tuple[ToolChange, ...]) -> Iterator[str]:
    agents, names = (
        max(len(text) for text in texts) for texts in zip(*((t.agent, t.tool) for t in tools), strict=True)
    )
    for change in tools:
        effects = [effect for effect in dict.fromkeys((change.before, change.after)) if effect is not None]
        more = f"  ({', '.join(change.what)})" if change.what else ""
        mark = "  ! gains a write" if change.gains_write else ""
        yield (
            f"  {_SIGNS[change.kind]} {change.agent:<{agents}}  {change.tool:<{names}}  {' → '.join(effects)}{more}{mark}\n"
        )


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
        "files": [_file(file) for file in difference.files],
    }


def _file(file: FileChange) -> dict[str, str]:
    return {"path": str(file.path), "change": file.kind}
