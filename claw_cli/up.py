"""``claw up [POD] [-d]`` and ``claw down [POD]``: through Docker Compose (spec/compile.md "Verbs").

Rules. Nothing is started of a pod that does not compile, or whose CA its proxy would refuse. What the pod no longer has is
stopped: an agent that was taken out of it must not go on with its credential. What stands behind ``--`` is Compose's.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from claw_certs.standing import standing
from claw_cli.arguments import File, Pod, pod_file
from claw_cli.docker import become_compose, is_missing
from claw_compile.compiler import CompileResult, compile_and_report, compose_file_of
from claw_compile.output.compose.proxy_service import DEFAULT_IMAGE, IMAGE_VARIABLE
from claw_compile.output.deployment import CA_ROOT

_REST = "claw.rest"


class PassesOn(TyperCommand):
    """A verb that leaves what stands behind ``--`` to Docker Compose."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Only what stands before ``--`` is ours."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[_REST] = tuple(args[end + 1 :])
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """With what is passed on."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS]"]


def up(
    context: typer.Context,
    pod: Pod = None,
    file: File = None,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Leave the pod running in the background.")] = False,
) -> None:
    """Compile a pod, and run it through Docker Compose.

    ARGS are for docker compose up.

    Exit as Compose does; 1 for errors, and without Docker or the proxy's image; 2 for wrong usage.
    """
    named = pod_file(pod, file)
    written = compile_and_report(named)
    if written is None:
        raise typer.Exit(1)
    _trust(named, written)
    _expect_image(written.deployed)
    options = ["--detach"] if detach else []
    become_compose(written.deployed, ["up", "--remove-orphans", *options, *context.meta[_REST]])


def _expect_image(compose_file: Path) -> None:
    """The proxy's own image is built and not pulled: whoever had its name on a registry would be given every key."""
    dotenv = compose_file.with_name(".env")
    chosen = IMAGE_VARIABLE in os.environ or (
        dotenv.is_file() and IMAGE_VARIABLE in dotenv.read_text("utf-8", "replace")
    )
    if chosen or DEFAULT_IMAGE not in compose_file.read_text(encoding="utf-8") or not is_missing(DEFAULT_IMAGE):
        return
    sys.stderr.write(
        f"error: the proxy's image {DEFAULT_IMAGE} is not here: in a checkout of clawdapus, run "
        f"'docker build -t {DEFAULT_IMAGE} .', or set {IMAGE_VARIABLE} to one of yours\n"
    )
    raise typer.Exit(1)


def down(
    context: typer.Context,
    pod: Pod = None,
    file: File = None,
    volumes: Annotated[
        bool, typer.Option("--volumes", help="Remove its volumes too: history and state are lost.")
    ] = False,
) -> None:
    """Stop a pod, and remove its containers and networks.

    ARGS are for docker compose down.

    Exit as Compose does; 1 without Docker and for a pod that was not compiled, 2 for wrong usage.
    """
    compose_file = compose_file_of(pod_file(pod, file), None)
    if not compose_file.is_file():
        sys.stderr.write(f"error: there is no {compose_file}: this pod was not compiled, and so not started\n")
        raise typer.Exit(1)
    options = ["--volumes"] if volumes else []
    become_compose(compose_file, ["down", "--remove-orphans", *options, *context.meta[_REST]])


def _trust(file: Path, written: CompileResult) -> None:
    """What is to be said of the CA, where an agent needs it."""
    if not written.opened_hosts:
        return
    found = standing(file.parent / CA_ROOT, written.opened_hosts, datetime.now(UTC), str(file))
    sys.stderr.write("".join(f"{problem}\n" for problem in found.problems))
    if not found.is_sound:
        raise typer.Exit(1)
