"""A relay between a proxy and its server of the state, which can do to their bytes
what networks and servers do.

passes   the bytes as they are
holds    the server's answers until it passes again, like a slow server
cuts     an answer in its middle, and closes the connection
refuses  every command, in a server's own words
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field


@dataclass
class Relay:
    """A relay on a loopback port of its own. ``refusal``: an error as the protocol spells it."""

    server: int
    cuts: bool = False
    refusal: bytes = b""
    _passing: threading.Event = field(default_factory=threading.Event)
    _open: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._passing.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._begin(self._accept)

    def holds(self) -> None:
        self._passing.clear()

    def passes(self) -> None:
        self.cuts, self.refusal = False, b""
        self._passing.set()

    def close(self) -> None:
        self.passes()
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _begin(self, run: object, *arguments: object) -> None:
        threading.Thread(target=run, args=arguments, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                proxy, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.server))
                except OSError:
                    proxy.close()
                    continue
                self._open += [proxy, server]
                self._begin(self._commands, proxy, server)
                self._begin(self._answers, server, proxy)

    def _commands(self, proxy: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), server:
            while sent := proxy.recv(1 << 16):
                if self.refusal:
                    proxy.sendall(self.refusal)
                else:
                    server.sendall(sent)

    def _answers(self, server: socket.socket, proxy: socket.socket) -> None:
        with contextlib.suppress(OSError), proxy:
            while said := server.recv(1 << 16):
                self._passing.wait()
                if self.cuts:
                    proxy.sendall(said[: len(said) // 2])
                    proxy.shutdown(socket.SHUT_RDWR)
                proxy.sendall(said)
