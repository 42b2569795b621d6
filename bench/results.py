"""The figures of a run of the bench. While it runs, they are those that it has measured so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from arrivals import FIRST, Overhead
from kept import Figure
from state import ConcurrentWrites, StateCost


@dataclass
class Results:
    """The figures of a run; ``has_workers``: ``claw proxy`` knows ``--workers``."""

    machine: str
    has_workers: bool
    overheads: list[Overhead] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    by_turns: dict[int, float] = field(default_factory=dict)
    """Megabytes of memory by number of turns."""
    by_agents: dict[int, float] = field(default_factory=dict)
    stored: list[StateCost] = field(default_factory=list)
    together: list[ConcurrentWrites] = field(default_factory=list)

    def value(self, what: str, connections: int, subject: str, member: str) -> float | None:
        """Return one member of a figure, or None if it was not measured."""
        for figure in self.figures:
            if (figure.what, figure.connections, figure.subject) == (what, connections, subject):
                number: float | None = getattr(figure, member)
                return number
        return None

    def over_direct(self, what: str, subject: str) -> tuple[float, float] | None:
        """Return p50 and p99 of what a subject adds to direct calls; a proxy that
        was just started has those of a warm one.
        """
        warm = "arrivals, one every 2 s" if what == FIRST else what.replace(", cold", "")
        ours, direct = self._overhead(what, subject), self._overhead(warm, "direct")
        return (ours.p50 - direct.p50, ours.p99 - direct.p99) if ours and direct else None

    def _overhead(self, what: str, subject: str) -> Overhead | None:
        return next(
            (each for each in self.overheads if (each.what, each.subject) == (what, subject)), None
        )
