"""The processes of the bench: peers, proxies, the load generator, and the CPU and
memory of a proxy by /proc.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import wire
from load import Load, LoadResult

HERE = Path(__file__).parent
ROOT = HERE.parent
MITMDUMP = Path(sys.executable).parent / "mitmdump"
CLAW = [sys.executable, "-c", "from claw_cli.app import main; main()"]
EMPTY = HERE / "empty_addon.py"
READY_SECONDS = 60
PINNED = ", pinned"
"""The end of the name of a subject whose proxy is to have a core of its own."""
_CPU_CLOCK = 2
"""With a process, the number of the clock of its CPU, as clock_getcpuclockid(3)
makes it: it counts nanoseconds.
"""
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
    """A process that is being measured, with those that it has started."""

    pid: int
    port: int

    def cpu(self) -> float:
        """Return the seconds of CPU so far, user and system."""
        return sum(time.clock_gettime(~pid << 3 | _CPU_CLOCK) for pid in _family(self.pid))

    def rss(self) -> int:
        """Return the bytes of memory in use."""
        return int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE

    def pin(self, cores: Iterable[int]) -> None:
        """Let every thread run on these cores only."""
        for pid in _family(self.pid):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task.name), cores)


def _family(pid: int) -> Iterator[int]:
    """Yield a process and all its children."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="ascii").split():
            yield from _family(int(child))


class Generator:
    """The running load generator."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._first = 0

    def run(self, load: Load) -> LoadResult:
        """Run a load, whose operations get numbers of their own.

        Stop the bench if an answer is not the expected one.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(
            json.dumps({**asdict(load), "first": self._first}), file=self._process.stdin, flush=True
        )
        if not (line := self._process.stdout.readline()):
            raise SystemExit("the load generator has failed")
        self._first += load.operations + 2 * load.connections
        return LoadResult(**json.loads(line))


