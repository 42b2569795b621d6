"""The demo's child processes and its temporary directory; neither is left at the end.

A child gets the variables in INHERITED and those that the caller names, never the whole
environment: a provider's key must not reach a process by accident. Its output goes to a log file in
the directory.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

DESK = Path(__file__).resolve().parent  # The children's working directory
INHERITED = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
)

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
type Command = Sequence[str | Path]


class StageError(Exception):
    """A process failed or was late, or a signal arrived; the message says which."""


class Stage(ExitStack):
    """Use as `with`: leaving it, for whatever reason, stops every child and removes the directory.

    A signal is noted and acted upon in the next wait, so that no child is lost between its start
    and its entry in the stack.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stopped_by: signal.Signals | None = None
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sign, self._note_signal)
        self.root = Path(
            self.enter_context(
                TemporaryDirectory(prefix="trading-desk-", ignore_cleanup_errors=True)
            )
        )

    def serve(self, name: str, command: Command, env: dict[str, str], ready_url: str) -> None:
        """Start a service and wait until `ready_url` answers 200."""
        child = self._start(name, command, env)
        self.wait_until(
            lambda: child.poll() is not None or _is_ready(ready_url), f"{name} is ready"
        )
        if child.returncode is not None:
            raise StageError(f"{name} ended with status {child.returncode} before it was ready")

    def run(self, name: str, command: Command, env: dict[str, str], seconds: float = 30) -> None:
        """Run a command to its end."""
        child = self._start(name, command, env)
        self.wait_until(lambda: child.poll() is not None, f"{name} ends", seconds)
        if child.returncode != 0:
            raise StageError(f"{name} ended with status {child.returncode}")

    def wait_until(self, condition: Callable[[], bool], text: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if self.stopped_by is not None:
                raise StageError(f"stopped by {self.stopped_by.name}")
            if time.monotonic() > deadline:
                raise StageError(f"waited {seconds:.0f} s in vain until {text}")
            time.sleep(0.02)

    def _start(self, name: str, command: Command, env: dict[str, str]) -> subprocess.Popen[bytes]:
        inherited = {key: os.environ[key] for key in INHERITED if key in os.environ}
        env = (
            inherited
            | {"HOME": str(self.root), "NO_PROXY": "127.0.0.1,localhost", "PYTHONUNBUFFERED": "1"}
            | env
        )
        with (self.root / f"{name}.log").open("ab") as log:
            null = subprocess.DEVNULL
            child = subprocess.Popen(
                command,
                cwd=DESK,
                env=env,
                stdin=null,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.callback(_stop, child)
        return child

    def _note_signal(self, number: int, _frame: object) -> None:
        self.stopped_by = signal.Signals(number)


def _stop(child: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            if child.poll() is None:
                os.killpg(child.pid, sign)
                child.wait(timeout=5)


def _is_ready(url: str) -> bool:
    """Ask without TLS, whose context would cost as much as the service's start."""
    with suppress(OSError), _DIRECT.open(url, timeout=2) as answer:
        return bool(answer.status == 200)
    return False


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, below those that the system gives to outgoing connections."""
    ports: list[int] = []
    with ExitStack() as sockets:  # Held open until all are found, so that they differ.
        while len(ports) < count:
            port = 10_000 + secrets.randbelow(22_000)
            with suppress(OSError):
                sockets.enter_context(socket.socket()).bind(("127.0.0.1", port))
                ports.append(port)
    return ports
