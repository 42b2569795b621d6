"""``claw compile [POD] [-o DIR] [--target TARGET]``: write what each agent may do (docs/spec/compile.md "Verbs")."""

from enum import StrEnum
from typing import Annotated

import typer

from claw_cli.arguments import File, Output, Pod, pod_file
from claw_compile.compiler import run


class Platform(StrEnum):
    COMPOSE = "compose"
    KUBERNETES = "kubernetes"


Target = Annotated[Platform, typer.Option("--target", help="The system that runs the pod.")]


def compile_verb(pod: Pod = None, file: File = None, output: Output = None, target: Target = Platform.COMPOSE) -> None:
    """Write what each agent may do, and what runs the pod.

    Exit 0; 1 for errors (nothing is written), 2 for wrong usage.
    """
    raise typer.Exit(run(pod_file(pod, file), output, target.value))
