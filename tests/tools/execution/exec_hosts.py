"""Hosts of the exec tools for tests: as root, or with their rights dropped; in
namespaces, or by Landlock alone.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.not_tested import skip_for_kernel
from tests.opened_paths import OpenedPaths
from tests.waiting import DEADLINE, eventually

ROOT = Path(__file__).resolve().parents[3]
NOBODY = 65_534
OWNER = 1_501
"""The owner of the workspaces of a host that is root."""
SECRET = "the-hosts-secret"
HOSTS = [f"{user}-{form}" for user in ("root", "nobody") for form in ("namespaces", "landlock")]


@dataclass
class Host:
    """A running host. ``user``: whose its commands are."""

    process: subprocess.Popen[str]
    home: Path
    user: int
    hello: dict[str, Any] = field(default_factory=dict)
    _answers: dict[str, queue.Queue[dict[str, Any]]] = field(default_factory=dict)
    _ids: Iterator[int] = field(default_factory=itertools.count)

    @property
    def workspace(self) -> Path:
        return self.home / "workspace"

    @property
    def form(self) -> str:
        return str(self.hello["form"])

    def start(self, tool: str, **args: Any) -> str:
        """Begin a call; return its id."""
        name = str(next(self._ids))
        self._answers[name] = queue.Queue()
        self._send({"id": name, "tool": tool, "workspace": str(self.workspace), "args": args})
        return name

    def finish(self, name: str) -> dict[str, Any]:
        return self._answers[name].get(timeout=DEADLINE)

    def cancel(self, name: str) -> None:
        self._send({"id": name, "tool": "cancel"})

    def call(self, tool: str, **args: Any) -> dict[str, Any]:
        return self.finish(self.start(tool, **args))

    def run(self, command: str, **args: Any) -> dict[str, Any]:
        """Return the result of a command line that ends."""
        answer = self.call("exec_shell", command=command, **args)
        assert "result" in answer, answer
        return dict(answer["result"])

    def read(self) -> None:
        """Read the answers until the host ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            self._answers[answer["id"]].put(answer)

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()


def let_others_in(home: Path) -> None:
    """Let other users enter a folder of a test, whose folders pytest makes for
    their owner alone.
    """
    outside = Path(tempfile.gettempdir())
    for each in (home, *home.parents):
        if each == outside:
            return
        each.chmod(0o755)


@contextlib.contextmanager
def running_host(kind: str, home: Path, max_abi: int = 99, **settings: Any) -> Iterator[Host]:
    """Run a host of one of the ``HOSTS``, whose workspace is ``home/workspace``."""
    who, _, form = kind.partition("-")
    if os.geteuid() != 0:
        skip_for_kernel("other users", f"{kind} needs root")
    user = OWNER if who == "root" else NOBODY
    let_others_in(home)
    (home / "workspace").mkdir()
    os.chown(home / "workspace", user, user)
    given = json.dumps({"forms": [form], "max_abi": max_abi, "settings": settings})
    command = [sys.executable, str(Path(__file__).with_name("exec_host.py")), given]
    if who == "nobody":
        rights = [
            "--clear-groups",
            "--inh-caps=-all",
            "--bounding-set=-all",
            f"--reuid={user}",
            f"--regid={user}",
        ]
        opened = OpenedPaths(home / "held").lines(Path(sys.base_prefix), Path(sys.prefix), ROOT)
        script = "\n".join(
            [
                "set -e",
                "mount --make-rprivate /",
                *opened,
                f"exec setpriv {shlex.join([*rights, *command])}",
            ]
        )
        command = ["unshare", "--mount", "sh", "-c", script]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "SERVICE_SECRET": SECRET,
        "TMPDIR": "/tmp",
    }
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    )
    host = Host(process, home, user)
    try:
        assert process.stdout is not None
        host.hello = json.loads(process.stdout.readline())
        reading = threading.Thread(target=host.read)
        reading.start()
        yield host
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        reading.join(DEADLINE)
        process.stdout.close()  # type: ignore[union-attr]


def processes_with(marker: str) -> list[str]:
    """Return the command lines of all processes that name a marker."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = each.read_bytes()
            if marker.encode() in line:
                found.append(line.decode(errors="replace"))
    return found


def new_marker() -> str:
    return f"7{time.time_ns() % 10**9}"


def gone(marker: str) -> None:
    eventually(lambda: not processes_with(marker), f"the end of what names {marker}")


@contextmanager
def a_host(kind: str, home: Path) -> Iterator[Host]:
    let_others_in(home)
    with running_host(kind, home) as running:
        yield running
