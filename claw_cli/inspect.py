"""``claw inspect NAME``: all that is compiled of one service, or of one agent."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from claw_cli.arguments import AsJson, File, pod_file
from claw_cli.screen import plain, print_json
from claw_compile.compiler import Plan, check_pod
from claw_compile.diagnostics.report import as_text
from claw_compile.inspection import inspect_pod
from claw_compile.policy.explain import UnknownName


def inspect_verb(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A service, or an agent's id.")],
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Show all that is compiled of one service, or of one agent.

    Exit 0; 1 for errors, 2 for an unknown name and for wrong usage.
    """
    result = ask_pod(file, lambda plan: inspect_pod(plan, name))
    if as_json:
        print_json(result)
        return
    parts = [("agent", each["id"], each) for each in result["agents"]]
    if (service := result["service"]) is not None:
        parts.append(("service", service["name"], service))
    texts = ("".join(_section(kind, label, facts)) for kind, label, facts in parts)
    sys.stdout.write("\n".join(texts))


def ask_pod[Answer](file: Path | None, question: Callable[[Plan], Answer | UnknownName]) -> Answer:
    """Return the answer of a pod.

    Exit 1 for a pod with errors, 2 where it has nothing of the name.
    """
    pod = pod_file(None, file)
    checked = check_pod(pod, os.environ)
    if checked.value is None:
        sys.stderr.write(as_text(each for each in checked.diagnostics if each.is_error))
        raise typer.Exit(1)
    answer = question(checked.value)
    if isinstance(answer, UnknownName):
        sys.stderr.write(f"{pod}: {answer.message}{f'; {answer.hint}' if answer.hint else ''}\n")
        raise typer.Exit(2)
    return answer


def _section(kind: str, label: str, facts: dict[str, Any]) -> Iterator[str]:
    yield f"{kind} {label}\n"
    for key, value in facts.items():
        if key not in {"id", "name"} and value not in (None, [], {}):
            yield from (f"  {line}\n" for line in _lines(key.replace("_", " "), value))


def _lines(key: str, value: Any) -> Iterator[str]:
    match value:
        case list() if any(isinstance(item, dict) for item in value):
            yield key
            yield from (f"  {_entry(item)}" for item in value)
        case dict():
            yield key
            yield from (
                f"  {line}"
                for name, part in value.items()
                for line in _lines(name.replace("_", " "), part)
            )
        case _:
            yield f"{key}: {_inline(value)}"


def _entry(item: dict[str, Any]) -> str:
    """Return an entry as one line, so that grep finds all of it."""
    rest = _inline(
        {key: value for key, value in item.items() if key != "name" and value not in ("", None)}
    )
    return f"{_inline(item['name'])}: {rest}" if "name" in item else rest


def _inline(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(_inline, value)) or "none"
        case dict():
            return ", ".join(
                f"{key.replace('_', ' ')} {_inline(part)}" for key, part in value.items()
            )
        case _:
            return plain(" ".join(str(value).split()))  # one line: a descriptor may hold anything
