"""Turns that arrive like those of agents: an open loop, in which each begins at its time, on a connection of its own.

A turn has two rounds; the provider thinks for 0.8 s, a tool for 0.12 s. A figure is what a turn takes beyond the sum of these.
Agents don't know of each other, so that arrivals are a Poisson process: they bunch, and p99 tells what a bunch costs. All
subjects of a round get the same arrivals; a turn that begins late, for whatever reason, has waited.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import accumulate, count
from pathlib import Path
from statistics import median

import wire
from load import Load
from stage import EMPTY, ROOT, Generator, Process, Site, check_requests, has_workers, pinned, site

ROUNDS = 2
AGENTS = 50
PINNED = ", pinned"
ONE_CALL = "empty addon, one call"
"""The floor: mitmdump with an addon that does nothing, a connection and one request of a runner, and one answer."""


@dataclass(frozen=True)
class Plan:
    """The size of a run. ``thinks``: the seconds for which the provider and a tool think."""

    rounds: int = 5
    share: float = 1.0
    """The part of the arrivals of a full run."""
    thinks: tuple[float, float] = (0.8, 0.12)


@dataclass(frozen=True)
class Row:
    """One kind of arrivals: so many in a second, so many in all, and by whom; ``fresh``: at a proxy that was just started."""

    what: str
    rate: float
    arrivals: int
    by: tuple[str, ...]
    stream: bool = False
    fresh: bool = False


ROWS = (
    Row("arrivals, 20/s", 20, 80, ("direct", ONE_CALL, "ours", "ours, pinned", "before")),
    Row("arrivals, 20/s, SSE", 20, 80, ("direct", "ours", "before"), stream=True),
    Row("arrivals, 20/s, cold", 20, AGENTS, ("ours", "before"), fresh=True),
    Row("arrivals, 20/s, cold, SSE", 20, AGENTS, ("ours", "before"), stream=True, fresh=True),
    Row("arrivals, 60/s", 60, 180, ("direct", "ours", "2 workers", "before")),
    Row("arrivals, one every 2 s", 0.5, 4, ("direct", "ours", "before")),
    Row("arrivals, the first after the start", 0.5, 1, ("ours", "before"), fresh=True),
)


@dataclass(frozen=True)
class Added:
    """Milliseconds that turns took beyond what the peers think, and of the process's CPU for each."""

    what: str
    subject: str
    p50: float
    p99: float
    cpu: float | None


@dataclass(frozen=True)
class Sample:
    """One round of a row."""

    p50: float
    p99: float
    cpu: float | None


class Arrivals:
    """The rows of arrivals, at a site of their own."""

    def __init__(self, plan: Plan, load: Generator, at: Site, before: Path | None) -> None:
        self._plan = plan
        self._load = load
        self._at = at
        self._before = before
        self._numbers = count(0, 1_000)

    def measure(self, rows: list[Row]) -> list[Added]:
        """Measure the rows, round by round."""
        samples: dict[tuple[str, str], list[Sample]] = {}
        absent = {by for by, there in (("before", self._before), ("2 workers", has_workers())) if not there}
        with ExitStack() as started:
            warm: dict[str, Process | None] = {}
            for number in range(self._plan.rounds):
                for row in rows:
                    starts = arrivals(row.rate, max(int(row.arrivals * self._plan.share), 1), number)
                    for by in row.by:
                        if by in absent:
                            continue
                        name = by.removesuffix(PINNED)
                        if not row.fresh and name not in warm:
                            warm[name] = self._warmed(name, started.enter_context(self._proxy(name)))
                        with (
                            self._proxy(name, touch=False) if row.fresh else nullcontext(warm[name]) as process,
                            pinned([process] if by.endswith(PINNED) and process else []),
                        ):
                            sample = self._sample(row.stream, by, process, starts)
                        samples.setdefault((row.what, by), []).append(sample)
        return [_added(*key, found) for key, found in samples.items()]

    def _proxy(self, by: str, *, touch: bool = True) -> AbstractContextManager[Process | None]:
        """Return a proxy that starts; without ``touch`` it gets no request before the first turn."""
        if by == "direct":
            return nullcontext()
        if by == ONE_CALL:
            return self._at.bare("-s", str(EMPTY))
        root = self._before.resolve() if self._before and by == "before" else ROOT
        return self._at.ours(root=root, workers=2 if by == "2 workers" else 0, touch=touch)

    def _warmed(self, by: str, process: Process | None) -> Process | None:
        """Return a proxy which has had two turns of each agent."""
        if process is not None:
            agents = AGENTS if self._plan.share == 1 else 2
            self._sample(False, by, process, [place / 20 for place in range(2 * agents)])
        return process

    def _sample(self, stream: bool, by: str, process: Process | None, starts: list[float]) -> Sample:
        rounds = 0 if by == ONE_CALL else ROUNDS
        load = Load(0, len(starts), self._steps(stream, rounds, process), next(self._numbers), starts, AGENTS)
        before = process.cpu() if process else 0.0
        with check_requests(self._at, len(starts), rounds):
            result = self._load.run(load)
        ideal = self._plan.thinks[0] * (rounds + 1) + self._plan.thinks[1] * rounds
        added = sorted((seconds - ideal) * 1000 for seconds in result.times)
        spent = (process.cpu() - before) / len(starts) * 1000 if process else None
        return Sample(median(added), added[min(int(len(added) * 0.99), len(added) - 1)], spent)

    def _steps(self, stream: bool, rounds: int, process: Process | None) -> list[tuple[int, str]]:
        """Return the one request to a proxy, or those that it would make."""
        agent = wire.AGENT.decode()
        if process is not None:
            return [(process.port, wire.http("POST", wire.CHAT, agent, wire.question(rounds, stream=stream)))]
        return wire.direct(self._at.provider, self._at.service, agent, rounds)


def arrivals(rate: float, number: int, seed: int) -> list[float]:
    """Return the seconds at which turns arrive: as a Poisson process, or evenly where they are to be alone."""
    if rate < 1:
        return [place / rate for place in range(number)]
    chance = random.Random(seed)
    return list(accumulate(chance.expovariate(rate) for _ in range(number)))


def _added(what: str, subject: str, samples: list[Sample]) -> Added:
    """Return the medians of the rounds."""
    spent = [sample.cpu for sample in samples if sample.cpu is not None]
    p50, p99 = (median(column) for column in zip(*((sample.p50, sample.p99) for sample in samples), strict=True))
    return Added(what, subject, p50, p99, median(spent) if spent else None)


def measure(plan: Plan, load: Generator, only: str, before: Path | None, home: Path) -> list[Added]:
    """Measure the rows whose names contain ``only``."""
    rows = [row for row in ROWS if only in row.what]
    if not rows:
        return []
    agents = {wire.agent(number): "http" for number in range(AGENTS)}
    with site(home, agents, plan.thinks) as at:
        return Arrivals(plan, load, at, before).measure(rows)
