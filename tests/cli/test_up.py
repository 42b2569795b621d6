"""``claw up`` and ``claw down``: their commands to Compose.

A small program takes Docker's place and records its arguments.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import SECRETS, claw
from tests.compile.oracle import compose_binary
from tests.waiting import eventually

DOCKER = """\
#!{python}
import json, os, sys
from pathlib import Path
if sys.argv[1:] == ["compose", "version"]:
    sys.exit(int(os.environ.get("PLUGIN", "0")))
if sys.argv[1:3] == ["image", "inspect"]:
    sys.exit(os.environ.get("NO_IMAGE"))
told = {{"argv": sys.argv[1:], "uid": os.environ.get("CLAW_UID"), "gid": os.environ.get("CLAW_GID"), "pid": os.getpid()}}
part = Path(os.environ["TOLD"] + ".part")
part.write_text(json.dumps(told))
part.rename(os.environ["TOLD"])
if "--wait" in sys.argv:
    import signal
    signal.pause()
sys.exit(7)
"""


@pytest.fixture
def docker(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a machine with that Docker and no other."""
    directory = tmp_path_factory.mktemp("docker")
    (directory / "docker").write_text(DOCKER.format(python=sys.executable), encoding="utf-8")
    (directory / "docker").chmod(0o755)
    return {"PATH": str(directory), "TOLD": str(directory / "told.json")}


def told(docker: dict[str, str]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Path(docker["TOLD"]).read_text(encoding="utf-8"))
    return data


def compose(docker: dict[str, str], directory: str = ".") -> list[str]:
    """Return the arguments that Compose got after the file of the pod."""
    taken = [
        "compose",
        "--project-directory",
        directory,
        "-f",
        str(Path(directory, "compose.generated.yml")),
    ]
    argv = told(docker)["argv"]
    assert argv[: len(taken)] == taken
    return list(argv[len(taken) :])


@pytest.mark.requirement("cli:up")
def test_up_compiles_and_compose_gets_the_file_our_identity_and_more_arguments(
    desk: Path,
    docker: dict[str, str],
) -> None:
    result = claw(desk, "up", "-d", "--", "--build", "analyst", **SECRETS, **docker)
    assert (result.returncode, result.stdout) == (7, ""), result.stderr
    assert compose(docker) == ["up", "--remove-orphans", "--detach", "--build", "analyst"]
    assert (told(docker)["uid"], told(docker)["gid"]) == (str(os.getuid()), str(os.getgid()))
    assert (desk / ".claw-runtime" / "context" / "analyst" / "tools.json").is_file()
    claw(desk.parent, "up", f"{desk.name}/claw-pod.yml", **SECRETS, **docker, CLAW_UID="4711")
    assert compose(docker, desk.name) == ["up", "--remove-orphans"]
    assert told(docker)["uid"] == "4711"


@pytest.mark.requirement("cli:up")
def test_compose_takes_our_place_and_so_gets_every_signal(
    desk: Path,
    docker: dict[str, str],
) -> None:
    command = [sys.executable, "-c", "from claw_cli.app import main; main()", "up", "--", "--wait"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), **SECRETS, **docker}
    with subprocess.Popen(command, cwd=desk, env=environment) as process:
        eventually(Path(docker["TOLD"]).is_file, "Compose was started")
        assert told(docker)["pid"] == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == -signal.SIGTERM


@pytest.mark.requirement("cli:up", "cli:down")
def test_the_real_compose_takes_what_it_is_asked_for(
    desk: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """There is no engine here: Compose must accept its flags and its file, and
    fails only at the socket.
    """
    directory = tmp_path_factory.mktemp("real")
    (directory / "docker").write_text(
        f'#!/bin/sh\nshift\nexec {compose_binary()} "$@"\n', encoding="utf-8"
    )
    (directory / "docker").chmod(0o755)
    real = {
        "PATH": str(directory),
        "DOCKER_HOST": "unix:///nonexistent.sock",
        "HOME": str(directory),
    }
    for verb in (["up", "-d"], ["down", "--volumes"]):
        result = claw(desk, *verb, **SECRETS, **real)
        assert (result.returncode, result.stdout) == (1, "")
        assert "Cannot connect to the Docker daemon" in result.stderr


@pytest.mark.requirement("cli:up")
def test_a_pod_with_errors_is_not_started(desk: Path, docker: dict[str, str]) -> None:
    result = claw(desk, "up", **docker)
    assert (result.returncode, result.stdout) == (1, "")
    assert "error[unset-variable]" in result.stderr
    assert not Path(docker["TOLD"]).exists()


@pytest.mark.requirement("cli:no-image")
def test_without_the_proxys_image_nothing_is_started_and_one_line_has_the_remedy(
    desk: Path,
    docker: dict[str, str],
) -> None:
    none = docker | {
        "NO_IMAGE": "Error response from daemon: No such image: clawdapus/cllama:0.1.0"
    }
    refused = claw(desk, "up", **SECRETS, **none)
    assert (refused.returncode, Path(docker["TOLD"]).exists()) == (1, False)
    assert "docker build -t clawdapus/cllama:0.1.0 ." in refused.stderr
    assert claw(desk, "up", **SECRETS, **none, CLLAMA_IMAGE="mine/cllama:2").returncode == 7
    deaf = docker | {"NO_IMAGE": "Cannot connect to the Docker daemon"}
    assert claw(desk, "up", **SECRETS, **deaf).returncode == 7


@pytest.mark.requirement("cli:down")
def test_down_removes_what_up_made_and_volumes_only_when_told(
    desk: Path,
    docker: dict[str, str],
) -> None:
    refused = claw(desk, "down", **docker)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        "error: there is no compose.generated.yml: this pod was not compiled, and so not started\n"
    )
    assert claw(desk, "compile", **SECRETS).returncode == 0
    assert claw(desk, "down", **docker).returncode == 7
    assert compose(docker) == ["down", "--remove-orphans"]
    claw(desk, "down", "--volumes", "--", "--timeout", "3", **docker)
    assert compose(docker) == ["down", "--remove-orphans", "--volumes", "--timeout", "3"]


@pytest.mark.requirement("cli:no-docker")
def test_without_docker_or_its_plugin_one_line_tells_what_to_install(
    desk: Path,
    docker: dict[str, str],
    tmp_path: Path,
) -> None:
    assert claw(desk, "compile", **SECRETS).returncode == 0
    (tmp_path / "empty").mkdir()
    none = claw(desk, "down", **docker | {"PATH": str(tmp_path / "empty")})
    assert (none.returncode, none.stdout) == (1, "")
    assert none.stderr == (
        "error: there is no 'docker' on this machine: install Docker Engine with its "
        "Compose plugin\n"
    )
    bare = claw(desk, "down", **docker, PLUGIN="1")
    assert (bare.returncode, bare.stdout) == (1, "")
    assert bare.stderr == (
        "error: this Docker has no 'docker compose': install the Compose plugin, version "
        "2.30 or newer\n"
    )
    assert not Path(docker["TOLD"]).exists()
