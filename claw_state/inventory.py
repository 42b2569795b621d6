"""The port of ``claw state``: it counts each agent's entries, and deletes them.

It never shows their content. A turn is in one of these states:

    running    a process runs it
    abandoned  its runner left, and a process awaits the result of a write
    cut off    it was running or abandoned, and its process died or went silent
    failed     it ended without an answer
    answered   it has an answer that was not yet delivered to the runner
    done       its answer was delivered
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from claw_state.lease import LeaseOwner

type TurnState = Literal["running", "abandoned", "cut_off", "failed", "answered", "done"]
TURN_STATES: tuple[TurnState, ...] = get_args(TurnState.__value__)
_UNFINISHED = ("running", "abandoned")


@dataclass(frozen=True, slots=True)
class RoundStats:
    """The hidden rounds of an agent."""

    count: int = 0  # Entries with messages
    size: int = 0  # Bytes
    oldest: float | None = None  # The first time of use, in seconds since 1970
    newest: float | None = None
    marks: int = 0  # Entries without messages, which distinguish an answer from an equal one


@dataclass(frozen=True, slots=True)
class SpendingTotal:
    """The recorded spending of an agent, in requests and US dollars."""

    requests: int
    cost: float
    unknown: int  # Requests of unknown cost


@dataclass(frozen=True, slots=True)
class AgentState:
    """The entries of one agent."""

    agent: str
    rounds: RoundStats = RoundStats()
    turns: dict[TurnState, int] = field(default_factory=dict)
    spent: SpendingTotal | None = None
    owned: int = 0  # Kept and provider objects of the agent


@dataclass(frozen=True, slots=True)
class Inventory:
    """A state and its agents."""

    place: str
    store: Literal["SQLite", "Valkey"]
    schema: int
    agents: tuple[AgentState, ...]
    size: int | None = None  # Bytes of a file
    log: int | None = None  # Bytes of its write-ahead log
    keys: int | None = None  # The number of keys of a server


@dataclass(frozen=True, slots=True)
class DeletionCounts:
    """The numbers of deleted entries, as ``forget`` returns them."""

    rounds: int
    marks: int
    turns: int
    running: int  # Turns that were not deleted, because a process runs them
    owned: int = 0
    lingers: bool = False
    """True if the deleted data could not yet be removed from the write-ahead log."""


class StateInventory(Protocol):
    """A state as an operator sees it.

    Every method raises ``StoreError`` with one line: problem, place and remedy.
    """

    def inventory(self) -> Inventory:
        """Count the entries. Changes nothing."""

    def forget(self, agent_id: str) -> DeletionCounts | None:
        """Delete an agent's hidden rounds, its owned objects, and its turns that no process runs.

        Return None if it has none of these. The objects stay at their providers, but requests that
        name them are refused from then on. Spending stays, so that deletion is no way around a
        budget.
        """


def current_state(me: LeaseOwner, state: str, owner: str, silent: float) -> str:
    """Return a turn's state, given the seconds since its owner was last heard of."""
    if state in _UNFINISHED and not me.may_be_held(owner, silent):
        return "cut_off"
    return state


def is_deletable(state: str) -> bool:
    """Return True if no process runs a turn in this state."""
    return state not in _UNFINISHED


def count_states(states: Iterable[str]) -> dict[TurnState, int]:
    """Count the turns in each state. Unknown states are ignored."""
    counts = Counter(states)
    return {state: counts[state] for state in TURN_STATES if state in counts}
