"""The rows of kept connections: a closed loop, in which each connection asks again
as soon as it is answered.

The rows, and the subjects of each, run one after the other in each round. Every load is checked:
each operation has asked the provider and the service exactly as often as the row's name says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

import items
import wire
from load import Load, LoadResult
from stage import (
    PINNED,
    Generator,
    Process,
    Proxies,
    check_requests,
    count_requests,
    percentile,
    pinned,
)

RESPONSES = "ours, Responses"


@dataclass(frozen=True)
class Plan:
    """The size of a run: rounds, the part of a full run's operations, the numbers
    of connections.
    """

    rounds: int = 5
    share: float = 1.0
    connections: tuple[int, ...] = (1, 16)
    without: frozenset[str] = frozenset()
    """Subjects that are left out."""


@dataclass(frozen=True)
class Row:
    """One kind of work, with the number of operations for each number of
    connections, and who does it.

    Rounds of an operation are each a request to the provider and one to the service; the answer is
    one more to the provider.
    """

    what: str
    rounds: int
    operations: dict[int, int]
    by: tuple[str, ...] = ("direct", "ours", "before")
    stream: bool = False
    padding: int = 0
    mcp: bool = False

    def proxy(self, by: str) -> str:
        """Return the name of the proxy: a stream goes through a mitmdump that does
        not buffer it.
        """
        streams = self.stream and by == "bare"
        return (
            "bare, streaming" if streams else "ours" if by == RESPONSES else by.removesuffix(PINNED)
        )

    def steps(self, by: str, ports: dict[str, int]) -> list[tuple[int, str]]:
        """Return port and request of each request of an operation; a proxy's port
        is that of its name.
        """
        agent = "mcp" if self.mcp else "analyst" if self.rounds else "plain"
        body = wire.question(self.rounds, stream=self.stream, padding=self.padding)
        request = wire.http("POST", wire.CHAT, agent, body)
        if by == RESPONSES:
            request = wire.http(
                "POST", items.PATH, agent, items.question(self.rounds, stream=self.stream)
            )
        if by != "direct":
            return [(ports[self.proxy(by)], request)]
        if self.rounds == 0:
            return [(ports["provider"], request)]
        return wire.direct(ports, agent, self.rounds, padding=self.padding, mcp=self.mcp)


_ALL = ("direct", "bare", "empty addon", "ours", "before")
ROWS = (
    Row("pass-through, JSON", 0, {1: 300, 16: 600}, (*_ALL, "ours, plain")),
    Row("pass-through, SSE", 0, {1: 200, 16: 320}, (*_ALL, RESPONSES), stream=True),
    Row("pass-through, 1 MB asked", 0, {1: 40}, _ALL, padding=1_000_000),
    Row(
        "turn of 1 round",
        1,
        {1: 200, 16: 320},
        ("direct", "ours", f"ours{PINNED}", RESPONSES, "before"),
    ),
    Row("turn of 1 round, MCP", 1, {1: 150, 16: 240}, ("direct", "ours"), mcp=True),
    Row("turn of 8 rounds", 8, {1: 48, 16: 80}, ("direct", "ours", RESPONSES, "before")),
    Row("turn of 8 rounds, MCP", 8, {1: 48, 16: 80}, ("direct", "ours"), mcp=True),
    Row("turn of 1 round, SSE", 1, {1: 200}, ("direct", "ours", RESPONSES, "before"), stream=True),
    Row("turn of 1 round, 1 MB asked", 1, {1: 30}, padding=1_000_000),
    Row("turn of 1 round, by workers", 1, {16: 400}, ("ours", "2 workers")),
)


SUBJECTS = frozenset(by for row in ROWS for by in row.by)


@dataclass(frozen=True)
class Figure:
    """The result of a row: milliseconds, operations in a second."""

    what: str
    connections: int
    subject: str
    p50: float
    p99: float
    first: float
    per_second: float
    cpu: float | None


@dataclass
class Rounds:
    """The measurements of one subject, round by round."""

    results: list[LoadResult] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)

    def figure(self, what: str, connections: int, subject: str) -> Figure:
        """Return the medians."""
        return Figure(
            what=what,
            connections=connections,
            subject=subject,
            p50=median(median(result.times) for result in self.results) * 1000,
            p99=median(percentile(result.times) for result in self.results) * 1000,
            first=median(median(result.firsts) for result in self.results) * 1000,
            per_second=median(len(result.times) / result.seconds for result in self.results),
            cpu=median(self.cpus) if self.cpus else None,
        )


class KeptConnections:
    """The rows, at one site."""

    def __init__(self, plan: Plan, load: Generator, proxies: Proxies) -> None:
        self._plan = plan
        self._load = load
        self._at = proxies.at
        self._proxies = proxies
        self._found: dict[tuple[str, int, str], Rounds] = {}

    def figures(self) -> list[Figure]:
        """Return the medians of all rounds so far."""
        return [rounds.figure(*key) for key, rounds in self._found.items()]

    def measure(self, row: Row, connections: int, *, pin: bool) -> None:
        """Measure all subjects of a row, one round."""
        operations = max(int(row.operations[connections] * self._plan.share), 2 * connections)
        for by in row.by:
            if by in self._at.absent | self._plan.without:
                continue

            process = None if by == "direct" else self._proxies[row.proxy(by)]
            ports = {**self._at.ports, row.proxy(by): process.port if process else 0}
            load = Load(connections, operations, row.steps(by, ports))
            found = self._found.setdefault((row.what, connections, by), Rounds())

            is_pinned = pin or by.endswith(PINNED)
            with pinned(process if is_pinned else None):
                self._run(load, process, row.rounds, found)

        self._check_sessions(row)

    def _run(self, load: Load, process: Process | None, rounds: int, found: Rounds) -> None:
        operations = load.operations + 2 * load.connections
        before = process.cpu() if process else 0.0
        with check_requests(self._at, operations, rounds):
            found.results.append(self._load.run(load))
        if process:
            found.cpus.append((process.cpu() - before) / operations * 1000)

    def _check_sessions(self, row: Row) -> None:
        """Stop the bench if a proxy has opened more than one session of MCP."""
        if row.mcp and (sessions := count_requests(self._at.ports["service"], "sessions")) != 1:
            raise SystemExit(f"one proxy opened {sessions} sessions")


def measure(
    plan: Plan, load: Generator, rows: list[Row], proxies: Proxies, *, pin: bool
) -> Iterator[list[Figure]]:
    """Measure the rows, round by round, so that a slow minute is one round of all.

    After each, yield the medians so far.
    """
    kept = KeptConnections(plan, load, proxies)
    for number in range(plan.rounds):
        for row in rows:
            for connections in filter(row.operations.__contains__, plan.connections):
                kept.measure(row, connections, pin=pin)
        print(f"done: round {number + 1} of kept connections", flush=True)
        yield kept.figures()
