"""The bench: ``python bench/run.py [--quick] [--json FILE]``. README.md says what it measures, with the last figures.

Everything is measured in one run, in rounds, each subject next to the one that it is compared with: a disturbance of the
machine disturbs all of them. A figure is the median of its rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median

import arrivals
import items
import state
import table
import wire
from load import Load, LoadResult
from stage import Generator, Process, Stage, check_requests, count_requests, generator, pinned, stage

RESPONSES = "ours, Responses"


@dataclass(frozen=True)
class Plan:
    """The size of a run."""

    rounds: int
    share: float
    """The part of the operations of a full run."""
    connections: tuple[int, ...]
    turns: tuple[int, ...]
    """The numbers of turns after which memory is read."""
    state: state.Plan
    arrivals: arrivals.Plan


FULL = Plan(5, 1.0, (1, 16, 64), (2_000, 6_000, 12_000, 20_000), state.Plan(), arrivals.Plan())
QUICK = Plan(3, 0.3, (1, 16), (500, 1_000, 2_000), state.Plan((10, 1_000), 200, (1, 16)), arrivals.Plan(1, 0.7))
SMOKE = Plan(1, 0.0, (1,), (10, 20), state.Plan((2, 10), 4, (1, 2)), arrivals.Plan(1, 0.02, (0.02, 0.01)))


@dataclass(frozen=True)
class Subject:
    """A way to do the work: the requests, and the process whose CPU counts."""

    name: str
    steps: list[tuple[int, str]]
    process: Process | None = None


@dataclass(frozen=True)
class Row:
    """One kind of work, for each number of connections."""

    what: str
    operations: dict[int, int]
    subjects: list[Subject]
    rounds: int = 0
    """Rounds of an operation, each a request to the provider and one to the service; the answer is one more to the provider."""


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


def rows(on: Stage) -> list[Row]:
    """Return the rows, each with its subjects."""

    def ours(agent: str, body: bytes) -> list[Subject]:
        request = wire.http("POST", wire.CHAT, agent, body)
        proxies = {"ours": on.ours, "ours, plain": on.plain, "before": on.before}
        return [Subject(name, [(proxy.port, request)], proxy) for name, proxy in proxies.items() if proxy]

    def over_responses(agent: str, rounds: int, *, stream: bool) -> Subject:
        request = wire.http("POST", items.PATH, agent, items.question(rounds, stream=stream))
        return Subject(RESPONSES, [(on.ours.port, request)], on.ours)

    def passing(what: str, operations: dict[int, int], body: bytes, bare: Process) -> Row:
        request = wire.http("POST", wire.CHAT, "plain", body)
        beside = [Subject("direct", [(on.provider, request)]), Subject("bare", [(bare.port, request)], bare)]
        if bare is on.bare:
            beside.append(Subject("empty addon", [(on.empty.port, request)], on.empty))
        return Row(what, operations, beside + ours("plain", body))

    def with_responses(row: Row, agent: str, *, stream: bool = False) -> Row:
        """Return a row with one more subject: the same work over the other protocol, in the same rounds."""
        return replace(row, subjects=[*row.subjects, over_responses(agent, row.rounds, stream=stream)])

    def turn(what: str, rounds: int, operations: dict[int, int], *, stream: bool = False, padding: int = 0) -> Row:
        steps = wire.direct(on.provider, on.service, "analyst", rounds, padding=padding)
        body = wire.question(rounds, stream=stream, padding=padding)
        return Row(what, operations, [Subject("direct", steps), *ours("analyst", body)], rounds)

    def turn_over_mcp(what: str, rounds: int, operations: dict[int, int]) -> Row:
        """The same turn and the same data; another checkout may not know MCP."""
        row = turn(what, rounds, operations)
        steps = [
            (port, wire.http("POST", "/mcp", "analyst", wire.mcp_call(place // 2)) if port == on.service else request)
            for place, (port, request) in enumerate(row.subjects[0].steps)
        ]
        proxies = [subject for subject in ours("mcp", wire.question(rounds, stream=False)) if subject.name != "before"]
        return Row(what, operations, [Subject("direct", steps), *proxies], rounds)

    def chat(*, stream: bool = False, padding: int = 0) -> bytes:
        return wire.question(0, stream=stream, padding=padding)

    return [
        passing("pass-through, JSON", {1: 500, 16: 1000, 64: 1200}, chat(), on.bare),
        with_responses(
            passing("pass-through, SSE", {1: 300, 16: 500, 64: 640}, chat(stream=True), on.streaming), "plain", stream=True
        ),
        passing("pass-through, 1 MB asked", {1: 60}, chat(padding=1_000_000), on.bare),
        with_responses(turn("turn of 1 round", 1, {1: 250, 16: 400, 64: 512}), "analyst"),
        turn_over_mcp("turn of 1 round, MCP", 1, {1: 250, 16: 400}),
        with_responses(turn("turn of 8 rounds", 8, {1: 60, 16: 96, 64: 128}), "analyst"),
        turn_over_mcp("turn of 8 rounds, MCP", 8, {1: 60, 16: 96}),
        with_responses(turn("turn of 1 round, SSE", 1, {1: 250}, stream=True), "analyst", stream=True),
        turn("turn of 1 round, 1 MB asked", 1, {1: 40}, padding=1_000_000),
    ]


class Bench:
    """A run of the plan on the stage."""

    def __init__(self, plan: Plan, on: Stage) -> None:
        self._plan = plan
        self._on = on
        self._numbers = count(0, 10_000)

    def row(self, row: Row) -> list[Figure]:
        """Measure all subjects of a row, in turns."""
        figures: list[Figure] = []
        for connections in self._plan.connections:
            if (operations := row.operations.get(connections)) is not None:
                figures += self._measure(row, connections, max(int(operations * self._plan.share), 2 * connections))
        self._check_sessions(row)
        return figures

    def _check_sessions(self, row: Row) -> None:
        """Stop the bench if a proxy has opened more than one session of MCP."""
        sessions, proxies = count_requests(self._on.service, "sessions"), sum(each.process is not None for each in row.subjects)
        if row.what.endswith("MCP") and sessions != proxies:
            raise SystemExit(f"{proxies} proxies opened {sessions} sessions")

    def _measure(self, row: Row, connections: int, operations: int) -> list[Figure]:
        results: dict[str, list[tuple[LoadResult, float | None]]] = {subject.name: [] for subject in row.subjects}
        for _ in range(self._plan.rounds):
            for subject in row.subjects:
                load = Load(connections, operations, subject.steps, next(self._numbers))
                results[subject.name].append(self._run(load, subject.process, row.rounds))
        return [figure(row.what, connections, name, rounds) for name, rounds in results.items()]

    def memory(self) -> dict[int, float]:
        """Return megabytes by number of turns: of one round, every other one streamed, in conversations of their own."""
        megabytes: dict[int, float] = {}
        process, done = self._on.ours, 0
        for turns in self._plan.turns:
            for stream in (False, True):
                request = wire.http("POST", wire.CHAT, "analyst", wire.question(1, stream=stream))
                self._run(Load(16, (turns - done) // 2, [(process.port, request)], next(self._numbers)), process, 1)
            done = turns
            megabytes[turns] = round(process.rss() / 1e6, 1)
        return megabytes

    def _run(self, load: Load, process: Process | None, rounds: int) -> tuple[LoadResult, float | None]:
        """Run a load; return its result, and milliseconds of the process's CPU for each operation."""
        operations = load.operations + 2 * load.connections
        before = process.cpu() if process else 0.0
        with check_requests(self._on, operations, rounds):
            result = self._on.generator.run(load)
        return result, (process.cpu() - before) / operations * 1000 if process else None


