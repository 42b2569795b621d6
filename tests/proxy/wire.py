"""A provider scripted in bytes, for tests that compare every byte: it records the bytes of each
request, and answers with bytes, also before the request has ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
_KEPT = 4 << 20


@dataclass
class WireMessage:
    """A message as it was on the wire; ``body`` has no chunk framing, and only the
    beginning if it is long.
    """

    line: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    size: int = 0
    digest: str = ""
    trailers: list[str] = field(default_factory=list)

    @property
    def status(self) -> int:
        """Return the status of a response."""
        return int(self.line.split()[1])

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


type Answer = bytes | Callable[["Connection", WireMessage], None]


class GoneError(Exception):
    """The other side has closed the connection."""


class Connection:
    """One connection, with a client or a server at its other end."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self._buffer = b""

    def send(self, data: bytes) -> None:
        self.peer.sendall(data)

    def head(self) -> WireMessage:
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        return WireMessage(
            line,
            [
                (name, value.removeprefix(" "))
                for name, _, value in (row.partition(":") for row in lines)
            ],
        )

    def body(self, seen: WireMessage) -> None:
        """Read the body to its end."""
        digest = hashlib.sha256()
        for part in self.parts(seen):
            digest.update(part)
            seen.size += len(part)
            seen.body += part[: max(0, _KEPT - len(seen.body))]
        seen.digest = digest.hexdigest()

    def parts(self, seen: WireMessage) -> Iterator[bytes]:
        """Return the parts of the body as they come."""
        return self._chunks(seen) if seen.all("transfer-encoding") else self._length(seen)

    def chunk(self) -> bytes:
        """Return the next chunk."""
        size = int(self._line(), 16)
        while len(self._buffer) < size + 2:
            self._more()
        data, self._buffer = self._buffer[:size], self._buffer[size + 2 :]
        return data

    def until_closed(self) -> None:
        """Read until the other side has closed the connection."""
        with contextlib.suppress(GoneError):
            while True:
                self._buffer = b""
                self._more()

    def _length(self, seen: WireMessage) -> Iterator[bytes]:
        left = sum(map(int, seen.all("content-length")))
        while left:
            if not self._buffer:
                self._more()
            part, self._buffer = self._buffer[:left], self._buffer[left:]
            left -= len(part)
            yield part

    def _chunks(self, seen: WireMessage) -> Iterator[bytes]:
        while size := int(self._line(), 16):
            while size:
                if not self._buffer:
                    self._more()
                part, self._buffer = self._buffer[:size], self._buffer[size:]
                size -= len(part)
                yield part
            self._line()
        while line := self._line():
            seen.trailers.append(line)

    def _line(self) -> str:
        while b"\r\n" not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line.decode("latin-1")

    def _more(self) -> None:
        try:
            data = self.peer.recv(1 << 18)
        except OSError as error:
            raise GoneError from error
        if not data:
            raise GoneError
        self._buffer += data


class Runner(Connection):
    """A runner that sends and reads bytes."""

    def __init__(self, port: int) -> None:
        super().__init__(socket.create_connection(("127.0.0.1", port), timeout=30))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.close()

    def ask(self, *parts: bytes) -> WireMessage:
        """Send these bytes, and read a whole response."""
        for part in parts:
            self.send(part)
        return self.response()

    def response(self, *, bodiless: bool = False) -> WireMessage:
        seen = self.head()
        if not bodiless:
            self.body(seen)
        return seen

    def rest(self) -> bytes:
        """Return everything until the other side closes."""
        found = bytearray()
        with contextlib.suppress(GoneError):
            while True:
                found += self._buffer
                self._buffer = b""
                self._more()
        return bytes(found)


class Wire:
    """The provider.

    It gives ``answers`` in order, then ``OK``; a callable may do anything with the connection.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._listener = socket.create_server((host, 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.forget()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def forget(self) -> None:
        """Clear all records and answers."""
        self.seen: list[WireMessage] = []
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.early: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        """Answers that do not wait for the request's body."""
        self.begun = threading.Event()
        """Set when a request's head has come."""
        self.gone = threading.Event()
        """Set when a client left in the middle of its request."""

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=[peer], daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        connection = Connection(peer)
        with contextlib.suppress(GoneError, OSError), peer:
            while True:
                seen = connection.head()
                self.begun.set()
                with contextlib.suppress(queue.Empty):
                    answer = self.early.get_nowait()
                    self.seen.append(seen)
                    _give(answer, connection, seen)
                    return
                self._body(connection, seen)
                self.seen.append(seen)
                try:
                    answer = self.answers.get_nowait()
                except queue.Empty:
                    answer = OK
                _give(answer, connection, seen)

    def _body(self, connection: Connection, seen: WireMessage) -> None:
        try:
            connection.body(seen)
        except GoneError:
            self.gone.set()
            raise


def _give(answer: Answer, connection: Connection, seen: WireMessage) -> None:
    if isinstance(answer, bytes):
        connection.send(answer)
    else:
        answer(connection, seen)
