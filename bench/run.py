"""The bench: ``python bench/run.py [--quick] [--json FILE]``.

README.md says what it measures, with the last figures.

Everything is measured in one run, in rounds, each subject next to the one that it is compared with:
a disturbance of the machine disturbs all of them. A figure is the median of its rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import arrivals
import kept
import memory
import page
import state
import table
import wire
from results import Results
from stage import Generator, Proxies, generator, has_workers, site


@dataclass(frozen=True)
class Plan:
    """The size of a run. ``shares``: all rows have the same peers and proxies."""

    arrivals: arrivals.Plan
    kept: kept.Plan
    memory: memory.Plan
    state: state.Plan
    shares: bool = False


FULL = Plan(
    arrivals.Plan(), kept.Plan(), memory.Plan(), state.Plan((10, 20_000), connections=(1, 16))
)
QUICK = Plan(
    arrivals.Plan(1, 0.7),
    kept.Plan(3, 0.3),
    memory.Plan((500, 1_000, 2_000), (1, 50)),
    state.Plan((10, 1_000), 200, (1, 16)),
)
SMOKE = Plan(
    arrivals.Plan(1, 0.02, (0.0, 0.0), 2, starts=False),
    kept.Plan(1, 0.0, (1,), frozenset({"ours, plain"})),
    memory.Plan((10, 20), (1, 2)),
    state.Plan((2,), 4, (2,)),
    shares=True,
)


_PAIR = frozenset({"ours", "before"})


class Run:
    """A run of the plan."""

    def __init__(
        self, plan: Plan, options: argparse.Namespace, load: Generator, home: Path
    ) -> None:
        self._plan = plan
        self._options = options
        self._load = load
        self._home = home
        self._shared: Proxies | None = None

    def measure(self, results: Results) -> None:
        """Measure the rows whose names contain what is asked for.

        Each figure is in the results as soon as it is known.
        """
        plan, only, pin = self._plan, self._options.only, self._options.pin
        with ExitStack() as started:
            if plan.shares:
                self._shared = started.enter_context(self._proxies(plan.arrivals.agents))
            kinds = [row for row in kept.ROWS if only in row.what]
            if self._options.pair:
                self._measure_kept([row for row in kinds if "before" in row.by], results)
                return

            if rows := [row for row in arrivals.ROWS if only in row.what]:
                with self._proxies(plan.arrivals.agents, plan.arrivals.thinks) as proxies:
                    for overheads in arrivals.Arrivals(plan.arrivals, self._load, proxies).measure(
                        rows, pin=pin
                    ):
                        results.overheads = overheads
            if kinds:
                self._measure_kept(kinds, results)
            if only in "memory":
                with self._proxies(max(plan.memory.agents)) as proxies:
                    found = memory.measure(plan.memory, self._load, proxies.at, proxies["ours"])
                    results.by_agents, results.by_turns = found
                print("done: memory", flush=True)
        if only in "state":
            results.stored, results.together = asyncio.run(state.measure(plan.state))

    def _measure_kept(self, rows: list[kept.Row], results: Results) -> None:
        plan, pin = self._plan.kept, self._options.pin
        with self._proxies(0) as proxies:
            for figures in kept.measure(plan, self._load, rows, proxies, pin=pin):
                results.figures = figures

    @contextmanager
    def _proxies(self, agents: int, thinks: tuple[float, float] = (0.0, 0.0)) -> Iterator[Proxies]:
        """Yield the proxies of a new site with so many agents, or those that are shared."""
        if self._shared is not None:
            yield self._shared
            return
        home, names = (
            Path(tempfile.mkdtemp(dir=self._home)),
            {wire.agent(number): "http" for number in range(agents)},
        )
        pod = {"analyst": "http", "mcp": "mcp", "plain": "", **names}
        with site(home, pod, thinks, before=self._options.before) as at, ExitStack() as started:
            yield Proxies(at, started)


def main() -> None:
    options = parse_arguments()
    plan = QUICK if options.quick else SMOKE if options.smoke else FULL
    if options.connections:
        plan = replace(plan, kept=replace(plan.kept, connections=options.connections))
    if options.pair:
        plan = replace(plan, kept=replace(plan.kept, without=kept.SUBJECTS - _PAIR))
    results = Results(table.machine(sorted(os.sched_getaffinity(0))), has_workers())
    try:
        with generator() as load, tempfile.TemporaryDirectory(prefix="claw-bench-") as home:
            Run(plan, options, load, Path(home)).measure(results)
    finally:
        print(table.text(results))
        if options.json:
            options.json.write_text(json.dumps(asdict(results), indent=1) + "\n", encoding="utf-8")
    if options.page:
        for name, text in table.tables(results).items():
            page.replace(options.page, name, text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measures the proxy beside a bare mitmdump and beside direct calls."
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="about three minutes, and coarse")
    size.add_argument(
        "--smoke", action="store_true", help="a few requests of each kind, to test the bench"
    )
    parser.add_argument(
        "--only", default="", help="measure only rows whose name contains this; also: memory, state"
    )
    parser.add_argument(
        "--connections",
        type=numbers,
        help="measure the rows of kept connections only at these, as in 1,16",
    )
    parser.add_argument(
        "--pin", action="store_true", help="keep each measured proxy on a core of its own"
    )
    parser.add_argument(
        "--before", type=Path, help="another checkout, whose proxy is measured beside this one's"
    )
    parser.add_argument(
        "--pair",
        action="store_true",
        help="with --before: measure only these two proxies, in the rows of kept connections",
    )
    parser.add_argument(
        "--json", type=Path, help="the file to which the figures are written as JSON"
    )
    parser.add_argument("--page", type=Path, help="the page in which the tables are written anew")
    options = parser.parse_args()
    if options.pair and options.before is None:
        parser.error("--pair needs --before")
    return options


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of connections in a list with commas.

    Raise ``ArgumentTypeError`` for one that no row has.
    """
    asked, known = text.split(","), [str(number) for number in FULL.kept.connections]
    if unknown := [word for word in asked if word not in known]:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown)}: the rows have {' and '.join(known)} connections"
        )
    return tuple(map(int, asked))


if __name__ == "__main__":
    main()
