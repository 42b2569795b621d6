"""Filters of ``claw audit``: ``--agent``, ``--tool``, ``--status``, ``--since``, ``--until`` and ``--turn``.

Agent, time and turn select turns and events; tool and status select calls. A turn counts if one of its calls matches, or if
no tool is asked for and its own outcome has the status. The time of a turn is the time at which it ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from claw_audit.turns import Call, Turn
from claw_contract.names import hashed_alias, plain_alias

type Status = Literal["ok", "error"]


@dataclass(frozen=True, slots=True)
class Filters:
    """Values to match; None or "" matches everything."""

    agent: str = ""
    tool: str = ""
    """Name as service.tool, or the alias that a model sees."""
    status: Status | None = None
    since: float | None = None
    until: float | None = None
    turn: str = ""
    """Beginning of a turn id, with or without ``turn_``."""

    def matches(self, agent: str, at: float | None, turn_id: str) -> bool:
        """Return True if a turn or event of this agent, time and turn id is asked for."""
        return (
            (not self.agent or agent == self.agent)
            and (self.since is None or (at is not None and at >= self.since))
            and (self.until is None or (at is not None and at < self.until))
            and (not self.turn or has_id_prefix(turn_id, self.turn))
        )

    def call_predicate(self) -> Callable[[Call], bool]:
        """Return a predicate matching the calls that ``--tool`` and ``--status`` select."""
        names = {self.tool, plain_alias(self.tool), hashed_alias(self.tool)}
        tool, status = self.tool, self.status
        return lambda call: (not tool or call.tool in names) and (status is None or call.status == status)

    def matches_turn(self, turn: Turn, matching_calls: int) -> bool:
        """Return True if the turn counts, given the number of its calls that matched."""
        if matching_calls or self.tool:
            return matching_calls > 0
        return self.status is None or (turn.outcome == "ok") == (self.status == "ok")


def has_id_prefix(turn_id: str, prefix: str) -> bool:
    """Return True if the turn id begins with the prefix, with or without ``turn_``.

    >>> has_id_prefix("turn_4f1c", "4f"), has_id_prefix("turn_4f1c", "turn_4"), has_id_prefix("turn_4f1c", "f1")
    (True, True, False)
    """
    return turn_id.startswith((prefix, f"turn_{prefix}"))
