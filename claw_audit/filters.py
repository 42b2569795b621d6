"""Which turns and calls are asked for.

Rules. An agent, a time and a turn choose turns, and events; a tool and a status choose calls. A turn counts where one of its
calls does, or where no tool is asked for and its own end fits the status. The time of a turn is when it ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from claw_audit.turns import Call, Turn
from claw_contract.names import hashed_alias, plain_alias

type Status = Literal["ok", "error"]


@dataclass(frozen=True, slots=True)
class Choice:
    """None, or "": whatever it is."""

    agent: str = ""
    tool: str = ""
    """By its name, as service.tool, or as a model sees it."""
    status: Status | None = None
    since: float | None = None
    until: float | None = None
    turn: str = ""
    """The beginning of a turn's id, with or without ``turn_``."""

    def event(self, agent: str, at: float | None, turn_id: str) -> bool:
        """Whether what happened to an agent, at a time and in a turn, is asked for."""
        return (
            (not self.agent or agent == self.agent)
            and (self.since is None or (at is not None and at >= self.since))
            and (self.until is None or (at is not None and at < self.until))
            and (not self.turn or is_named(turn_id, self.turn))
        )

    def calls(self) -> Callable[[Call], bool]:
        """Whether a call is."""
        names = {self.tool, plain_alias(self.tool), hashed_alias(self.tool)}
        wanted = None if self.status is None else self.status == "ok"

        def fits(call: Call) -> bool:
            return (not self.tool or call.tool in names) and (wanted is None or call.ok == wanted)

        return fits

    def turns(self, turn: Turn, chosen: int) -> bool:
        """Whether a turn is, of whose calls so many are."""
        if chosen:
            return True
        if self.tool:
            return False
        return self.status is None or (turn.outcome == "ok") == (self.status == "ok")


def is_named(turn_id: str, prefix: str) -> bool:
    """Whether an id begins so.

    >>> is_named("turn_4f1c", "4f"), is_named("turn_4f1c", "turn_4"), is_named("turn_4f1c", "f1")
    (True, True, False)
    """
    return turn_id.startswith((prefix, f"turn_{prefix}"))
