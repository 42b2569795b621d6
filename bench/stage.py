"""The processes of the bench: peers, proxies, the load generator, and the CPU and memory of a proxy by /proc."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import wire
from load import Load, LoadResult

HERE = Path(__file__).parent
ROOT = HERE.parent
MITMDUMP = Path(sys.executable).parent / "mitmdump"
READY_SECONDS = 60
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FLAGS = {
    "flow_detail": 0,
    "onboarding": "false",
    "termlog_verbosity": "error",
    "connection_strategy": "lazy",
    "tcp_timeout": 3600,
}
"""The options that our addon sets, for the proxy without it."""


@dataclass(frozen=True)
class Process:
    """A process that is being measured."""

    pid: int
    port: int

    def cpu(self) -> float:
        """Return the seconds of CPU so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss(self) -> int:
        """Return the bytes of memory in use."""
        return int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE


@dataclass(frozen=True)
class Stage:
    """The running processes: peers, mitmdump without an addon (also streaming), with ours, with ours and the plain dispatch."""

    provider: int
    service: int
    bare: Process
    streaming: Process
    ours: Process
    plain: Process
    before: Process | None
    """The proxy of another checkout, or None."""


@contextmanager
def stage(home: Path, before: Path | None = None) -> Iterator[Stage]:
    """Start the peers and the proxies, and end them afterwards; ``before`` is another checkout, whose proxy runs too."""
    with ExitStack() as started:
        provider, service = (started.enter_context(peer(name)) for name in ("provider", "service"))
        context = pod(home, f"http://127.0.0.1:{service}", {"analyst": "http", "mcp": "mcp", "plain": ""})

        def bare(**more: Any) -> Process:
            port = free_port()
            mode = f"reverse:http://127.0.0.1:{provider}@127.0.0.1:{port}"
            options = [f"--set={name}={value}" for name, value in {**_FLAGS, **more}.items()]
            return started.enter_context(proxy(home, port, {}, "--mode", mode, *options))

        def ours(name: str, dispatch: str = "fast", root: Path = ROOT) -> Process:
            port = free_port()
            state = home / name
            env = {
                "LISTEN_ADDR": f"127.0.0.1:{port}",
                "CLAW_PROXY_ADDR": f"127.0.0.1:{free_port()}",
                "CLAW_CONTEXT_ROOT": str(context),
                "CLAW_AUTH_DIR": str(home / "auth"),
                "CLAW_SESSION_HISTORY_DIR": str(state / "history"),
                "CLAW_STATE": str(state / "state.db"),
                "OPENAI_API_KEY": "sk-bench-provider-key-0003",
                "OPENAI_BASE_URL": f"http://127.0.0.1:{provider}/v1",
                "CLLAMA_DISPATCH": dispatch,
                "PYTHONPATH": str(root),
            }
            state.mkdir()
            return started.enter_context(proxy(home, port, env, "-s", str(root / "addons" / "cllama.py")))

        yield Stage(
            provider,
            service,
            bare(),
            bare(stream_large_bodies="1"),
            ours("fast"),
            ours("plain", "plain"),
            ours("before", root=before.resolve()) if before else None,
        )


def run_load(load: Load) -> LoadResult:
    """Run the load generator."""
    command = [sys.executable, str(HERE / "load.py")]
    done = subprocess.run(command, input=json.dumps(asdict(load)), stdout=subprocess.PIPE, text=True, check=True)
    return LoadResult(**json.loads(done.stdout))


def count_requests(port: int, what: str = "requests") -> int:
    """Return the number of requests, or of ``sessions``, that a peer has had."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{what}", timeout=5) as response:
        return int(response.read())


def free_port() -> int:
    """Return a free port below those that the system gives to outgoing connections, of which the load makes many."""
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with suppress(OSError), socket.socket() as held:
            held.bind(("127.0.0.1", port))
            return port


@contextmanager
def peer(name: str) -> Iterator[int]:
    command = [sys.executable, str(HERE / "peers.py"), name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


@contextmanager
def proxy(home: Path, port: int, env: dict[str, str], *arguments: str) -> Iterator[Process]:
    """Run mitmdump and wait until it is ready; its output goes to a file, as in a container."""
    (home / "home").mkdir(exist_ok=True)
    whole = {"PATH": os.environ["PATH"], "HOME": str(home / "home"), "PYTHONPATH": str(ROOT), **env}
    with (home / f"{port}.log").open("ab") as log:
        process = subprocess.Popen(
            [str(MITMDUMP), *arguments], cwd=home, env=whole, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        _wait_until_ready(process, f"http://127.0.0.1:{port}/ready", home / f"{port}.log")
        yield Process(process.pid, port)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                if response.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"a proxy is not ready; its log: {log.read_text(encoding='utf-8', errors='replace')}")


def pod(home: Path, service_url: str, agents: Mapping[str, str]) -> Path:
    """Write the context directories of agents, with twelve tools over ``http`` or ``mcp``, or without; return their root."""
    (home / "auth").mkdir()
    for agent, transport in agents.items():
        directory = home / "context" / agent
        directory.mkdir(parents=True)
        metadata = {"service": agent, "pod": "bench", "type": "generic", "token": f"{agent}:{wire.AGENT_SECRET}"}
        (directory / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
        if transport:
            tools = wire.manifest(service_url, mcp=transport == "mcp")
            (directory / "tools.json").write_text(json.dumps(tools), encoding="utf-8")
    return home / "context"
