"""The port behind ``claw state``: counts and sizes of each agent's entries, and their deletion.

Never their content.

running    a process runs the turn
abandoned  its runner left, and a process awaits the result of a write
cut off    it was running or abandoned, and its process died or went silent
failed     it ended without an answer
answered   it has an answer that was not yet delivered to the runner
done       its answer was delivered
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast, get_args

from claw_state.lease import Owner

type TurnState = Literal["running", "abandoned", "cut_off", "failed", "answered", "done"]
TURN_STATES: tuple[TurnState, ...] = get_args(TurnState.__value__)
_UNFINISHED = ("running", "abandoned")


@dataclass(frozen=True, slots=True)
class RoundStats:
    """Hidden rounds: entries with messages, bytes, and times of use (seconds since 1970).

    ``marks``: entries without messages, kept to distinguish an answer from an equal one.
    """

    count: int = 0
    size: int = 0
    oldest: float | None = None
    newest: float | None = None
    marks: int = 0


@dataclass(frozen=True, slots=True)
class SpendingTotal:
    """The recorded spending of an agent, in requests and US dollars."""

    requests: int
    cost: float
    unknown: int  # Requests of unknown cost


@dataclass(frozen=True, slots=True)
class AgentState:
    agent: str
    rounds: RoundStats = RoundStats()
    turns: dict[TurnState, int] = field(default_factory=dict)
    spent: SpendingTotal | None = None
    owned: int = 0  # Ids of what providers keep for it


@dataclass(frozen=True, slots=True)
class Inventory:
    """A state's agents.

    ``size`` and ``log``: bytes of the file and of its write-ahead log; ``keys``: of a server.
    """

    place: str
    store: Literal["SQLite", "Valkey"]
    schema: int
    agents: tuple[AgentState, ...]
    size: int | None = None
    log: int | None = None
    keys: int | None = None


@dataclass(frozen=True, slots=True)
class DeletionCounts:
    """The result of ``forget``. ``running``: turns that were spared, because a process runs them.

    ``lingers``: the deleted data could not yet be removed from the write-ahead log.
    """

    rounds: int
    marks: int
    turns: int
    running: int
    owned: int = 0
    lingers: bool = False


class StateInventory(Protocol):
    """A state as an operator sees it.

    Every method raises ``StoreError`` with one line: problem, place and remedy.
    """

    def inventory(self) -> Inventory:
        """Count the entries. Changes nothing."""

    def forget(self, agent_id: str) -> DeletionCounts | None:
        """Delete an agent's hidden rounds, its owned ids and its turns that no
        process runs; return None if it has none.

        Providers keep what the ids name, and requests that name them are refused from then on.
        Spending stays, so that deletion is no way around a budget.
        """


def current_state(me: Owner, state: str, owner: str, silent: float) -> str:
    """Return a turn's state, given the seconds since its owner was last heard of."""
    return "cut_off" if state in _UNFINISHED and not me.may_be_held(owner, silent) else state


def is_deletable(state: str) -> bool:
    """Return True if no process runs a turn in this state."""
    return state not in _UNFINISHED


def count_states(states: Iterable[str]) -> dict[TurnState, int]:
    """Count the turns in each state. Unknown states are ignored."""
    present = list(states)
    return {state: number for state in TURN_STATES if (number := present.count(cast("str", state)))}
