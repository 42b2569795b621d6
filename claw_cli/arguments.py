"""The arguments that verbs share. A verb takes the pod as its argument; one that takes a part of the pod, the pod by ``-f``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_POD = Path("claw-pod.yml")
Pod = Annotated[Path, typer.Argument(metavar="POD", help="The pod file.")]
PodOption = Annotated[Path, typer.Option("-f", "--file", metavar="POD", help="The pod file.")]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="The compiled tree; default: .claw-runtime beside the pod."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
