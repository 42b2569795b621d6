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

    sections = ["".join(_section("agent", agent["id"], agent)) for agent in result["agents"]]
    service = result["service"]
    if service is not None:
        sections.append("".join(_section("service", service["name"], service)))
    sys.stdout.write("\n".join(sections))


def ask_pod[Answer](file: Path | None, question: Callable[[Plan], Answer | UnknownName]) -> Answer:
    """Check a pod, and return its answer to a question.

    Exit 1 for a pod with errors, 2 if it has nothing of the name that the question is about.
    """
    pod = pod_file(None, file)
    checked = check_pod(pod, os.environ)
    if checked.value is None:
        sys.stderr.write(as_text(each for each in checked.diagnostics if each.is_error))
        raise typer.Exit(1)

    answer = question(checked.value)
    if isinstance(answer, UnknownName):
        hint = f"; {answer.hint}" if answer.hint else ""
        sys.stderr.write(f"{pod}: {answer.message}{hint}\n")
        raise typer.Exit(2)

    return answer


def _section(kind: str, label: str, facts: dict[str, Any]) -> Iterator[str]:
    yield f"{kind} {label}\n"
    for key, fact in facts.items():
        if key in {"id", "name"} or fact in (None, [], {}):
            continue

        for line in _lines(_words(key), fact):
            yield f"  {line}\n"


def _lines(label: str, fact: Any) -> Iterator[str]:
    """Yield a fact: in one line, or a list of objects or an object with a line for each part."""
    match fact:
        case list() if any(isinstance(item, dict) for item in fact):
            yield label
            for item in fact:
                yield f"  {_entry(item)}"
        case dict():
            yield label
            for key, part in fact.items():
                for line in _lines(_words(key), part):
                    yield f"  {line}"
        case _:
            yield f"{label}: {_inline(fact)}"


def _entry(item: dict[str, Any]) -> str:
    """Return an entry as one line, so that grep finds all of it."""
    parts = {key: part for key, part in item.items() if key != "name" and part not in ("", None)}
    rest = _inline(parts)
    return f"{_inline(item['name'])}: {rest}" if "name" in item else rest


def _inline(fact: Any) -> str:
    match fact:
        case bool():
            return "yes" if fact else "no"
        case list():
            return ", ".join(map(_inline, fact)) or "none"
        case dict():
            return ", ".join(f"{_words(key)} {_inline(part)}" for key, part in fact.items())
        case _:
            return plain(" ".join(str(fact).split()))  # one line: a descriptor may hold anything


def _words(key: str) -> str:
    return key.replace("_", " ")
