"""Tools that an agent's model was not shown: what history says, and what a pod declares against what was offered.

Rules. With each turn history says which granted tools were kept back, and why. ``not granted``: a service of the pod declares
it, and the agent has no grant. ``granted, not offered``: in turns of the very compile that is looked at, in which other tools
were. ``offered, not granted``: in such a turn it should not have been. Turns of another compile prove nothing of this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from claw_audit.bounded_counter import Counts, Table
from claw_audit.report import WithheldRow
from claw_audit.turns import Turn
from claw_contract.names import hashed_alias, plain_alias

NOT_GRANTED = "not granted"
NOT_OFFERED = "granted, not offered"
NOT_IN_MANIFEST = "offered, not granted"


@dataclass(frozen=True, slots=True)
class Granted:
    """What was compiled for one agent."""

    digest: str
    tools: frozenset[str]


@dataclass(frozen=True, slots=True)
class Grants:
    """What is known of a pod: its agents, and every tool that its services declare."""

    agents: Mapping[str, Granted]
    declared: frozenset[str]


class Offers:
    """What agents were offered in their turns."""

    def __init__(self, grants: Grants | None) -> None:
        self._grants = grants
        self._told: Table[Counts] = Table(Counts)
        """Agent → tool and reason."""
        self._turns = Counts()
        """Of this very compile, in which tools were offered."""
        self._offered: Table[Counts] = Table(Counts)

    def turn(self, turn: Turn) -> None:
        """One turn."""
        for tool, reason in turn.withheld:
            self._told[turn.agent].add(f"{tool}\0{reason}")
        granted = self._grants.agents.get(turn.agent) if self._grants is not None else None
        if granted is not None and turn.offered and granted.digest == turn.digest:
            self._turns.add(turn.agent)
            for alias in dict.fromkeys(turn.offered):
                self._offered[turn.agent].add(alias)

    def rows(self, agent: str = "") -> Iterator[WithheldRow]:
        """What history says, then what it does not."""
        for name, told in self._told.items():
            for what, turns in sorted(told.items()):
                tool, _, reason = what.partition("\0")
                yield WithheldRow(name, tool, reason, turns)
        if self._grants is not None:
            turns_of, offered = dict(self._turns.items()), dict(self._offered.items())
            for name, granted in sorted(self._grants.agents.items()):
                if agent in ("", name):
                    counts = dict(offered[name].items()) if name in offered else {}
                    yield from self._unexplained(name, granted, turns_of.get(name, 0), counts)

    def _unexplained(self, agent: str, granted: Granted, turns: int, offered: dict[str, int]) -> Iterator[WithheldRow]:
        assert self._grants is not None
        for tool in sorted(self._grants.declared - granted.tools):
            yield WithheldRow(agent, tool, NOT_GRANTED, None)
        told = {what.partition("\0")[0] for what, _ in self._told[agent].items()}
        for tool in sorted(granted.tools):
            seen = sum(offered.pop(alias, 0) for alias in {plain_alias(tool), hashed_alias(tool)})
            if seen < turns and tool not in told:
                yield WithheldRow(agent, tool, NOT_OFFERED, turns - seen)
        for alias, count in sorted(offered.items()):
            yield WithheldRow(agent, alias, NOT_IN_MANIFEST, count)
