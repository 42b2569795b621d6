"""The real ``claw mcp-stdio`` as a process, and clients that speak raw HTTP to it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from pydantic import TypeAdapter

from claw_contract.log.wrapper import WrapperLogEvent
from claw_mcp.protocol import CAPABILITIES_META, STATELESS_VERSION, VERSION_META, RpcMessage
from tests.fork_server import Process, start
from tests.waiting import eventually, free_port

CHILD = Path(__file__).with_name("child.py")
CLAW = [sys.executable, "-c", "from claw_cli.app import main; main()", "mcp-stdio"]
JSON_AND_EVENTS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
}
_LINE = TypeAdapter[WrapperLogEvent](WrapperLogEvent.__value__)


@dataclass
class Client:
    """One session of the handshake era."""

    url: str
    session: str
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def headers(self) -> dict[str, str]:
        return {
            **JSON_AND_EVENTS,
            "mcp-session-id": self.session,
            "mcp-protocol-version": "2025-11-25",
        }

    def send(
        self, method: str, params: Any = None, request_id: Any = None, **headers: str
    ) -> httpx2.Response:
        """A request, or with an id of False a notification."""
        message = {"jsonrpc": "2.0", "method": method} | (
            {} if params is None else {"params": params}
        )
        if request_id is not False:
            message["id"] = next(self.ids) if request_id is None else request_id
        return httpx2.post(self.url, json=message, headers={**self.headers, **headers}, timeout=60)

    def call(
        self, tool: str, *, request_id: Any = None, meta: Any = None, **arguments: Any
    ) -> dict[str, Any]:
        """Return the message that answers a call."""
        params = {"name": tool, "arguments": arguments} | ({} if meta is None else {"_meta": meta})
        return messages(self.send("tools/call", params, request_id))[-1]

    def result(self, tool: str, **arguments: Any) -> Any:
        answer = self.call(tool, **arguments)
        assert "result" in answer, answer
        return answer["result"]

    def seen(self, method: str) -> list[dict[str, Any]]:
        """The messages of that method that the server notes: a call only while it hangs."""
        noted: list[dict[str, Any]] = messages(self.send("seen"))[-1]["result"]["seen"]
        return [message for message in noted if message["method"] == method]

    @contextlib.contextmanager
    def listening(self) -> Iterator[Iterator[Any]]:
        """The messages of the session's own stream."""
        with httpx2.stream("GET", self.url, headers=self.headers, timeout=60) as response:
            assert response.status_code == 200
            lines = response.iter_lines()
            assert next(lines) == ": open"
            yield (json.loads(line[5:]) for line in lines if line.startswith("data:"))


def messages(response: httpx2.Response) -> list[Any]:
    """The messages of an answer, as JSON or as events."""
    if response.headers["content-type"] == "application/json":
        return [response.json()]
    return [json.loads(line[5:]) for line in response.text.splitlines() if line.startswith("data:")]


def stateless(url: str, method: str, params: Any = None, timeout: float = 60) -> httpx2.Response:
    """A request of the stateless era."""
    params = {**(params or {})}
    meta = {VERSION_META: STATELESS_VERSION, CAPABILITIES_META: {}, **params.pop("_meta", {})}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    name = {"mcp-name": params["name"]} if "name" in params else {}
    headers = {
        **JSON_AND_EVENTS,
        "mcp-protocol-version": STATELESS_VERSION,
        "mcp-method": method,
        **name,
    }
    return httpx2.post(url, json=message, headers=headers, timeout=timeout)


@dataclass
class RunningWrapper:
    """A wrapper that runs."""

    process: Process
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def open(self, version: str = "2025-11-25") -> Client:
        params = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        response = httpx2.post(self.url, json=message, headers=JSON_AND_EVENTS, timeout=60)
        assert response.status_code == 200, response.text
        client = Client(self.url, response.headers["mcp-session-id"])
        assert client.send("notifications/initialized", request_id=False).status_code == 202
        return client

    def health(self) -> int:
        with contextlib.suppress(httpx2.TransportError):
            return httpx2.get(f"http://127.0.0.1:{self.port}/health", timeout=10).status_code
        return 0

    def lines(self, kind: str = "") -> list[dict[str, Any]]:
        """The lines of the log, each of them as ``claw_contract.log.wrapper`` has it."""
        whole = self.log.read_text("utf-8").rpartition("\n")[0]
        lines = [json.loads(line) for line in whole.splitlines()]
        for line in lines:
            _LINE.validate_python(line)
        return [line for line in lines if kind in line["type"]]

    def states(self) -> list[str]:
        return [line["state"] for line in self.lines("mcp_server")]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


@contextlib.contextmanager
def wrapper(
    home: Path, *command: str, is_ready: bool = True, **environ: str
) -> Iterator[RunningWrapper]:
    """The wrapper of ``child.py``, or of another command, with its log in ``home``."""
    port, log = free_port(), home / f"wrapper-{free_port()}.log"
    settings = {**os.environ, "LISTEN_ADDR": f"127.0.0.1:{port}", **environ}
    arguments = [*CLAW, "--", *(command or (sys.executable, str(CHILD)))]
    with log.open("wb") as out, Path(os.devnull).open("rb") as nothing:
        process = start(arguments, Path.cwd(), settings, [nothing, out, out])
    wrapped = RunningWrapper(process, port, log)
    try:
        eventually(
            lambda: wrapped.health() in ({200} if is_ready else {200, 503}), "the wrapper is there"
        )
        yield wrapped
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(30)


def is_alive(pid: int) -> bool:
    """Return True if there is such a process; a zombie counts."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class SilentObserver:
    """An observer that hears nothing."""

    def notice(self, message: RpcMessage) -> None: ...
    def log_line(self, line: bytes) -> None: ...
    def bad_output(self, problem: str, line: bytes) -> None: ...
