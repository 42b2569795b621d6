"""``claw lock [POD] [--accept SERVICE] [--images]``: write down which tools each service has (docs/spec/compile.md "Verbs")."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from claw_cli.arguments import File, Pod, pod_file
from claw_cli.images import baked_descriptor
from claw_compile.diagnostics.report import as_text
from claw_compile.lock_update import LockResult, lock_pod


def lock(
    pod: Pod = None,
    file: File = None,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", metavar="SERVICE", help="Take the service's tools as they are now; may be repeated."),
    ] = None,
    images: Annotated[
        bool, typer.Option("--images", help="Ask Docker for the descriptors in images that are on this machine.")
    ] = False,
) -> None:
    """Write down which tools there are, so that none changes unseen.

    Exit 0; 1 for errors and for tools that have changed, 2 for wrong usage.
    """
    result = lock_pod(pod_file(pod, file), os.environ, accept or (), baked_descriptor if images else None)
    sys.stderr.write(as_text(result.diagnostics))
    if result.value is None:
        raise typer.Exit(1)
    sys.stdout.write(_summary(result.value))


def _summary(written: LockResult) -> str:
    services = written.content.services or {}
    lines = [
        f"{name}: {len(each.tools)} tools, from {each.source} {each.file}" for name, each in sorted(services.items())
    ]
    moved = (("added", written.added), ("accepted", written.accepted), ("removed", written.removed))
    lines.extend(f"{change}: {', '.join(names)}" for change, names in moved if names)
    return "".join(f"{line}\n" for line in (*lines, f"wrote {written.file}"))