@contextmanager
def generator() -> Iterator[Generator]:
    """Run the load generator."""
    command = [sys.executable, str(HERE / "load.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        try:
            yield Generator(process)
        finally:
            process.stdin.close()


@dataclass(frozen=True)
class Site:
    """A place for proxies: two peers, and the context of a pod.

    Each proxy has a state and a history of its own there.
    """

    home: Path
    ports: dict[str, int]
    """The ports of the peers: provider, service."""
    context: Path
    before: Path | None
    """Another checkout, whose proxy is measured too."""

    @cached_property
    def absent(self) -> set[str]:
        """The names of the proxies that can't run."""
        return {
            name
            for name, there in (("before", self.before), ("2 workers", has_workers()))
            if not there
        }

    def proxy(self, name: str, *, connects: bool = True) -> AbstractContextManager[Process]:
        """Return a proxy that starts; without ``connects`` it gets no connection
        before it is measured.
        """
        if name.startswith("bare"):
            options = {"stream_large_bodies": "1"} if name.endswith("streaming") else {}
            return self.bare(**options)
        if name == "empty addon":
            return self.bare("-s", str(EMPTY))

        root = self.before.resolve() if self.before and name == "before" else ROOT
        dispatch = "plain" if name.endswith("plain") else "fast"
        workers = 2 if name == "2 workers" else 0
        return self.ours(dispatch, root, workers, connects=connects)

    @contextmanager
    def bare(self, *arguments: str, **options: Any) -> Iterator[Process]:
        """Run mitmdump without our addon."""
        port = free_port()
        mode = f"reverse:http://127.0.0.1:{self.ports['provider']}@127.0.0.1:{port}"
        flags = [f"--set={name}={value}" for name, value in {**_FLAGS, **options}.items()]
        with proxy(
            self.home, port, {}, [str(MITMDUMP), "--mode", mode, *flags, *arguments]
        ) as process:
            yield process

    @contextmanager
    def ours(
        self, dispatch: str = "fast", root: Path = ROOT, workers: int = 0, *, connects: bool = True
    ) -> Iterator[Process]:
        """Run mitmdump with the addon of a checkout; or ``claw proxy`` with so many workers."""
        port = free_port()
        addresses = {
            "LISTEN_ADDR": f"127.0.0.1:{port}",
            "CLAW_PROXY_ADDR": f"127.0.0.1:{free_port()}",
        }
        own = {"CLLAMA_DISPATCH": dispatch, "PYTHONPATH": str(root)}
        env = {**self.environment(self.home / f"proxy-{port}"), **addresses, **own}
        alone = [str(MITMDUMP), "-s", str(root / "addons" / "cllama.py")]
        command = [*CLAW, "proxy", "--workers", str(workers)] if workers else alone
        with proxy(self.home, port, env, command, connects=connects) as process:
            yield process

    def environment(self, state: Path) -> dict[str, str]:
        """Return the variables of a proxy whose state and history are in a new directory."""
        state.mkdir()
        return {
            "CLAW_CONTEXT_ROOT": str(self.context),
            "CLAW_AUTH_DIR": str(self.home / "auth"),
            "CLAW_SESSION_HISTORY_DIR": str(state / "history"),
            "CLAW_STATE": str(state / "state.db"),
            "OPENAI_API_KEY": "sk-bench-provider-key-0003",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self.ports['provider']}/v1",
        }


@contextmanager
def site(
    home: Path,
    agents: Mapping[str, str],
    thinks: tuple[float, float] = (0.0, 0.0),
    *,
    before: Path | None = None,
) -> Iterator[Site]:
    """Run a provider and a service, which answer after so many seconds, and write
    the agents' context for ``pod``.
    """
    with peer("provider", thinks[0]) as provider, peer("service", thinks[1]) as service:
        yield Site(
            home,
            {"provider": provider, "service": service},
            pod(home, f"http://127.0.0.1:{service}", agents),
            before,
        )


class Proxies:
    """The proxies of a site, each of which starts when it is first asked for."""

    def __init__(self, at: Site, started: ExitStack) -> None:
        self.at = at
        self._started = started
        self._processes: dict[str, Process] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._processes

    def __getitem__(self, name: str) -> Process:
        return self._processes[name] if name in self._processes else self.start(name)

    def start(self, name: str, *, connects: bool = True) -> Process:
        """Start a proxy, as ``Site.proxy`` does."""
        self._processes[name] = self._started.enter_context(self.at.proxy(name, connects=connects))
        return self._processes[name]


def count_requests(port: int, what: str = "requests") -> int:
    """Return the number of requests, or of ``sessions``, that a peer has had."""
    return int(ask(port, what))


def count_operations(port: int) -> dict[int, int]:
    """Return how many operations made so many requests of a provider since this was asked."""
    return {
        int(requests): operations
        for requests, operations in json.loads(ask(port, "operations")).items()
    }


@contextmanager
def check_requests(at: Site, operations: int, rounds: int) -> Iterator[None]:
    """Stop the bench if these operations do not each ask the provider once more than the rounds,
    and the service as often.
    """
    count_operations(at.ports["provider"])
    before = count_requests(at.ports["service"])
    yield
    made, called = (
        count_operations(at.ports["provider"]),
        count_requests(at.ports["service"]) - before,
    )
    if made != {rounds + 1: operations} or called != operations * rounds:
        shown = ", ".join(
            f"{many} asked the model {requests} times" for requests, many in made.items()
        )
        raise SystemExit(
            f"of {operations} operations of {rounds} rounds {shown}; all called the "
            f"service {called} times"
        )


def has_workers() -> bool:
    """Return True if ``claw proxy`` can run workers."""
    return "--workers" in (ROOT / "claw_cli" / "proxy.py").read_text(encoding="utf-8")


@contextmanager
def pinned(process: Process | None) -> Iterator[None]:
    """Keep a process on the last core and everything else of the bench on the
    others, if there are two.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2 or process is None:
        yield
        return
    bench = Process(os.getpid(), 0)
    bench.pin(cores[:-1])
    process.pin(cores[-1:])
    try:
        yield
    finally:
        bench.pin(cores)


def percentile(values: Sequence[float]) -> float:
    """Return the value that 99 of 100 do not exceed."""
    return sorted(values)[min(int(len(values) * 0.99), len(values) - 1)]


def ask(port: int, what: str) -> bytes:
    """Return what a peer or a proxy answers to a GET."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{what}", timeout=30) as response:
        answer: bytes = response.read()
        return answer


