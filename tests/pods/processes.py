"""The real processes of a worked pod."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.waiting import eventually, free_port

PODS = Path(__file__).resolve().parents[2] / "pods"
DESK = PODS / "trading-desk"


@contextmanager
def serving(name: str, env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a service of the desk on a free port; yield the process and its URL once
    /health answers.
    """
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "--factory",
        f"{name}:application",
        "--app-dir",
        str(DESK),
        "--port",
        str(port),
    ]
    with subprocess.Popen(command, env={**os.environ, **env}) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            eventually(lambda: process.poll() is not None or healthy(url), f"{name} answers")
            assert process.poll() is None, f"{name} ended with {process.returncode}"
            yield process, url
        finally:
            process.kill()


def healthy(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health", timeout=2, trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False


def children(parent: int) -> dict[int, str]:
    """Return the living children of a process by /proc: pid to command line."""
    commands = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            status = (entry / "status").read_text()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if re.search(rf"^PPid:\s+{parent}$", status, re.MULTILINE):
            commands[int(entry.name)] = command
    return commands


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
