"""A real server for states that several proxies share: Valkey or Redis, on a free loopback port, in
a directory of its own.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from claw_state.url import ServerAddress, parse_place
from tests.not_tested import skip_for
from tests.waiting import eventually, free_port

BINARY = shutil.which("valkey-server") or shutil.which("redis-server")


class SharedState:
    """The server, which can be killed, frozen, and started again on the same port with its data."""

    def __init__(self, home: Path, password: str = "") -> None:
        self.home = home
        self.port = free_port()
        self.password = password
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(exist_ok=True)
        self.start()

    @property
    def url(self) -> str:
        return f"redis://{f':{self.password}@' if self.password else ''}127.0.0.1:{self.port}/0"

    @property
    def place(self) -> ServerAddress:
        server = parse_place(self.url)
        assert isinstance(server, ServerAddress)
        return server

    def start(self) -> None:
        assert BINARY is not None
        options = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self.home,
            "save": "",
            "appendonly": "yes",
        }
        options["appendfsync"] = (
            "no"  # "everysec" holds writes back while a sync is slow, and a kill would lose them
        )
        if self.password:
            options["requirepass"] = self.password
        arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self._process = subprocess.Popen(
            [BINARY, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        eventually(self._answers, "the server of the state answers")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=10)

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def asks(self, *words: str) -> bytes:
        """Send one command in the server's protocol, on a connection of its own;
        return the raw answer.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            for command in ([["AUTH", self.password]] if self.password else []) + [list(words)]:
                parts = "".join(f"${len(word)}\r\n{word}\r\n" for word in command)
                connection.sendall(f"*{len(command)}\r\n{parts}".encode())
                answer = connection.recv(65536)
            return answer

    def _answers(self) -> bool:
        try:
            return self.asks("PING") == b"+PONG\r\n"
        except OSError:
            return False


@contextmanager
def shared_state(home: Path, password: str = "") -> Iterator[SharedState]:
    if BINARY is None:
        skip_for("valkey-server")
    server = SharedState(home, password)
    try:
        yield server
    finally:
        server.thaw()
        server.kill()