def free_port() -> int:
    """Return a free port below those that the system gives to outgoing connections,
    of which the load makes many.
    """
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with suppress(OSError), socket.socket() as held:
            held.bind(("127.0.0.1", port))
            return port


@contextmanager
def peer(name: str, seconds: float = 0.0) -> Iterator[int]:
    """Run the provider or the service, which answers after so many seconds; yield its port."""
    with peers_of("peers.py", name, str(seconds)) as (port,):
        yield port


@contextmanager
def peers_of(script: str, *arguments: str, number: int = 1) -> Iterator[list[int]]:
    """Run a script of peers; yield the ports of so many, in the order in which it prints them."""
    command = [sys.executable, str(HERE / script), *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield [int(process.stdout.readline()) for _ in range(number)]
        finally:
            process.stdin.close()


@contextmanager
def proxy(
    home: Path, port: int, env: dict[str, str], command: list[str], *, connects: bool = True
) -> Iterator[Process]:
    """Run a proxy and wait until it is ready.

    Without ``connects`` wait only until it listens: to ask whether it is ready takes a connection.
    Its output goes to a file, as in a container.
    """
    own_home = home / "home"
    own_home.mkdir(exist_ok=True)
    whole = {"PATH": os.environ["PATH"], "HOME": str(own_home), "PYTHONPATH": str(ROOT), **env}

    log_file = home / f"{port}.log"
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            command, cwd=home, env=whole, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

    try:
        wait_until(lambda: process.poll() is not None or is_listening(port), "a proxy listens")
        if process.poll() is not None:
            said = log_file.read_text(encoding="utf-8", errors="replace")
            raise SystemExit(f"a proxy has ended: {said}")

        if connects:
            wait_until(lambda: _is_ready(port), "a proxy is ready")
        yield Process(process.pid, port)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def is_listening(port: int) -> bool:
    """Return True if a port is listened to; it gets no connection for that."""
    sockets = (Path(f"/proc/net/{kind}").read_text(encoding="ascii") for kind in ("tcp", "tcp6"))
    return any(re.search(rf":{port:04X} 0+:0000 0A ", text) for text in sockets)


def wait_until(is_so: Callable[[], object], what: str) -> None:
    """Wait for a fact, by asking: those of other processes set no event here.

    Stop the bench if it does not come.
    """
    deadline = time.monotonic() + READY_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"not in {READY_SECONDS} s: {what}")
        time.sleep(0.02)


def _is_ready(port: int) -> bool:
    with suppress(OSError):
        return bool(ask(port, "ready"))
    return False


def pod(home: Path, service_url: str, agents: Mapping[str, str]) -> Path:
    """Write the context directories of agents, with twelve tools over ``http`` or
    ``mcp``, or without; return their root. ``live``: over HTTP, and their answers stream live.
    """
    (home / "auth").mkdir(parents=True)
    for agent, transport in agents.items():
        directory = home / "context" / agent
        directory.mkdir(parents=True)
        metadata = {
            "service": agent,
            "pod": "bench",
            "type": "generic",
            "token": f"{agent}:{wire.AGENT_SECRET}",
        }
        (directory / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
        if transport:
            tools = wire.manifest(service_url, mcp=transport == "mcp")
            if transport == "live":
                tools["policy"] = {"stream": "live"}
            (directory / "tools.json").write_text(json.dumps(tools), encoding="utf-8")
    return home / "context"
