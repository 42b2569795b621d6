"""What the demo starts and what it leaves: processes in groups of their own, one temporary directory, and nothing at the end.

Every child writes to a log file in that directory. A child gets the variables named here and those it is given, never the
whole environment: a provider's key must not reach a process by accident.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Self

import httpx2

INHERITED = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "SYSTEMROOT",
)
READY_SECONDS = 30.0
TURN_SECONDS = 150.0
STOP_SECONDS = 5.0
LONGEST_LINE = 4 * 1024 * 1024


class StageError(Exception):
    """A process did not do its part; the message says which and how."""


@contextlib.asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """Bounds a wait, and names what was waited for."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise StageError(f"{what}: not within {seconds:.0f} s") from error


def free_ports(count: int) -> list[int]:
    """Ports that are free now, below those that the system gives to outgoing connections, of which one might take them."""
    found: list[int] = []
    with contextlib.ExitStack() as held_until_they_differ:
        while len(found) < count:
            port = 10_000 + secrets.randbelow(22_000)
            with contextlib.suppress(OSError):
                held_until_they_differ.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
    return found


class Stage:
    """Use as `async with`: leaving it, however that happens, stops every child and removes the directory."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="trading-desk-"))
        self.logs = self.root / "logs"
        self.logs.mkdir()
        (self.root / "home").mkdir()
        self._children: dict[str, Process] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        try:
            await asyncio.gather(*(self._stop(child) for child in self._children.values()))
        finally:
            shutil.rmtree(self.root, ignore_errors=True)

    async def serve(self, name: str, command: Sequence[str | Path], env: dict[str, str], ready: str) -> None:
        """Starts a service and waits until `ready` answers 200."""
        child = await self._start(name, command, env)
        async with within(READY_SECONDS, f"{name} is ready"), httpx2.AsyncClient(trust_env=False, timeout=2) as client:
            while child.returncode is None:
                with contextlib.suppress(httpx2.TransportError):
                    if (await client.get(ready)).status_code == 200:
                        return
                await asyncio.sleep(0.05)
        raise StageError(f"{name} ended with status {child.returncode} before it was ready")

    async def run(self, name: str, command: Sequence[str | Path], env: dict[str, str]) -> str:
        """Runs a command to its end and returns what it printed."""
        child = await self._start(name, command, env)
        async with within(READY_SECONDS, f"{name} ends"):
            status = await child.wait()
        output = self.log(name)
        if status != 0:
            raise StageError(f"{name} ended with status {status}")
        return output

    async def converse(self, name: str, command: Sequence[str | Path], env: dict[str, str]) -> Conversation:
        return Conversation(name, await self._start(name, command, env, piped=True))

    def log(self, name: str) -> str:
        path = self.logs / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def tails(self, lines: int = 15) -> str:
        """The end of every log, for whoever must find out what went wrong."""
        parts = []
        for path in sorted(self.logs.glob("*.log")):
            tail = path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
            if tail:
                parts.append("\n".join([f"--- {path.stem}: last lines of its log", *(line[:600] for line in tail)]))
        return "\n".join(parts)

    async def _start(
        self, name: str, command: Sequence[str | Path], env: dict[str, str], *, piped: bool = False
    ) -> Process:
        whole = {key: os.environ[key] for key in INHERITED if key in os.environ}
        whole |= {"HOME": str(self.root / "home"), "NO_PROXY": "127.0.0.1,localhost", "PYTHONUNBUFFERED": "1", **env}
        with (self.logs / f"{name}.log").open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                *command,
                env=whole,
                stdin=PIPE if piped else DEVNULL,
                stdout=PIPE if piped else log,
                stderr=log,
                start_new_session=True,
                limit=LONGEST_LINE,
            )
        self._children[name] = child
        return child

    async def _stop(self, child: Process) -> None:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if child.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, sign)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.wait(), STOP_SECONDS)


class Conversation:
    """A runner that takes a prompt a line and answers with what it prints, a JSON line at the end."""

    def __init__(self, name: str, child: Process) -> None:
        self._name = name
        self._child = child
        self.printed = ""

    async def ask(self, prompt: str) -> dict[str, Any]:
        """One turn of the runner: the JSON line."""
        stdin, stdout = self._child.stdin, self._child.stdout
        if stdin is None or stdout is None:
            raise StageError(f"{self._name} has no pipes")
        stdin.write(f"{prompt}\n".encode())
        await stdin.drain()
        async with within(TURN_SECONDS, f"{self._name} answers"):
            while line := (await stdout.readline()).decode():
                self.printed += line
                if line.startswith('{"prompt"'):
                    return dict(json.loads(line))
        raise StageError(f"{self._name} ended in the middle of a turn")
