"""Everything that a run of the bench has measured."""

from __future__ import annotations

from dataclasses import dataclass

from arrivals import FIRST, Added
from kept import Figure
from state import ConcurrentWrites, StateCost


@dataclass(frozen=True)
class Results:
    """The figures of a run; ``has_workers``: ``claw proxy`` knows ``--workers``."""

    machine: str
    has_workers: bool
    added: list[Added]
    figures: list[Figure]
    by_turns: dict[int, float]
    """Megabytes of memory by number of turns."""
    by_agents: dict[int, float]
    stored: list[StateCost]
    together: list[ConcurrentWrites]

    def value(self, what: str, connections: int, subject: str, member: str) -> float | None:
        """Return one member of a figure, or None if it was not measured."""
        for figure in self.figures:
            if (figure.what, figure.connections, figure.subject) == (what, connections, subject):
                number: float | None = getattr(figure, member)
                return number
        return None

    def over_direct(self, what: str, subject: str) -> tuple[float, float] | None:
        """Return p50 and p99 of what a subject adds to direct calls; a proxy that was just started has those of a warm one."""
        warm = "arrivals, one every 2 s" if what == FIRST else what.replace(", cold", "")
        added, direct = self._added(what, subject), self._added(warm, "direct")
        return (added.p50 - direct.p50, added.p99 - direct.p99) if added and direct else None

    def _added(self, what: str, subject: str) -> Added | None:
        return next((each for each in self.added if (each.what, each.subject) == (what, subject)), None)
