"""The demo's child processes, in groups of their own, and its temporary directory; neither is left at the end.

A child gets the variables in INHERITED and those that the caller names, never the whole environment: a provider's key
must not reach a process by accident. Its output goes to a log file in the directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import httpx2

INHERITED = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY")
READY_SECONDS = 30.0
STOP_SECONDS = 5.0


class StageError(Exception):
    """A process failed or was late; the message names it."""


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, below those that the system gives to outgoing connections."""
    ports: list[int] = []
    with contextlib.ExitStack() as sockets:  # Held open until all are found, so that they differ.
        while len(ports) < count:
            port = 10_000 + secrets.randbelow(22_000)
            with contextlib.suppress(OSError):
                sockets.enter_context(socket.socket()).bind(("127.0.0.1", port))
                ports.append(port)
    return ports


class Stage:
    """Use as `async with`: leaving it, for whatever reason, stops every child and removes the directory."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="trading-desk-"))
        (self.root / "home").mkdir()
        self._children: list[Process] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        try:
            await asyncio.gather(*map(_stop, self._children))
        finally:
            shutil.rmtree(self.root, ignore_errors=True)

    async def serve(self, name: str, command: Sequence[str | Path], env: dict[str, str], ready_url: str) -> None:
        """Start a service and wait until `ready_url` answers 200."""
        child = await self._start(name, command, env)
        async with httpx2.AsyncClient(trust_env=False, timeout=2) as client:
            for _ in range(int(READY_SECONDS / 0.05)):
                if child.returncode is not None:
                    raise StageError(f"{name} ended with status {child.returncode} before it was ready")
                with contextlib.suppress(httpx2.TransportError):
                    if (await client.get(ready_url)).status_code == 200:
                        return
                await asyncio.sleep(0.05)
        raise StageError(f"{name} is not ready after {READY_SECONDS:.0f} s")

    async def run(self, name: str, command: Sequence[str | Path], env: dict[str, str], seconds: float) -> str:
        """Run a command to its end and return its output."""
        child = await self._start(name, command, env)
        try:
            status = await asyncio.wait_for(child.wait(), seconds)
        except TimeoutError as error:
            raise StageError(f"{name} has not ended after {seconds:.0f} s") from error
        if status != 0:
            raise StageError(f"{name} ended with status {status}")
        return self.log(name)

    def log(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def log_ends(self) -> str:
        """Return the last lines of every log."""
        names = sorted(path.stem for path in self.root.glob("*.log"))
        return "\n".join(
            "\n".join(
                [f"last lines of the log of {name}:", *(line[:600] for line in self.log(name).splitlines()[-15:])]
            )
            for name in names
        )

    async def _start(self, name: str, command: Sequence[str | Path], env: dict[str, str]) -> Process:
        inherited = {key: os.environ[key] for key in INHERITED if key in os.environ}
        home = {"HOME": str(self.root / "home"), "NO_PROXY": "127.0.0.1,localhost", "PYTHONUNBUFFERED": "1"}
        with (self.root / f"{name}.log").open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                *command, env=inherited | home | env, stdin=DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._children.append(child)
        return child


async def _stop(child: Process) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, sign)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.wait(), STOP_SECONDS)
