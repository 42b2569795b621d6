"""Tools that an agent's model was not shown: what its pod declares, against what history says was offered.

Rules. ``not granted``: a service of the pod declares it, and the agent has no grant. ``granted, not offered``: in turns of the
very compile that is looked at, in which other tools were. ``offered, not granted``: in such a turn it should not have been.
Turns of another compile prove nothing of this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from claw_audit.bounded import Counts
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
        self._turns = Counts()
        self._offered: dict[str, Counts] = {}

    def turn(self, turn: Turn) -> None:
        if self._grants is None or not turn.offered:
            return
        granted = self._grants.agents.get(turn.agent)
        if granted is None or granted.digest != turn.digest:
            return
        self._turns.add(turn.agent)
        counts = self._offered.setdefault(turn.agent, Counts())
        for alias in dict.fromkeys(turn.offered):
            counts.add(alias)

    def rows(self, agent: str = "") -> Iterator[WithheldRow]:
        """By agent and tool."""
        if self._grants is None:
            return
        turns = dict(self._turns.items())
        for name, granted in sorted(self._grants.agents.items()):
            if agent in ("", name):
                yield from self._of(name, granted, turns.get(name, 0))

    def _of(self, agent: str, granted: Granted, turns: int) -> Iterator[WithheldRow]:
        assert self._grants is not None
        offered = dict(self._offered[agent].items()) if agent in self._offered else {}
        for tool in sorted(self._grants.declared - granted.tools):
            yield WithheldRow(agent, tool, NOT_GRANTED, None)
        for tool in sorted(granted.tools):
            seen = sum(offered.pop(alias, 0) for alias in {plain_alias(tool), hashed_alias(tool)})
            if seen < turns:
                yield WithheldRow(agent, tool, NOT_OFFERED, turns - seen)
        for alias, count in sorted(offered.items()):
            yield WithheldRow(agent, alias, NOT_IN_MANIFEST, count)
