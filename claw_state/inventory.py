"""What is kept of each agent, in counts and sizes, and forgetting it: what ``claw state`` asks of a state, and is told.

Never what is kept: an operator's screen is no place for a conversation.

    running    a process is at it
    abandoned  its runner has left, and a process awaits what a write of it brings
    cut off    it was one of these, and its process has died or gone silent
    failed     there was no answer
    answered   there is one, which was not yet handed to the runner
    done       it was handed over
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast, get_args

from claw_state.lease import Owner

type TurnState = Literal["running", "abandoned", "cut_off", "failed", "answered", "done"]
TURN_STATES: tuple[TurnState, ...] = get_args(TurnState.__value__)


_AT_WORK = ("running", "abandoned")


@dataclass(frozen=True, slots=True)
class RoundStats:
    """Hidden rounds: of how many answers, their bytes, and when they were last used (seconds since 1970). ``marks``: answers
    that have none, or none any more, which are kept to be told from those.
    """

    count: int = 0
    size: int = 0
    oldest: float | None = None
    newest: float | None = None
    marks: int = 0


@dataclass(frozen=True, slots=True)
class SpendingTotal:
    """What is on record of an agent's budget."""

    requests: int
    cost: float
    unknown: int
    """Requests of which nobody knows the cost."""


@dataclass(frozen=True, slots=True)
class AgentState:
    agent: str
    rounds: RoundStats = RoundStats()
    turns: dict[TurnState, int] = field(default_factory=dict)
    spent: SpendingTotal | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """``size`` and ``log``: bytes of the file and of the log beside it; ``keys``: of a server."""

    place: str
    store: Literal["SQLite", "Valkey"]
    schema: int
    agents: tuple[AgentState, ...]
    size: int | None = None
    log: int | None = None
    keys: int | None = None


@dataclass(frozen=True, slots=True)
class DeletionCounts:
    """``running``: turns that were left, because a process is at them. ``lingers``: what is forgotten could not yet be taken
    out of the log beside the file.
    """

    rounds: int
    marks: int
    turns: int
    running: int
    lingers: bool = False


class StateInventory(Protocol):
    """A state. Every method raises ``StoreError`` with one line: the thing, the place, and the remedy."""

    def inventory(self) -> Inventory:
        """Changes nothing."""

    def forget(self, agent_id: str) -> DeletionCounts | None:
        """Hidden rounds and turns of an agent, but for turns that somebody is at; None: nothing was kept of it. What it has
        spent stays: forgetting is no way round a budget.
        """


def current_state(me: Owner, state: str, owner: str, silent: float) -> str:
    """The state of a turn of which nothing was heard for so many seconds."""
    return "cut_off" if state in _AT_WORK and not me.believes(owner, silent) else state


def is_deletable(state: str) -> bool:
    """Whether nobody is at a turn."""
    return state not in _AT_WORK


def count_states(states: Iterable[str]) -> dict[TurnState, int]:
    """How many turns are in each state; a state that is none of ours is nobody's turn."""
    found = list(states)
    return {state: number for state in TURN_STATES if (number := found.count(cast("str", state)))}
