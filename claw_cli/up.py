"""``claw up [POD] [-d]`` and ``claw down [POD]``, through Docker Compose.

Specification: docs/spec/compile.md "Verbs".

Rules. A pod that does not compile, or whose CA its proxy would refuse, is not started. Containers
of services that the pod no longer has are removed: an agent that was taken out of the pod must not
go on with its credential. The arguments after ``--`` are Compose's.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from claw_certs.status import ca_status
from claw_cli.arguments import REST, File, Pod, pod_file
from claw_cli.screen import fail
from claw_compile.compiler import CompileResult, compile_and_report, compose_file_of
from claw_compile.output.compose.proxy_service import DEFAULT_IMAGE, IMAGE_VARIABLE
from claw_compile.output.deployment import CA_ROOT

_SECONDS = 60
Detach = Annotated[
    bool, typer.Option("-d", "--detach", help="Leave the pod running in the background.")
]
Volumes = Annotated[
    bool, typer.Option("--volumes", help="Remove its volumes too: history and state are lost.")
]


def become_compose(compose_file: Path, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by ``docker compose`` on the file.

    Exit 1 with one line if Docker or its Compose plugin is missing.
    """
    docker = shutil.which("docker")
    if docker is None:
        fail("there is no 'docker' on this machine: install Docker Engine with its Compose plugin")
    answer = _ask_docker(docker, "compose", "version")
    if answer is None or answer.returncode != 0:
        fail(
            "this Docker has no 'docker compose': install the Compose plugin, version 2.30 or newer"
        )

    place = ("--project-directory", str(compose_file.parent), "-f", str(compose_file))
    command = ["docker", "compose", *place, *arguments]
    # The proxy runs as this user: only the owner of the compiled tree can read it.
    owner = {"CLAW_UID": str(os.getuid()), "CLAW_GID": str(os.getgid())}
    sys.stdout.flush()  # execve drops what is still buffered
    sys.stderr.flush()
    try:
        os.execve(docker, command, {**owner, **os.environ})  # noqa: S606 - the user's own Docker, no shell
    except OSError as error:
        fail(f"{docker} can't be started: {error.strerror}")


def _ask_docker(docker: str, *arguments: str) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(  # noqa: S603 - the same
            [docker, *arguments], capture_output=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def up(context: typer.Context, pod: Pod = None, file: File = None, detach: Detach = False) -> None:
    """Compile a pod, and run it through Docker Compose.

    ARGS are for docker compose up.

    Exit as Compose does; 1 for errors, and without Docker or the proxy's image; 2 for wrong usage.
    """
    named = pod_file(pod, file)
    written = compile_and_report(named)
    if written is None:
        raise typer.Exit(1)

    _check_ca(named, written)
    _expect_image(written.deployed)
    options = ["--detach"] if detach else []
    become_compose(written.deployed, ["up", "--remove-orphans", *options, *context.meta[REST]])


def _expect_image(compose_file: Path) -> None:
    """Exit 1 if the pod uses the proxy's default image and this machine does not have it.

    It is never pulled: whoever owns its name at a registry would get every key.
    """
    dotenv = compose_file.with_name(".env")
    variables = dotenv.read_text("utf-8", "replace") if dotenv.is_file() else ""
    is_chosen = IMAGE_VARIABLE in os.environ or IMAGE_VARIABLE in variables
    if is_chosen or DEFAULT_IMAGE not in compose_file.read_text(encoding="utf-8"):
        return

    # Any other failure of Docker is left to `docker compose`, which says more about it.
    answer = _ask_docker("docker", "image", "inspect", DEFAULT_IMAGE)
    is_missing = (
        answer is not None and answer.returncode != 0 and b"no such image" in answer.stderr.lower()
    )
    if is_missing:
        fail(
            f"the proxy's image {DEFAULT_IMAGE} is not here: in a checkout of clawdapus, run "
            f"'docker build -t {DEFAULT_IMAGE} .', or set {IMAGE_VARIABLE} to one of yours"
        )


def down(
    context: typer.Context, pod: Pod = None, file: File = None, volumes: Volumes = False
) -> None:
    """Stop a pod, and remove its containers and networks.

    ARGS are for docker compose down.

    Exit as Compose does; 1 without Docker and for a pod that was not compiled, 2 for wrong usage.
    """
    compose_file = compose_file_of(pod_file(pod, file), None)
    if not compose_file.is_file():
        fail(f"there is no {compose_file}: this pod was not compiled, and so not started")

    options = ["--volumes"] if volumes else []
    become_compose(compose_file, ["down", "--remove-orphans", *options, *context.meta[REST]])


def _check_ca(file: Path, written: CompileResult) -> None:
    """Print the problems of the pod's CA, if an agent needs one.

    Exit 1 if the proxy would refuse to start with it.
    """
    if not written.opened_hosts:
        return

    status = ca_status(file.parent / CA_ROOT, written.opened_hosts, datetime.now(UTC), str(file))
    sys.stderr.write("".join(f"{problem}\n" for problem in status.problems))
    if not status.is_sound:
        raise typer.Exit(1)
