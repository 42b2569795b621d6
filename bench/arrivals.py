"""Turns that arrive like those of agents: an open loop, in which each begins at its
time, on a connection of its own.

A turn has two rounds; the provider thinks for 0.8 s, a tool for 0.12 s. A figure is what a turn
takes beyond the sum of these. Agents don't know of each other, so that arrivals are a Poisson
process: they bunch, and p99 tells what a bunch costs. All subjects of a round get the same
arrivals; a turn that begins late, for whatever reason, has waited.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

import wire
from load import Load
from stage import PINNED, Generator, Process, Proxies, check_requests, percentile, pinned

ROUNDS = 2
FIRST = "arrivals, the first after the start"
ONE_CALL = ", one call"
"""The end of the name of the floor: a connection and one request of a runner, and
one answer; no turn.
"""


@dataclass(frozen=True)
class Plan:
    """The size of a run. ``thinks``: the seconds for which the provider and a tool think."""

    rounds: int = 5
    share: float = 1.0
    """The part of the arrivals of a full run."""
    thinks: tuple[float, float] = (0.8, 0.12)
    agents: int = 50
    starts: bool = True
    """True if each cold row starts a proxy of its own; otherwise only the first
    turn of the run is cold.
    """


@dataclass(frozen=True)
class Row:
    """One kind of arrivals: so many in a second, so many in all, and by whom; ``fresh``: at a proxy
    that was just started.
    """

    what: str
    rate: float
    arrivals: int
    by: tuple[str, ...]
    stream: bool = False
    fresh: bool = False


ROWS = (
    Row(FIRST, 0.5, 1, ("ours", "before"), fresh=True),
    Row(
        "arrivals, 20/s",
        20,
        80,
        ("direct", f"empty addon{ONE_CALL}", "ours", "ours, pinned", "before"),
    ),
    Row("arrivals, 20/s, SSE", 20, 80, ("direct", "ours", "before"), stream=True),
    Row("arrivals, 20/s, cold", 20, 50, ("ours", "before"), fresh=True),
    Row("arrivals, 20/s, cold, SSE", 20, 50, ("ours", "before"), stream=True, fresh=True),
    Row("arrivals, 60/s", 60, 180, ("direct", "ours", "2 workers", "before")),
    Row("arrivals, one every 2 s", 0.5, 3, ("direct", "ours", "before")),
)


@dataclass(frozen=True)
class Overhead:
    """Milliseconds that turns took beyond what the peers think, and of the
    process's CPU for each.
    """

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

    def __init__(self, plan: Plan, load: Generator, proxies: Proxies) -> None:
        self._plan = plan
        self._load = load
        self._at = proxies.at
        self._proxies = proxies

    def measure(self, rows: list[Row], *, pin: bool) -> Iterator[list[Overhead]]:
        """Measure the rows, round by round.

        After each round, yield the medians of all rounds so far.
        """
        samples: dict[tuple[str, str], list[Sample]] = {}
        for number in range(self._plan.rounds):
            for row in rows:
                starts = arrivals(row.rate, max(int(row.arrivals * self._plan.share), 1), number)
                for by in row.by:
                    if by in self._at.absent:
                        continue
                    with (
                        self._proxy(by, fresh=row.fresh) as process,
                        pinned(process if pin or PINNED in by else None),
                    ):
                        sample = self._sample(row.stream, by, process, starts)
                    samples.setdefault((row.what, by), []).append(sample)
            print(f"done: round {number + 1} of arrivals", flush=True)
            yield [_overhead(*key, found) for key, found in samples.items()]

    def _proxy(self, by: str, *, fresh: bool) -> AbstractContextManager[Process | None]:
        """Return a proxy: one that was just started and has had no connection, or
        one that has had two turns of each agent.
        """
        name = by.removesuffix(PINNED).removesuffix(ONE_CALL)
        if name == "direct":
            return nullcontext()
        if fresh and self._plan.starts:
            return self._at.proxy(name, connects=False)
        if name not in self._proxies:
            process = self._proxies.start(name, connects=not fresh)
            if not fresh:
                self._sample(
                    False, by, process, [place / 20 for place in range(2 * self._plan.agents)]
                )
        return nullcontext(self._proxies[name])

    def _sample(
        self, stream: bool, by: str, process: Process | None, starts: list[float]
    ) -> Sample:
        rounds = 0 if by.endswith(ONE_CALL) else ROUNDS
        load = Load(
            0,
            len(starts),
            self._steps(stream, rounds, process),
            starts=starts,
            agents=self._plan.agents,
        )
        before = process.cpu() if process else 0.0
        with check_requests(self._at, len(starts), rounds):
            result = self._load.run(load)
        ideal = self._plan.thinks[0] * (rounds + 1) + self._plan.thinks[1] * rounds
        added = [(seconds - ideal) * 1000 for seconds in result.times]
        spent = (process.cpu() - before) / len(starts) * 1000 if process else None
        return Sample(median(added), percentile(added), spent)

    def _steps(self, stream: bool, rounds: int, process: Process | None) -> list[tuple[int, str]]:
        """Return the one request to a proxy, or those that it would make."""
        agent = wire.AGENT.decode()
        if process is None:
            return wire.direct(self._at.ports, agent, rounds)
        return [
            (
                process.port,
                wire.http("POST", wire.CHAT, agent, wire.question(rounds, stream=stream)),
            )
        ]


def arrivals(rate: float, number: int, seed: int) -> list[float]:
    """Return the seconds at which turns arrive: as a Poisson process, or evenly
    where they are to be alone.
    """
    if rate < 1:
        return [place / rate for place in range(number)]
    chance = random.Random(seed)
    return list(accumulate(chance.expovariate(rate) for _ in range(number)))


def _overhead(what: str, subject: str, samples: list[Sample]) -> Overhead:
    """Return the medians of the rounds."""
    spent = [sample.cpu for sample in samples if sample.cpu is not None]
    p50, p99 = (
        median(column)
        for column in zip(*((sample.p50, sample.p99) for sample in samples), strict=True)
    )
    return Overhead(what, subject, p50, p99, median(spent) if spent else None)
