"""``claw explain AGENT [TOOL]``: print why a tool is allowed or not.

Specification: docs/spec/compile.md "Verbs".
"""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from claw_cli.arguments import AsJson, File
from claw_cli.inspect import ask_pod
from claw_cli.screen import print_json, print_lines
from claw_compile.policy.explain import Explanation, Step, explain

_TOOL = "A tool as service.tool, or as its model sees it; default: all."


def explain_verb(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="An agent's id.")],
    tool: Annotated[str | None, typer.Argument(metavar="TOOL", help=_TOOL)] = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Say why an agent may call a tool, or may not.

    Exit 0; 1 for errors, 2 for an unknown name and for wrong usage.
    """
    verdicts = ask_pod(file, lambda plan: explain(plan.pod, agent, tool))
    if as_json:
        print_json([_data(verdict) for verdict in verdicts])
    else:
        for verdict in verdicts:
            print_lines(_lines(verdict))


def _lines(verdict: Explanation) -> Iterator[str]:
    answer = "may call" if verdict.allowed else "may not call"
    yield f"{verdict.agent} {answer} {verdict.tool} ({verdict.effect})"

    for step in verdict.why:
        place = f"{step.at.file}:{step.at.line}:{step.at.column}: " if step.at is not None else ""
        yield f"  {place}{step.text}"

    yield f"  to change it: {verdict.change}"


def _data(verdict: Explanation) -> dict[str, Any]:
    return {
        "agent": verdict.agent,
        "tool": verdict.tool,
        "allowed": verdict.allowed,
        "effect": verdict.effect,
        "why": [_step(step) for step in verdict.why],
        "change": verdict.change,
    }


def _step(step: Step) -> dict[str, Any]:
    if step.at is None:
        return {"text": step.text}
    return {
        "text": step.text,
        "file": step.at.file,
        "line": step.at.line,
        "column": step.at.column,
    }
