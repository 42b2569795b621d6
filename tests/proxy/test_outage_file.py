"""A state file that fails under the real mitmdump: its disk full, locked, and moved away."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.not_tested import skip_for_kernel
from tests.proxy.outage import StatefulPod, furnish
from tests.proxy.pod import pod_at
from tests.waiting import eventually

OF_ITS_OWN = ("unshare", "--map-root-user", "--mount")
SMALL_DISK = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'


@pytest.fixture(scope="module")
def stateful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StatefulPod]:
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
    with pod_at(home, launcher=mounts) as pod:
        pod.environment["CLAW_STATE"] = str(disk / "s.db")
        furnish(pod)
        pod.start()
        yield StatefulPod(pod)


def disk(stateful: StatefulPod) -> Path:
    """Return that disk's path through the proxy's root."""
    assert stateful.pod.process is not None
    return Path(f"/proc/{stateful.pod.process.pid}/root{stateful.pod.home}/state")


def other(stateful: StatefulPod, statement: str) -> subprocess.Popen[bytes]:
    """Start another process that has run a statement on the file, and keeps it open
    until it is killed.
    """
    assert stateful.pod.process is not None
    there = (
        "nsenter",
        f"--target={stateful.pod.process.pid}",
        "--user",
        "--mount",
        "--preserve-credentials",
    )
    file = stateful.pod.environment["CLAW_STATE"]
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


def is_full(stateful: StatefulPod) -> Callable[[], object]:
    ended(other(stateful, "PRAGMA wal_checkpoint(TRUNCATE)"))  # a long log has free space
    filler = disk(stateful) / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return filler.unlink


def is_locked(stateful: StatefulPod) -> Callable[[], object]:
    process = other(stateful, "BEGIN EXCLUSIVE")
    return lambda: ended(process)


def is_moved_away(stateful: StatefulPod) -> Callable[[], object]:
    file = disk(stateful) / "s.db"
    file.rename(f"{file}.away")
    return lambda: Path(f"{file}.away").rename(file)


@pytest.mark.requirement("state:file-outage")
@pytest.mark.parametrize("way", [is_full, is_locked, is_moved_away])
def test_while_the_file_can_not_be_written_chat_goes_on_reads_run_and_writes_are_refused_until_it_can(
    stateful: StatefulPod, way: Callable[[StatefulPod], Callable[[], object]]
) -> None:
    name = way.__name__
    asked = {"role": "user", "content": f"Buy {name}"}
    assert stateful.turn(asked, trades=f"{name} before")[1][1]["ok"]
    lines = len(stateful.pod.log())
    ends = way(stateful)
    try:
        stateful.goes_on_but_for_writes(name)
        assert stateful.told(lines)[0] == "state_unusable"
        assert stateful.told(lines).count("state_unusable") == 1
    finally:
        ends()
    eventually(stateful.ready, "the state is back")
    assert [event for event in stateful.told(lines) if event in ("state_unusable", "usable")] == [
        "state_unusable",
        "usable",
    ]
    stateful.is_as_before(asked, name)
