"""The load generator: a process of its own, which reads a ``Load`` as JSON on standard input and prints a ``Seen``.

So many connections make so many operations, each as fast as it can. An operation is one or more requests, one after the other:
a turn of the proxy is one request, the same work done directly is several. Every connection is kept alive.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from dataclasses import asdict, dataclass
from itertools import count

import wire


@dataclass(frozen=True)
class Load:
    """What to do. ``steps``: port and request (as text) of each request of an operation."""

    connections: int
    operations: int
    steps: list[tuple[int, str]]
    first: int = 0
    """The number of the first operation: no two of a run are alike."""


@dataclass(frozen=True)
class Seen:
    """Seconds of each operation, and to the first byte of its last answer; of all together; how many went first, unmeasured."""

    times: list[float]
    firsts: list[float]
    seconds: float
    warmed: int


class BadAnswerError(Exception):
    pass


class Connection(asyncio.Protocol):
    """A client's end: one request at a time."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._body = 0
        self._length: int | None = None
        self._first = 0.0
        self._over: asyncio.Future[float] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self, request: bytes) -> asyncio.Future[float]:
        """The moment at which the first byte of the answer's body came; the future ends with the last one."""
        assert self._transport is not None
        self._received.clear()
        self._body, self._length, self._first = 0, None, 0.0
        self._over = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._over

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._body:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            self._read_head(bytes(self._received[:end]).lower())
            self._body = end + 4
        if not self._first and len(self._received) > self._body:
            self._first = time.perf_counter()
        if self._length is None:
            whole = self._received.endswith(b"0\r\n\r\n")
        else:
            whole = len(self._received) >= self._body + self._length
        if whole and self._over is not None:
            over, self._over = self._over, None
            over.set_result(self._first)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._over is not None:
            self._over.set_exception(BadAnswerError("the connection was closed"))

    def answer(self) -> bytes:
        return bytes(self._received)

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def _read_head(self, head: bytes) -> None:
        _, _, length = head.partition(b"\r\ncontent-length:")
        self._length = int(length.split(b"\r\n")[0]) if length else None


async def _connect(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection


class Runner:
    """One of the clients that work side by side."""

    def __init__(self, load: Load, seen: Seen) -> None:
        self._steps = [(port, request.encode()) for port, request in load.steps]
        self._seen = seen
        self._connections: dict[int, Connection] = {}

    async def connect(self) -> None:
        for port, _ in self._steps:
            if port not in self._connections:
                self._connections[port] = await _connect(port)

    async def operate(self, number: int, *, measured: bool = True) -> None:
        mark = b"turn-%08d" % number
        requests = [(self._connections[port], request.replace(wire.MARK, mark, 1)) for port, request in self._steps]
        started = time.perf_counter()
        for connection, request in requests:
            first = await connection.ask(request)
        ended = time.perf_counter()
        answer = connection.answer()
        if not answer.startswith(b"HTTP/1.1 200 ") or wire.DONE not in answer:
            raise BadAnswerError(answer[:1000])
        if measured:
            self._seen.times.append(ended - started)
            self._seen.firsts.append(first - started)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


async def run(load: Load) -> Seen:
    """Two operations on each connection first, unmeasured; then all of them."""
    seen = Seen([], [], 0.0, 2 * load.connections)
    numbers = count(load.first)
    runners = [Runner(load, seen) for _ in range(load.connections)]
    for runner in runners:
        await runner.connect()
        for _ in range(2):
            await runner.operate(next(numbers), measured=False)
    gc.collect()
    gc.freeze()
    left = iter(range(load.operations))

    async def work(runner: Runner) -> None:
        for _ in left:
            await runner.operate(next(numbers))

    started = time.perf_counter()
    await asyncio.gather(*map(work, runners))
    seconds = time.perf_counter() - started
    for runner in runners:
        runner.close()
    return Seen(seen.times, seen.firsts, seconds, seen.warmed)


if __name__ == "__main__":
    json.dump(asdict(asyncio.run(run(Load(**json.load(sys.stdin))))), sys.stdout)
