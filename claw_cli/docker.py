"""Docker Compose in place of this process: it gets our terminal and signals, and its exit code is ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from claw_cli.screen import fail

_SECONDS = 60


def become_compose(compose_file: Path, arguments: Sequence[str]) -> NoReturn:
    """Become ``docker compose`` on the file. Print one line and exit 1 where Docker or its Compose plugin is missing."""
    docker = shutil.which("docker")
    if docker is None:
        fail("there is no 'docker' on this machine: install Docker Engine with its Compose plugin")
    if not _has_compose(docker):
        fail("this Docker has no 'docker compose': install the Compose plugin, version 2.30 or newer")
    directory = compose_file.parent
    command = ["docker", "compose", "--project-directory", str(directory), "-f", str(compose_file), *arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(docker, command, {**_owner(), **os.environ})  # noqa: S606 - the user's own Docker, no shell
    except OSError as error:
        fail(f"{docker} can't be started: {error.strerror}")


def is_missing(image: str) -> bool:
    """Return True where Docker says that it has no such image; False where there is no Docker to ask."""
    try:
        answer = subprocess.run(  # noqa: S603 - as below
            ["docker", "image", "inspect", image],  # noqa: S607
            capture_output=True,
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode != 0 and b"no such image" in answer.stderr.lower()


def _has_compose(docker: str) -> bool:
    try:
        answer = subprocess.run([docker, "compose", "version"], capture_output=True, check=False, timeout=_SECONDS)  # noqa: S603 - as above
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0


def _owner() -> dict[str, str]:
    """Return the user that the proxy runs as: the owner of the compiled tree, who alone can read it."""
    return {"CLAW_UID": str(os.getuid()), "CLAW_GID": str(os.getgid())}
