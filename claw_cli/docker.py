"""Docker Compose takes over from here: it gets our terminal, our signals, and its exit code is ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer

_SECONDS = 60


def become_compose(compose_file: Path, arguments: Sequence[str]) -> NoReturn:
    """``docker compose`` on the file, in place of this process. Where it can't be had, one line that says so, and exit 1."""
    docker = shutil.which("docker")
    if docker is None:
        _fail("there is no 'docker' on this machine: install Docker Engine with its Compose plugin")
    if not _has_compose(docker):
        _fail("this 'docker' has no 'docker compose': install the Compose plugin, version 2.30 or newer")
    directory = compose_file.parent
    command = ["docker", "compose", "--project-directory", str(directory), "-f", str(compose_file), *arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(docker, command, {**_owner(), **os.environ})  # noqa: S606 - the user's own Docker, no shell
    except OSError as error:
        _fail(f"{docker} can't be started: {error.strerror}")


def is_missing(image: str) -> bool:
    """Whether this machine's Docker says that it has no such image; not where there is none to ask."""
    try:
        asked = subprocess.run(  # noqa: S603 - as below
            ["docker", "image", "inspect", image],  # noqa: S607
            capture_output=True,
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode != 0 and b"no such image" in asked.stderr.lower()


def _has_compose(docker: str) -> bool:
    try:
        asked = subprocess.run([docker, "compose", "version"], capture_output=True, check=False, timeout=_SECONDS)  # noqa: S603 - as above
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def _owner() -> dict[str, str]:
    """Who may read the compiled tree: the proxy runs as whoever compiled, unless the environment says otherwise."""
    return {"CLAW_UID": str(os.getuid()), "CLAW_GID": str(os.getgid())}


def _fail(why: str) -> NoReturn:
    sys.stderr.write(f"error: {why}\n")
    raise typer.Exit(1)
