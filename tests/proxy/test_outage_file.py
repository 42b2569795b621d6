"""A state file that fails under the real mitmdump: its disk full, locked, and moved away."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from tests.not_tested import skip_for_kernel
from tests.peers import Provider, Service
from tests.proxy.outage import Scene
from tests.proxy.pod import Pod
from tests.waiting import eventually

OF_ITS_OWN = ("unshare", "--map-root-user", "--mount")
SMALL_DISK = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Yield a pod whose state is on a disk of one MiB in a mount namespace of the proxy's own."""
    home = tmp_path_factory.mktemp("pod")
    disk = home / "state"
    disk.mkdir()
    mounts = (*OF_ITS_OWN, "sh", "-c", SMALL_DISK, str(disk))
    if (
        shutil.which("unshare") is None
        or subprocess.run((*mounts, "true"), capture_output=True, check=False).returncode
    ):
        skip_for_kernel("a disk of our own")
    provider, service = Provider(), Service()
    for peer in (provider, service):
        peer.start()
    pod = Pod(home, provider, service, launcher=mounts)
    pod.environment["CLAW_STATE"] = str(disk / "s.db")
    pod.agent("plain")
    trade = pod.tool(
        "trade", "POST", schema={"type": "object", "properties": {"symbol": {"type": "string"}}}
    )
    pod.agent("analyst", pod.tool("balance"), trade)
    service.routes = {
        ("GET", "/balance"): JSONResponse({"usd": 1}),
        ("POST", "/trade"): JSONResponse({"order": 1}),
    }
    pod.start()
    yield Scene(pod)
    pod.stop()
    for peer in (provider, service):
        peer.stop()


def disk(scene: Scene) -> Path:
    """Return that disk's path through the proxy's root."""
    assert scene.pod.process is not None
    return Path(f"/proc/{scene.pod.process.pid}/root{scene.pod.home}/state")


def other(scene: Scene, statement: str) -> subprocess.Popen[bytes]:
    """Start another process that has run a statement on the file, and keeps it open
    until it is killed.
    """
    assert scene.pod.process is not None
    there = (
        "nsenter",
        f"--target={scene.pod.process.pid}",
        "--user",
        "--mount",
        "--preserve-credentials",
    )
    file = scene.pod.environment["CLAW_STATE"]
    code = (
        f"import sqlite3, sys; d = sqlite3.connect({file!r}, autocommit=True, timeout=20); "
        f"d.execute({statement!r});"
    )
    code += "print('done', flush=True); sys.stdin.read()"
    command = [*there, sys.executable, "-c", code]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"done\n"
    return process


def ended(process: subprocess.Popen[bytes]) -> None:
    with process:
        process.kill()


def is_full(scene: Scene) -> Callable[[], object]:
    ended(other(scene, "PRAGMA wal_checkpoint(TRUNCATE)"))  # a long log has free space
    filler = disk(scene) / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return filler.unlink


def is_locked(scene: Scene) -> Callable[[], object]:
    process = other(scene, "BEGIN EXCLUSIVE")
    return lambda: ended(process)


def is_moved_away(scene: Scene) -> Callable[[], object]:
    file = disk(scene) / "s.db"
    file.rename(f"{file}.away")
    return lambda: Path(f"{file}.away").rename(file)


@pytest.mark.requirement("state:file-outage")
@pytest.mark.parametrize("way", [is_full, is_locked, is_moved_away])
def test_while_the_file_can_not_be_written_chat_goes_on_reads_run_and_writes_are_refused_until_it_can(
    scene: Scene, way: Callable[[Scene], Callable[[], object]]
) -> None:
    name = way.__name__
    asked = {"role": "user", "content": f"Buy {name}"}
    assert scene.turn(asked, trades=f"{name} before")[1][1]["ok"]
    lines = len(scene.pod.log())
    ends = way(scene)
    try:
        scene.goes_on_but_for_writes(name)
        assert scene.told(lines)[0] == "state_unusable"
        assert scene.told(lines).count("state_unusable") == 1
    finally:
        ends()
    eventually(scene.ready, "the state is back")
    assert [event for event in scene.told(lines) if event in ("state_unusable", "usable")] == [
        "state_unusable",
        "usable",
    ]
    scene.is_as_before(asked, name)