def figure(what: str, connections: int, subject: str, rounds: list[tuple[LoadResult, float | None]]) -> Figure:
    together = sorted(second for result, _ in rounds for second in result.times)
    spent = [cpu for _, cpu in rounds if cpu is not None]
    return Figure(
        what=what,
        connections=connections,
        subject=subject,
        p50=median(median(result.times) for result, _ in rounds) * 1000,
        p99=together[min(int(len(together) * 0.99), len(together) - 1)] * 1000,
        first=median(median(result.firsts) for result, _ in rounds) * 1000,
        per_second=median(len(result.times) / result.seconds for result, _ in rounds),
        cpu=median(spent) if spent else None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the proxy beside a bare mitmdump and beside direct calls.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="about a minute, and coarse")
    size.add_argument("--smoke", action="store_true", help="a few requests of each kind, to test the bench")
    parser.add_argument(
        "--only", default="", help="measure only rows whose name contains this (state: those of the state), and no memory"
    )
    parser.add_argument("--pin", action="store_true", help="keep the proxies on a core of their own (not in arrivals)")
    parser.add_argument("--before", type=Path, help="another checkout, whose proxy is measured beside this one's")
    parser.add_argument("--json", type=Path, help="the file to which the figures are written as JSON")
    options = parser.parse_args()
    plan = QUICK if options.quick else SMOKE if options.smoke else FULL
    with generator() as load, tempfile.TemporaryDirectory(prefix="claw-bench-") as home:
        added = arrivals.measure(plan.arrivals, load, options.only, options.before, Path(home, "arrivals"))
        figures, memory = measure_kept(plan, load, options, Path(home, "kept"))
    stored, together = asyncio.run(state.measure(plan.state)) if options.only in "state" else ([], [])
    results = table.Results(
        table.machine(sorted(os.sched_getaffinity(0))),
        [asdict(each) for each in added],
        [asdict(figure) for figure in figures],
        memory,
        [asdict(row) for row in stored],
        [asdict(row) for row in together],
    )
    print(table.text(results))
    if options.json:
        options.json.write_text(json.dumps(asdict(results), indent=1) + "\n", encoding="utf-8")


def measure_kept(plan: Plan, load: Generator, options: argparse.Namespace, home: Path) -> tuple[list[Figure], dict[int, float]]:
    """Measure the rows of kept connections, and memory."""
    figures: list[Figure] = []
    if options.only.startswith("arrivals"):
        return figures, {}
    with stage(home, load, options.before) as on:
        bench = Bench(plan, on)
        proxies = [each for each in (on.bare, on.empty, on.streaming, on.ours, on.plain, on.before) if each]
        with pinned(proxies if options.pin else []):
            for row in rows(on):
                if options.only in row.what:
                    figures += bench.row(row)
                    print(f"done: {row.what}", flush=True)
            return figures, {} if options.only else bench.memory()


if __name__ == "__main__":
    main()
