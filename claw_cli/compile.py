"""``claw compile [POD] [-o DIR] [--target compose|kubernetes]``: write what each agent may do (spec/compile.md "Verbs")."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from claw_cli.arguments import File, Output, Pod, pod_file
from claw_compile.compiler import run


class Runs(StrEnum):
    """What is to run the pod."""

    COMPOSE = "compose"
    KUBERNETES = "kubernetes"


Target = Annotated[Runs, typer.Option("--target", help="What is to run it.")]


def compile_verb(pod: Pod = None, file: File = None, output: Output = None, target: Target = Runs.COMPOSE) -> None:
    """Write what each agent may do, and what runs the pod.

    Exit 0; 1 for errors (nothing is written), 2 for wrong usage.
    """
    raise typer.Exit(run(pod_file(pod, file), output, target.value))
