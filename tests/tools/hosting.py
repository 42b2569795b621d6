"""The real ``claw tools`` as a process, with a third party's package installed, and
clients that speak to it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from pydantic import TypeAdapter

from claw_contract.log.tool_host import ToolHostLogEvent
from claw_mcp.protocol import CAPABILITIES_META, STATELESS_VERSION, VERSION_META
from tests.fork_server import CLAW, Process, run_claw, start
from tests.waiting import eventually

TOOLS = [*CLAW, "tools"]
PACKAGE = Path(__file__).with_name("package")
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
TOKENS = {"TOKEN_A": "token-of-a-0123456789", "TOKEN_B": "token-of-b-0123456789"}
_LINE = TypeAdapter[ToolHostLogEvent](ToolHostLogEvent.__value__)
CONFIG = """\
toolhost:
  listen: {host: 127.0.0.1, port: 0, allowed_hosts: ["toolhost:8080"], max_body: 64KiB}
  principals:
    a: {token: {env: TOKEN_A}, workspace: ., tools: ["made__*"]}
    b: {token: {env: TOKEN_B}, workspace: ., tools: [made__echo]}
  audit_arguments: full
"""


def install(project: Path, target: Path) -> Path:
    """Install a project into a folder, by pip and without a network; return the folder."""
    options = [
        "--quiet",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", target, project],
        check=True,
        timeout=120,
    )
    return target


def environ_of(packages: Path | None, **more: str) -> dict[str, str]:
    return {**os.environ, **TOKENS, **({"PYTHONPATH": str(packages)} if packages else {}), **more}


def run(
    *arguments: str, home: Path, packages: Path | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a verb of ``claw tools`` in a folder to its end."""
    return run_claw(["tools", *arguments], home, environ_of(packages, **environ))


@dataclass
class Client:
    """A client with a bearer token; after ``open`` one of a session."""

    url: str
    token: str
    session: str = ""
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def post(self, message: Any, **headers: str) -> httpx2.Response:
        own = {"authorization": f"Bearer {self.token}"} | (
            {"mcp-session-id": self.session} if self.session else {}
        )
        sent = {
            **ACCEPT,
            **own,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return httpx2.post(self.url, content=body, headers=sent, timeout=60)

    def open(self) -> Client:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        response = self.post(request("initialize", params))
        assert response.status_code == 200, response.text
        self.session = response.headers["mcp-session-id"]
        assert (
            self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
        )
        return self

    def ask(self, method: str, params: Any = None) -> Any:
        """Return the message that answers."""
        return last_message(self.post(request(method, params, next(self.ids))))

    def call(self, name: str, **arguments: Any) -> Any:
        return self.ask("tools/call", {"name": name, "arguments": arguments})

    def names(self) -> list[str]:
        return [tool["name"] for tool in self.ask("tools/list")["result"]["tools"]]


def request(method: str, params: Any = None, request_id: Any = 0) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method} | (
        {} if params is None else {"params": params}
    )


def stateless_request(
    method: str, params: Any = None, request_id: Any = 1
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a request of the stateless era, and its headers."""
    meta = {VERSION_META: STATELESS_VERSION, CAPABILITIES_META: {}}
    params = {**(params or {}), "_meta": {**(params or {}).get("_meta", {}), **meta}}
    name = {"mcp_name": params["name"]} if "name" in params else {}
    return request(method, params, request_id), {
        "mcp_protocol_version": STATELESS_VERSION,
        "mcp_method": method,
        **name,
    }


def last_message(response: httpx2.Response) -> Any:
    if response.headers["content-type"] == "application/json":
        return response.json()
    return [
        json.loads(line[5:]) for line in response.text.splitlines() if line.startswith("data:")
    ][-1]


@dataclass
class RunningHost:
    """A host that serves HTTP."""

    process: Process
    log: Path

    @property
    def base(self) -> str:
        return f"http://{self.lines('tool_host')[0]['address']}"

    def client(self, principal: str = "a") -> Client:
        return Client(f"{self.base}/mcp", TOKENS[f"TOKEN_{principal.upper()}"])

    def lines(self, kind: str = "") -> list[dict[str, Any]]:
        """Return the lines of the log, each of them as the contract has it."""
        return read_lines(self.log.read_bytes(), kind)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


def read_lines(log: bytes, kind: str = "") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.decode().rpartition("\n")[0].splitlines()]
    for line in lines:
        _LINE.validate_python(line)
    return [line for line in lines if kind in {"", line["type"]}]


@contextlib.contextmanager
def serving(
    home: Path, packages: Path | None, config: str = CONFIG, **environ: str
) -> Iterator[RunningHost]:
    """Run ``claw tools serve`` in a folder, until the block ends."""
    (home / "toolhost.yml").write_text(config)
    log = home / "host.log"
    with log.open("wb") as out, Path(os.devnull).open("rb") as nothing:
        process = start(
            [*TOOLS, "serve"], home, environ_of(packages, **environ), [nothing, out, out]
        )
    host = RunningHost(process, log)
    try:
        eventually(
            lambda: process.poll() is not None or b"listening" in log.read_bytes(),
            "the host listens",
        )
        assert process.poll() is None, log.read_text()
        yield host
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(60)
