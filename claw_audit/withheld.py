"""Tools that an agent's model was not shown.

History has the granted tools that each turn withheld, with the reason. With a pod three more reasons can be found:
``not granted``: a service of the pod declares the tool, and the agent has no grant for it. ``granted, not offered``: a turn of
the same compiled pod offered other tools and not this one. ``offered, not granted``: such a turn offered a tool without a
grant. Turns of another compiled pod (by its digest) prove nothing about this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from claw_audit.bounded_counter import BoundedCounter, BoundedTable
from claw_audit.report import WithheldRow
from claw_audit.turns import Turn
from claw_contract.names import hashed_alias, plain_alias

NOT_GRANTED = "not granted"
NOT_OFFERED = "granted, not offered"
NOT_IN_MANIFEST = "offered, not granted"


@dataclass(frozen=True, slots=True)
class AgentGrants:
    """The tools of one compiled agent, and the digest of its manifest."""

    digest: str
    tools: frozenset[str]


@dataclass(frozen=True, slots=True)
class PodGrants:
    """The agents of a compiled pod, and every tool that its services declare."""

    agents: Mapping[str, AgentGrants]
    declared: frozenset[str]


class WithheldTools:
    """Counts, for each agent, of the tools that its turns offered and withheld."""

    def __init__(self, grants: PodGrants | None) -> None:
        self._grants = grants
        self._withheld = BoundedTable(lambda _agent: BoundedCounter())
        """Turns by agent, and by tool and reason with a zero byte between them."""
        self._turns = BoundedCounter()
        """Turns of this compiled pod that offered tools, by agent."""
        self._offered = BoundedTable(lambda _agent: BoundedCounter())
        """Turns by agent, and by offered alias."""

    def add(self, turn: Turn) -> None:
        for tool, reason in turn.withheld:
            self._withheld[turn.agent].add(f"{tool}\0{reason}")
        granted = self._grants.agents.get(turn.agent) if self._grants is not None else None
        if granted is not None and turn.offered and granted.digest == turn.digest:
            self._turns.add(turn.agent)
            for alias in dict.fromkeys(turn.offered):
                self._offered[turn.agent].add(alias)

    def rows(self, agent: str = "") -> Iterator[WithheldRow]:
        """Return the withheld tools from history, then those that only the pod explains."""
        for name, withheld in self._withheld.items():
            for key, turns in sorted(withheld.counts.items()):
                tool, _, reason = key.partition("\0")
                yield WithheldRow(name, tool, reason, turns)
        if self._grants is not None:
            for name, granted in sorted(self._grants.agents.items()):
                if agent in ("", name):
                    yield from self._pod_rows(name, granted, self._grants.declared)

    def _pod_rows(self, agent: str, granted: AgentGrants, declared: frozenset[str]) -> Iterator[WithheldRow]:
        for tool in sorted(declared - granted.tools):
            yield WithheldRow(agent, tool, NOT_GRANTED, None)
        explained = {key.partition("\0")[0] for key in self._withheld[agent].counts}
        turns, offered = self._turns.counts[agent], dict(self._offered[agent].counts)
        for tool in sorted(granted.tools):
            offers = sum(offered.pop(alias, 0) for alias in {plain_alias(tool), hashed_alias(tool)})
            if offers < turns and tool not in explained:
                yield WithheldRow(agent, tool, NOT_OFFERED, turns - offers)
        for alias, count in sorted(offered.items()):
            yield WithheldRow(agent, alias, NOT_IN_MANIFEST, count)
