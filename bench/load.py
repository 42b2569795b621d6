"""The load generator: a process of its own, which reads a ``Load`` as JSON in each line and prints
its ``LoadResult``.

An operation is one or more requests, one after the other: a turn of the proxy is one request, the
same work done directly is several. A closed loop: so many connections, which are kept, make so many
operations, each as fast as it can. An open loop (``starts``): each operation begins at its own
time, whether earlier ones have ended or not, on connections of its own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from itertools import count

import wire


@dataclass(frozen=True)
class Load:
    """A load to generate. ``steps``: port and request (as text) of each request of an operation."""

    connections: int
    """The number of kept connections; 0 where turns arrive by themselves."""
    operations: int
    steps: list[tuple[int, str]]
    first: int = 0
    """The number of the first operation: no two of a run are alike."""
    starts: list[float] = field(default_factory=list)
    """The seconds after which each operation of an open loop begins."""
    agents: int = 0
    """The number of agents that take turns, or 0 where the requests name theirs."""


@dataclass(frozen=True)
class LoadResult:
    """Seconds of each operation, to the first body byte of its last answer, and of
    all; the unmeasured operations before.
    """

    times: list[float]
    firsts: list[float]
    seconds: float
    warmed: int


class BadAnswerError(Exception):
    """An answer that is not the expected one."""


class Connection(asyncio.Protocol):
    """A client's end: one request at a time."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._body = 0
        self._length: int | None = None
        self._first = 0.0
        self._done: asyncio.Future[float] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self, request: bytes) -> asyncio.Future[float]:
        """Send a request; the future ends with the answer, and its result is the
        time of the first body byte.
        """
        assert self._transport is not None
        self._received.clear()
        self._body, self._length, self._first = 0, None, 0.0
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._done

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
        if whole and self._done is not None:
            done, self._done = self._done, None
            done.set_result(self._first)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._done is not None:
            self._done.set_exception(BadAnswerError("the connection was closed"))

    def answer(self) -> bytes:
        return bytes(self._received)

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def _read_head(self, head: bytes) -> None:
        _, _, length = head.partition(b"\r\ncontent-length:")
        self._length = int(length.split(b"\r\n")[0]) if length else None


async def _connect(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(
        Connection, "127.0.0.1", port
    )
    return connection


class Runner:
    """One of the concurrent clients."""

    def __init__(self, load: Load, result: LoadResult) -> None:
        self._steps = [(port, request.encode()) for port, request in load.steps]
        self._result = result
        self._agents = load.agents
        self._connections: dict[int, Connection] = {}

    async def connect(self) -> None:
        for port, _ in self._steps:
            if port not in self._connections:
                self._connections[port] = await _connect(port)

    async def operate(self, number: int, *, measured: bool = True) -> None:
        requests = self._number(number)
        started = time.perf_counter()
        first = await self._ask(requests)
        if measured:
            self._take(started, first, time.perf_counter())

    async def arrive(self, number: int, at: float) -> None:
        """Connect and operate at a time; being late counts as waiting."""
        requests = self._number(number)
        await asyncio.sleep(at - time.perf_counter())
        first = await self._ask(requests)
        self._take(at, first, time.perf_counter())
        self.close()

    def _number(self, number: int) -> list[tuple[int, bytes]]:
        """Return ports and requests of an operation."""
        mark, agent = (
            b"turn-%08d" % number,
            wire.agent(number % self._agents if self._agents else 0).encode(),
        )
        return [
            (port, request.replace(wire.MARK, mark).replace(wire.AGENT, agent))
            for port, request in self._steps
        ]

    async def _ask(self, requests: list[tuple[int, bytes]]) -> float:
        for port, request in requests:
            if port not in self._connections:
                self._connections[port] = await _connect(port)
            first = await self._connections[port].ask(request)
        answer = self._connections[port].answer()
        if not answer.startswith(b"HTTP/1.1 200 ") or wire.DONE not in answer:
            raise BadAnswerError(answer[:1000])
        return first

    def _take(self, started: float, first: float, ended: float) -> None:
        self._result.times.append(ended - started)
        self._result.firsts.append(first - started)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


async def run(load: Load) -> LoadResult:
    """Run a load, in its kind of loop."""
    return await (_run_open(load) if load.starts else _run_closed(load))


async def _run_open(load: Load) -> LoadResult:
    result = LoadResult([], [], 0.0, 0)
    started = time.perf_counter()
    numbers = count(load.first)
    await asyncio.gather(
        *(Runner(load, result).arrive(next(numbers), started + at) for at in load.starts)
    )
    return LoadResult(result.times, result.firsts, time.perf_counter() - started, 0)


async def _run_closed(load: Load) -> LoadResult:
    """Run two unmeasured operations on each connection, then the load."""
    result = LoadResult([], [], 0.0, 2 * load.connections)
    numbers = count(load.first)
    runners = [Runner(load, result) for _ in range(load.connections)]
    for runner in runners:
        await runner.connect()
        for _ in range(2):
            await runner.operate(next(numbers), measured=False)
    left = iter(range(load.operations))

    async def work(runner: Runner) -> None:
        for _ in left:
            await runner.operate(next(numbers))

    started = time.perf_counter()
    await asyncio.gather(*map(work, runners))
    seconds = time.perf_counter() - started
    for runner in runners:
        runner.close()
    return LoadResult(result.times, result.firsts, seconds, result.warmed)


def main() -> None:
    gc.freeze()
    gc.disable()
    for line in sys.stdin:
        print(json.dumps(asdict(asyncio.run(run(Load(**json.loads(line)))))), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
