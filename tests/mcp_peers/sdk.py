"""The official MCP SDK as a peer: its servers on loopback or stdio, and its client.

It runs in environments of its own. Where a test says nothing else, its processes are copies of one
that has imported the SDK, which takes more than a second.

``make sdks`` makes them (``sdk-1.txt``, ``sdk-2.txt``); a test that needs one is skipped where they
can't be made.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.fork_server import ForkServer, Process, complete, fork_server
from tests.proxy.pod import ROOT, whole_lines
from tests.sdks.hearing import install
from tests.waiting import eventually, free_port

type Sdk = Literal[1, 2]
type Mode = Literal["json", "sse", "stateless"]

SDKS: tuple[Sdk, ...] = (1, 2)
HERE = Path(__file__).parent
SECONDS = 60
"""Seconds that a peer may take for one job."""


def program(name: str, sdk: Sdk = 2) -> str:
    """Return the path of a program in the environment of an SDK, such as ``python``
    or ``mcp-server-time``.
    """
    environment = f".venv/mcp-{sdk}"
    install(f"{environment}/.installed")
    return str(ROOT / environment / "bin" / name)


def imported(sdk: Sdk) -> ForkServer:
    """Return the process that has imported the SDK, whose copies are its servers and clients."""
    return fork_server(f"mcp-{sdk}", program("python", sdk))


def stdio_command(sdk: Sdk, home: Path) -> list[str]:
    """Return the command of the SDK server on stdio; its calls are in ``home / "calls.jsonl"``."""
    return [program("python", sdk), "-P", str(HERE / "sdk_server.py"), "stdio", str(home)]


@dataclass
class SdkServer:
    """A server of the official SDK, in a process of its own, at ``url``.

    Its tools are in ``sdk_server.py``.
    """

    sdk: Sdk
    mode: Mode
    home: Path
    bearer: str = ""
    port: int = field(default_factory=free_port)
    process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        """Start the process, and wait until it answers; after ``stop`` or ``kill``:
        again, at the same port.
        """
        command = [str(HERE / "sdk_server.py"), self.mode, str(self.home)]
        command += ["--port", str(self.port), "--bearer", self.bearer]
        with (
            (self.home / "stderr.log").open("ab") as stderr,
            Path(os.devnull).open("rb") as nothing,
        ):
            self.process = imported(self.sdk).start(
                command, ROOT, os.environ, [nothing, stderr, stderr]
            )
        eventually(self._listens, "the SDK's server listens")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=SECONDS)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=SECONDS)

    def calls(self, tool: str = "") -> list[dict[str, Any]]:
        """Return the calls that were executed, of one tool or of all."""
        return [call for call in lines_of(self.home / "calls.jsonl") if tool in {"", call["tool"]}]

    def requests(self, rpc_method: str = "") -> list[dict[str, Any]]:
        """Return the HTTP requests, each with ``method``, ``headers`` and ``body``;
        of one JSON-RPC method or all.
        """
        requests = lines_of(self.home / "requests.jsonl")
        return [
            request
            for request in requests
            if not rpc_method or (request["body"] or {}).get("method") == rpc_method
        ]

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.home / "stderr.log").read_text(encoding="utf-8")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def sdk_server(sdk: Sdk, mode: Mode, home: Path, bearer: str = "") -> Iterator[SdkServer]:
    """Yield a running server, which ends with the block. ``home`` is a folder of its own."""
    home.mkdir(parents=True, exist_ok=True)
    server = SdkServer(sdk, mode, home, bearer)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def job(
    url: str, *calls: tuple[str, dict[str, Any]], bearer: str = "", **more: Any
) -> dict[str, Any]:
    """Return a job for ``ask``.

    ``more``: ``mode`` ("auto" or "legacy"; SDK 2 only), ``headers``.
    """
    return {"url": url, "bearer": bearer, "calls": calls} | more


def ask(sdk: Sdk, *jobs: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the SDK's client gets for each job: ``server``, ``version``,
    ``tools`` and ``results``, or ``failure``.

    One process does all jobs, at once.
    """
    command = [str(HERE / "sdk_client.py")]
    done = complete(
        command,
        lambda files: imported(sdk).start(command, ROOT, os.environ, files),
        json.dumps(jobs).encode(),
    )
    assert done.returncode == 0, done.stderr
    outcomes: list[dict[str, Any]] = json.loads(done.stdout)
    return outcomes


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in whole_lines(file)] if file.exists() else []
