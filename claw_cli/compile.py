"""``claw compile [POD] [-o DIR] [--target compose|kubernetes]``: write what each agent may do (spec/compile.md "Verbs")."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from claw_cli.arguments import DEFAULT_POD, Output, Pod
from claw_compile.__main__ import run


class Runs(StrEnum):
    """What is to run the pod."""

    COMPOSE = "compose"
    KUBERNETES = "kubernetes"


Target = Annotated[Runs, typer.Option("--target", help="What is to run it.")]


def compile_verb(pod: Pod = DEFAULT_POD, output: Output = None, target: Target = Runs.COMPOSE) -> None:
    """Compile a pod: per-agent tools, identities and contracts. Exit 0, 1 for errors, 2 for wrong usage."""
    raise typer.Exit(run(pod, output, target.value))
