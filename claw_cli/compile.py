"""``claw compile [POD] [-o DIR] [--target T] [--topology T]``: write what each agent may do.

Specification: docs/spec/compile.md "Verbs".
"""

from enum import StrEnum
from typing import Annotated

import typer

from claw_cli.arguments import File, Output, Pod, pod_file
from claw_compile.compiler import run


class Platform(StrEnum):
    COMPOSE = "compose"
    KUBERNETES = "kubernetes"


class ProxyTopology(StrEnum):
    SIDECAR = "sidecar"
    GATEWAY = "gateway"


_TOPOLOGY = (
    "In Kubernetes: a proxy beside each agent (sidecar), or a fleet of proxies for the whole "
    "pod (gateway)."
)
Target = Annotated[Platform, typer.Option("--target", help="The system that runs the pod.")]
Topology = Annotated[ProxyTopology, typer.Option("--topology", help=_TOPOLOGY)]


def compile_verb(
    pod: Pod = None,
    file: File = None,
    output: Output = None,
    target: Target = Platform.COMPOSE,
    topology: Topology = ProxyTopology.SIDECAR,
) -> None:
    """Write what each agent may do, and what runs the pod.

    Exit 0; 1 for errors (nothing is written), 2 for wrong usage.
    """
    if topology is ProxyTopology.GATEWAY and target is not Platform.KUBERNETES:
        raise typer.BadParameter(
            "--topology gateway is for --target kubernetes: Compose has one proxy for the whole pod"
        )

    raise typer.Exit(run(pod_file(pod, file), output, target.value, topology.value))
