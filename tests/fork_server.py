"""Programs as copies of a process that has imported them: most of a start of
``mitmdump``, of ``claw`` or of a server of the MCP SDK is imports.

Everything after the imports is real: each copy is a process with its own environment, arguments,
files and state. ``python -m tests.fork_server PROGRAM FD`` reads orders, a JSON object in a packet
with three open files, and writes a pid for each, and later its exit code.
"""

from __future__ import annotations

import array
import ast
import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent
PROXIES = ("mitmdump", "mitmweb", "workers")
"""``workers N`` stands for what ``claw proxy --workers N`` starts."""
ALIVE_SECONDS = "TEST_ALIVE_SECONDS"
"""A variable of these tests alone: how often a supervisor asks its workers whether they hang."""
CLAW = [sys.executable, "-c", "from claw_cli.app import main; main()"]
"""The command of ``claw`` with the code beside these tests, in every worktree."""
_MAX_PACKET = 1 << 20
_YOUNG_OBJECTS = 30_000
"""New objects before a copy looks for garbage: a proxy sets the same itself once it is prepared, and
a start makes no garbage worth a look.
"""
_WITHOUT_EFFECT = {"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}
"""Variables that matter to imports alone, or are set for every copy."""
_READ_BY_PYTHON = ("COVERAGE_", "LANG", "LC_", "PYTHON", "TZ")


class ForkedProcess:
    """A copy with the interface of ``subprocess.Popen``, as far as tests use it."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid, self._server = pid, server
        self.code: int | None = None
        """The exit code as ``Popen`` has it, once the server has told it."""

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        return self._server.exit_code(self, 0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._server.exit_code(self, 1e6 if timeout is None else timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a forked program", timeout or 0)
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

    def __init__(self, program: str, python: str = sys.executable) -> None:
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_PACKET)
        with theirs:
            number = theirs.fileno()
            command = [python, "-m", "tests.fork_server", program, str(number)]
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, pass_fds=[number]
            )
        self._lock = threading.Lock()  # threads of scripted peers kill proxies, too
        self._started: list[ForkedProcess] = []
        self._running: dict[int, ForkedProcess] = {}
        """By pid. The system gives the pid of a copy that has ended to a later one."""

    def start(
        self, command: Sequence[str], cwd: Path, env: Mapping[str, str], files: Sequence[IO[bytes]]
    ) -> ForkedProcess:
        """Start a copy with three open files: its input, its output and its errors."""
        order = {"command": command, "cwd": str(cwd), "env": dict(env)}
        with self._lock:
            socket.send_fds(
                self._socket, [json.dumps(order).encode()], [file.fileno() for file in files]
            )
            while not self._started:
                self._receive(60)
            return self._started.pop()

    def exit_code(self, process: ForkedProcess, seconds: float) -> int | None:
        """Return the exit code of a copy, as Popen has it; None if it has not ended
        in so many seconds.
        """
        deadline = time.monotonic() + seconds
        while True:
            with self._lock:
                if process.code is None:
                    self._receive(min(max(deadline - time.monotonic(), 0), 0.05))
                if process.code is not None or time.monotonic() >= deadline:
                    return process.code

    def close(self) -> None:
        self._socket.close()
        self._process.wait(timeout=20)

    def _receive(self, seconds: float) -> None:
        if not select.select([self._socket], [], [], seconds)[0]:
            return
        data = self._socket.recv(_MAX_PACKET)
        assert data, "the fork server has ended"
        message = json.loads(data)
        pid = message["pid"]
        if "code" in message:
            self._running.pop(pid).code = message["code"]
        else:
            self._running[pid] = ForkedProcess(self, pid)
            self._started.append(self._running[pid])


_starting = threading.Lock()
_servers: dict[str, ForkServer] = {}


def fork_server(program: str, python: str = sys.executable) -> ForkServer:
    """Return this process's server of ``proxy``, of ``claw``, or of the peers ``mcp-1``
    or ``mcp-2``, whose ``python`` has that version of the SDK.

    It starts on first use; threads may ask at the same time.
    """
    with _starting:
        if program not in _servers:
            _servers[program] = ForkServer(program, python)
        return _servers[program]


def close_fork_servers() -> None:
    """End the servers of this process that were started."""
    with _starting:
        while _servers:
            _servers.popitem()[1].close()


def may_be_forked(names: Iterable[str]) -> bool:
    """Return True if variables of these names change nothing that Python reads before our code
    runs, and none is measured.
    """
    measured = any(name.startswith("COVERAGE_") for name in os.environ)
    return not measured and not any(
        name.startswith(_READ_BY_PYTHON) for name in names if name not in _WITHOUT_EFFECT
    )


type Process = ForkedProcess | subprocess.Popen[bytes]


def start(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], files: Sequence[IO[bytes]]
) -> Process:
    """Start a command with three open files; one of ``claw`` is a copy where that
    makes no difference.
    """
    names = {name for name, value in env.items() if os.environ.get(name) != value} - {"PYTHONPATH"}
    if list(command[: len(CLAW)]) == CLAW and may_be_forked(names):
        return fork_server("claw").start(command, cwd, env, files)
    stdin, stdout, stderr = files
    return subprocess.Popen(command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr)


def run_claw(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run ``claw`` to its end, as ``subprocess.run(…, capture_output=True,
    text=True)`` does, without an input.
    """
    command = [*CLAW, *arguments]
    return complete(command, lambda files: start(command, cwd, env, files))


def complete(
    command: Sequence[str], begin: Callable[[Sequence[IO[bytes]]], Process], given: bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Begin a command with three open files, the first with what it is given; return what
    came of it.
    """
    with (
        tempfile.TemporaryFile() as input_file,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        input_file.write(given)
        input_file.seek(0)
        code = begin([input_file, out, err]).wait(100)
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(command, code, *said)


def main() -> None:
    """Serve orders; in a copy, become the program that was ordered."""
    program, number = sys.argv[1:]
    _PREPARE[program]()
    gc.collect()
    gc.freeze()  # pages stay shared with the copies
    gc.set_threshold(_YOUNG_OBJECTS)
    with socket.socket(fileno=int(number)) as orders:
        order = _serve(orders)
    if order is not None:
        # ``-c`` and console scripts have a main module without a package, and typer's usage line
        # shows it.
        sys.modules["__main__"] = types.ModuleType("__main__")
        sys.argv = order["command"]
        _end(_PROGRAMS[program])


def _end(program: Callable[[], Any]) -> None:
    """Run the program and end as Python does, but free no memory: in a copy that
    takes a third of a short life.
    """
    code: Any = 0
    try:
        code = program()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as at the end of any program
        sys.excepthook(*sys.exc_info())
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # wait for its threads, as Python does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # it may be closed
            stream.flush()
    os._exit(code or 0)


def _prepare_proxy() -> None:
    """Import what a proxy imports: mitmdump, and all that its script names.

    Have CAs, keys and the schema of schemas ready.
    """
    script = ast.parse((ROOT / "addons" / "cllama.py").read_text(encoding="utf-8"))
    modules = [
        node.module for node in script.body if isinstance(node, ast.ImportFrom) and node.module
    ]
    later = (
        "httpcore2",
        "truststore",
        "encodings.idna",
        "claw_certs.ca",
        "claw_mediate.http.client",
        "claw_mediate.workers.supervisor",
    )
    for module in ("mitmproxy.tools.main", "mitmproxy.tools.dump", *modules, *later):
        importlib.import_module(module)
    _share_keys()
    _share_tls_contexts()
    importlib.import_module("claw_contract.json_schema").find_schema_problem({"type": "object"})


def _share_keys() -> None:
    """Let copies have one CA, which mitmproxy makes when it starts first, and check
    each RSA key once: both are slow.
    """
    from cryptography.hazmat.primitives import serialization
    from mitmproxy import certs

    certs.create_ca = functools.cache(certs.create_ca)
    serialization.load_pem_private_key = functools.cache(serialization.load_pem_private_key)
    with tempfile.TemporaryDirectory() as directory:
        certs.CertStore.from_store(
            Path(directory), "mitmproxy", 2048
        )  # the key size is mitmproxy's default


def _share_tls_contexts() -> None:
    """Let copies read the certificates of public CAs once for each value of
    ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``.
    """
    import httpx2

    create = httpx2.create_ssl_context
    shared = create()

    def created(*arguments: Any, **options: Any) -> Any:
        is_default = (
            not arguments
            and not options
            and not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys()
        )
        return shared if is_default else create(*arguments, **options)

    httpx2.create_ssl_context = created


def _prepare_claw() -> None:
    """Import all verbs and what they import when they are called."""
    for name in (
        "claw_cli",
        "claw_compile",
        "claw_mcp",
        "claw_certs",
        "claw_audit",
        "claw_contract",
    ):
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__") and ".addons" not in module.name:
                importlib.import_module(module.name)
    for later in (
        "uvicorn.lifespan.off",
        "uvicorn.lifespan.on",
        "uvicorn.protocols.http.h11_impl",
        "httpcore2",
    ):
        importlib.import_module(later)


def _run_proxy() -> Any:
    tools = importlib.import_module("mitmproxy.tools.main")
    if (name := Path(sys.argv[0]).name) == "workers":
        from claw_mediate.mitm.listeners import run_worker
        from claw_mediate.workers.supervisor import supervise

        supervise(int(sys.argv.pop(1)), run_worker, 0.1, float(os.environ.get(ALIVE_SECONDS, "5")))
    return getattr(tools, name)()


def _run_claw() -> Any:
    sys.argv = sys.argv[len(CLAW) - 1 :]
    sys.argv[0] = "-c"
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = ["", *(path for path in given if path and path not in sys.path)]
    return importlib.import_module("claw_cli.app").main()


def _prepare_mcp() -> None:
    """Import what the two peers of the MCP SDK import, at once and when they are asked."""
    for module in ("sdk_server", "sdk_client"):
        importlib.import_module(f"tests.mcp_peers.{module}")
    for later in (
        "mcp.client.stdio",
        "mcp.client.streamable_http",
        "mcp.server.streamable_http_manager",
        "uvicorn.lifespan.on",
        "uvicorn.protocols.http.auto",
        "uvicorn.loops.auto",
    ):
        importlib.import_module(later)


def _run_mcp() -> Any:
    return importlib.import_module(f"tests.mcp_peers.{Path(sys.argv[0]).stem}").main()


_PREPARE = {
    "proxy": _prepare_proxy,
    "claw": _prepare_claw,
    "mcp-1": _prepare_mcp,
    "mcp-2": _prepare_mcp,
}
_PROGRAMS = {"proxy": _run_proxy, "claw": _run_claw, "mcp-1": _run_mcp, "mcp-2": _run_mcp}


def _serve(orders: socket.socket) -> dict[str, Any] | None:
    """Return the order in the process that is to carry it out, or None in the
    server once its input has ended.
    """
    ended, end = os.pipe()
    os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, and they end this
    signal.set_wakeup_fd(end)
    while True:
        ready, _, _ = select.select([orders, ended], [], [])
        if ended in ready:
            os.read(ended, 1 << 10)
            _report_ended(orders)
        if orders in ready:
            data, files = _received(orders)
            if not data:
                return None
            if not (pid := os.fork()):
                signal.set_wakeup_fd(-1)
                os.close(ended)
                os.close(end)
                return _become(json.loads(data), files)
            for file in files:
                os.close(file)
            _write(orders, {"pid": pid})


def _received(orders: socket.socket) -> tuple[bytes, array.array[int]]:
    """Return an order and its files."""
    files = array.array("i")
    try:
        data, extra, _, _ = orders.recvmsg(
            _MAX_PACKET, socket.CMSG_SPACE(3 * files.itemsize), socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionError:
        return b"", files
    for _, _, content in extra:
        files.frombytes(content)
    return data, files


def _report_ended(orders: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _write(orders, {"pid": ended[0], "code": os.waitstatus_to_exitcode(ended[1])})


def _become(order: dict[str, Any], files: Sequence[int]) -> dict[str, Any]:
    """Take over directory, environment, files and signals of the order."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    return order


def _write(orders: socket.socket, message: dict[str, int]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionError):
        orders.send(json.dumps(message).encode())


if __name__ == "__main__":
    main()
