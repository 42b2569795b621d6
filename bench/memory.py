"""The memory of a proxy: by the number of turns that it has had, and by the number
of agents that have asked it.
"""

from __future__ import annotations

from dataclasses import dataclass

import wire
from load import Load
from stage import Generator, Process, Site, check_requests


@dataclass(frozen=True)
class Plan:
    """The numbers of turns, and of agents, after which memory is read."""

    turns: tuple[int, ...] = (2_000, 6_000, 12_000, 20_000)
    agents: tuple[int, ...] = (1, 50, 200)


class Memory:
    """One proxy, whose memory is read now and then."""

    def __init__(self, load: Generator, at: Site, process: Process) -> None:
        self._load = load
        self._at = at
        self._process = process

    def by_agents(self, agents: int, least: int) -> float:
        """Return megabytes after two turns of each of so many agents, and so many
        turns at least.
        """
        return self._after(agents, max(2 * agents, least), 1)

    def by_turns(self, more: int) -> float:
        """Return megabytes after so many more turns, every other one streamed, in
        conversations of their own.
        """
        self._after(1, more // 2, 16)
        return self._after(1, more // 2, 16, stream=True)

    def _after(self, agents: int, turns: int, connections: int, *, stream: bool = False) -> float:
        request = wire.http("POST", wire.CHAT, wire.AGENT.decode(), wire.question(1, stream=stream))
        load = Load(connections, turns, [(self._process.port, request)], agents=agents)
        with check_requests(self._at, turns + 2 * connections, 1):
            self._load.run(load)
        return round(self._process.rss() / 1e6, 1)


def measure(
    plan: Plan, load: Generator, at: Site, process: Process
) -> tuple[dict[int, float], dict[int, float]]:
    """Return megabytes by number of agents, and then by number of turns."""
    memory = Memory(load, at, process)
    by_agents = {number: memory.by_agents(number, plan.turns[0] // 20) for number in plan.agents}
    differences = [
        later - earlier for earlier, later in zip((0, *plan.turns), plan.turns, strict=False)
    ]
    return by_agents, {
        turns: memory.by_turns(more) for turns, more in zip(plan.turns, differences, strict=True)
    }
