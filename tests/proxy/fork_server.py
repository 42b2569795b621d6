"""Proxies as copies of one process that has imported mitmproxy and the addon: most of a proxy's start is imports.

Everything after the imports is real: each proxy is a process with its own environment, options, files and state.
``python -m tests.proxy.fork_server`` reads orders, a JSON object a line, and writes a pid for each, and later its exit code.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = ("mitmdump", "mitmweb")


class ForkedProcess:
    """A proxy with the interface of ``subprocess.Popen``, as far as tests use it."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid, self._server = pid, server

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        return self._server.exit_code(self.pid, 0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._server.exit_code(self.pid, 1e6 if timeout is None else timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a forked proxy", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that is copied. It ends with the process that runs the tests."""

    def __init__(self) -> None:
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "tests.proxy.fork_server"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._lock = threading.Lock()  # threads of scripted peers kill proxies, too
        self._received = b""
        self._pids: list[int] = []
        self._codes: dict[int, int] = {}

    def start(self, command: list[str], cwd: Path, env: dict[str, str], out: Path, err: Path) -> ForkedProcess:
        """Start a proxy whose output is appended to two files."""
        order = {"command": command, "cwd": str(cwd), "env": env, "out": str(out), "err": str(err)}
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            while not self._pids:
                self._receive(60)
            return ForkedProcess(self, self._pids.pop())

    def exit_code(self, pid: int, seconds: float) -> int | None:
        """Return the exit code of a proxy, as Popen has it; None if it has not ended in so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            with self._lock:
                if pid not in self._codes:
                    self._receive(min(max(deadline - time.monotonic(), 0), 0.05))
                if pid in self._codes or time.monotonic() >= deadline:
                    return self._codes.get(pid)

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(timeout=20)

    def _receive(self, seconds: float) -> None:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return
        data = os.read(self._process.stdout.fileno(), 1 << 16)
        assert data, "the fork server has ended"
        *lines, self._received = (self._received + data).split(b"\n")
        for message in map(json.loads, lines):
            if "code" in message:
                self._codes[message["pid"]] = message["code"]
            else:
                self._pids.append(message["pid"])


_starting = threading.Lock()
_servers: list[ForkServer] = []


def fork_server() -> ForkServer:
    """Return the server of this process, which is started on first use; threads may ask at the same time."""
    with _starting:
        if not _servers:
            _servers.append(ForkServer())
        return _servers[0]


def close_fork_server() -> None:
    """End the server of this process, if one was started."""
    with _starting:
        while _servers:
            _servers.pop().close()


def main() -> None:
    """Serve orders; in a copy, become the proxy that was ordered."""
    _import_all()
    order = _serve()
    if order is not None:
        tools = importlib.import_module("mitmproxy.tools.main")
        sys.argv = order["command"]
        sys.exit(getattr(tools, Path(sys.argv[0]).name)())


def _import_all() -> None:
    """Import the modules that a proxy imports: those of mitmdump, and all that its script names."""
    script = ast.parse((ROOT / "addons" / "cllama.py").read_text(encoding="utf-8"))
    modules = [node.module for node in script.body if isinstance(node, ast.ImportFrom) and node.module]
    for module in ("mitmproxy.tools.main", "mitmproxy.tools.dump", *modules):
        importlib.import_module(module)
    gc.freeze()  # pages stay shared with the copies


def _serve() -> dict[str, Any] | None:
    """Return the order in the process that is to carry it out, or None in the server once its input has ended."""
    ended, end = os.pipe()
    os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, and they end this
    signal.set_wakeup_fd(end)
    while True:
        ready, _, _ = select.select([0, ended], [], [])
        if ended in ready:
            os.read(ended, 1 << 10)
            _report_ended()
        if 0 in ready:
            if not (line := sys.stdin.buffer.readline()):
                return None
            if not (pid := os.fork()):
                signal.set_wakeup_fd(-1)
                os.close(ended)
                os.close(end)
                return _become(json.loads(line))
            _write({"pid": pid})


def _report_ended() -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _write({"pid": ended[0], "code": os.waitstatus_to_exitcode(ended[1])})


def _become(order: dict[str, Any]) -> dict[str, Any]:
    """Take over directory, environment, output and signals of the order."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, file, flags in ((0, os.devnull, os.O_RDONLY), (1, order["out"], append), (2, order["err"], append)):
        opened = os.open(file, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    return order


def _write(message: dict[str, int]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
