"""The targets of the bench, and whether a run meets them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from results import Results


@dataclass(frozen=True)
class Target:
    """A limit, and what was found."""

    name: str
    limit: float
    found: float
    floor: float | None = None
    """The figure of a mitmdump whose addon does nothing, for the least of that work."""
    at_least: bool = False
    """The limit is the least that is wanted, else the most."""

    @property
    def is_met(self) -> bool:
        return self.found >= self.limit if self.at_least else self.found <= self.limit

    def cells(self) -> tuple[str, ...]:
        """Return the target as a line of the table."""
        sign, floor = (
            "≥" if self.at_least else "≤",
            "" if self.floor is None else f"{self.floor:.2f}",
        )
        return (
            self.name,
            f"{sign} {self.limit:g}",
            f"{self.found:.2f}",
            "met" if self.is_met else "missed",
            floor,
        )


def targets(results: Results) -> Iterator[Target]:
    """Yield the targets that this run has figures for."""
    yield from _of_arrivals(results)
    yield from _of_turns(results)
    yield from _of_passing(results)
    if len(results.by_turns) > 1:
        values = list(results.by_turns.values())
        yield Target("memory after the last turns to after the first", 1.05, values[-1] / values[0])


def _of_arrivals(results: Results) -> Iterator[Target]:
    for what, p50, p99 in (
        ("arrivals, 20/s", 10, 30),
        ("arrivals, 20/s, SSE", 10, 30),
        ("arrivals, 20/s, cold", 15, 100),
        ("arrivals, 20/s, cold, SSE", 15, 100),
        ("arrivals, 60/s", 12, 50),
    ):
        floor = results.over_direct(what, "empty addon, one call") or (None, None)
        if (over := results.over_direct(what, "ours")) is not None:
            yield Target(f"{what}: added over direct, p50 ms", p50, over[0], floor[0])
            yield Target(f"{what}: added over direct, p99 ms", p99, over[1], floor[1])
        if (two := results.over_direct(what, "2 workers")) is not None and over is not None:
            yield Target(f"{what}: two workers' p50 to one's", 1.0, two[0] / over[0])
            yield Target(f"{what}: two workers' p99 to one's", 1.0, two[1] / over[1])


def _of_turns(results: Results) -> Iterator[Target]:
    for connections in (1, 16):
        first_round = results.value("turn of 1 round", connections, "ours", "cpu")
        if first_round is not None:
            name = f"CPU of a one-round turn, connections: {connections}, ms"
            floor = results.value("pass-through, JSON", connections, "empty addon", "cpu")
            yield Target(name, 3.5, first_round, floor)

        further_round = _cpu_of_a_round(results, "", connections)
        if further_round is not None:
            name = f"CPU of each further round, connections: {connections}, ms"
            yield Target(name, 1.0, further_round)

    http = _cpu_of_a_round(results, "")
    mcp = _cpu_of_a_round(results, ", MCP")
    if http is not None and mcp is not None:
        yield Target("CPU of a round with a call over MCP, to one over HTTP", 1.5, mcp / http)

    for what in ("turn of 1 round", "turn of 1 round, SSE", "pass-through, SSE"):
        chat = results.value(what, 1, "ours", "cpu")
        responses = results.value(what, 1, "ours, Responses", "cpu")
        if chat and responses:
            yield Target(f"CPU of {what}, over Responses to chat", 1.15, responses / chat)

    one_worker = results.value("turn of 1 round, by workers", 16, "ours", "per_second")
    two_workers = results.value("turn of 1 round, by workers", 16, "2 workers", "per_second")
    if one_worker and two_workers:
        name = "two workers' turns a second to one's"
        yield Target(name, 1.7, two_workers / one_worker, at_least=True)


def _of_passing(results: Results) -> Iterator[Target]:
    for what in ("pass-through, JSON", "pass-through, SSE"):
        for connections in (1, 16):
            bare, empty, ours, plain = (
                results.value(what, connections, by, "cpu")
                for by in ("bare", "empty addon", "ours", "ours, plain")
            )
            if bare and ours:
                name = f"CPU of {what}, connections: {connections}, to bare"
                yield Target(name, 1.15, ours / bare, empty / bare if empty else None)
            if bare and plain:
                yield Target("the same without the fast dispatch", 1.3, plain / bare)


def _cpu_of_a_round(results: Results, kind: str, connections: int = 1) -> float | None:
    """Return the milliseconds of a round behind the first: a turn of eight has seven more."""
    one = results.value(f"turn of 1 round{kind}", connections, "ours", "cpu")
    eight = results.value(f"turn of 8 rounds{kind}", connections, "ours", "cpu")
    if one is None or eight is None:
        return None
    return (eight - one) / 7
