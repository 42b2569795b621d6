"""``claw explain AGENT [TOOL]``: each reason why a tool is allowed or not (docs/spec/compile.md "Verbs")."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from claw_cli.arguments import AsJson, File, pod_file
from claw_compile.compiler import check_pod
from claw_compile.diagnostics.report import as_text
from claw_compile.policy.explain import Step, UnknownName, Verdict, explain


def explain_verb(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="An agent's id.")],
    tool: Annotated[
        str | None,
        typer.Argument(metavar="TOOL", help="A tool as service.tool, or as its model sees it; default: all."),
    ] = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Say why an agent may call a tool, or may not.

    Exit 0; 1 for errors, 2 for an unknown name and for wrong usage.
    """
    pod = pod_file(None, file)
    checked = check_pod(pod, os.environ)
    if checked.value is None:
        sys.stderr.write(as_text(each for each in checked.diagnostics if each.is_error))
        raise typer.Exit(1)
    verdicts = explain(checked.value.pod, agent, tool)
    if isinstance(verdicts, UnknownName):
        sys.stderr.write(f"{pod}: {verdicts.message}{f'; {verdicts.hint}' if verdicts.hint else ''}\n")
        raise typer.Exit(2)
    sys.stdout.write(_json(verdicts) if as_json else "".join(line for each in verdicts for line in _lines(each)))


def _lines(verdict: Verdict) -> Iterator[str]:
    word = "may call" if verdict.allowed else "may not call"
    yield f"{verdict.agent} {word} {verdict.tool} ({verdict.effect})\n"
    yield from (f"  {_place(step)}{step.text}\n" for step in verdict.why)
    yield f"  to change it: {verdict.change}\n"


def _place(step: Step) -> str:
    return f"{step.at.file}:{step.at.line}:{step.at.column}: " if step.at is not None else ""


def _json(verdicts: tuple[Verdict, ...]) -> str:
    return json.dumps([_data(verdict) for verdict in verdicts], indent=2, ensure_ascii=False) + "\n"


def _data(verdict: Verdict) -> dict[str, Any]:
    return {
        "agent": verdict.agent,
        "tool": verdict.tool,
        "allowed": verdict.allowed,
        "effect": verdict.effect,
        "why": [{"text": step.text, **_at(step)} for step in verdict.why],
        "change": verdict.change,
    }


def _at(step: Step) -> dict[str, Any]:
    if step.at is None:
        return {}
    return {"file": step.at.file, "line": step.at.line, "column": step.at.column}
