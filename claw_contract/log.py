"""The log: one JSON object a line on stdout (spec/contract.md "The log")."""

from __future__ import annotations

from typing import Literal

from claw_contract.base import Contract

type EventType = Literal[
    "request",
    "response",
    "tool_call",
    "intervention",
    "failover",
    "provider_pool",
    "feed_fetch",
    "feed_injection",
    "memory_op",
    "tool_manifest_loaded",
    "continuity",
    "resume",
    "join",
    "state",
    "error",
]

COMMON = ("ts", "type", "claw_id", "turn_id", "model", "intervention")
"""The members of every line, null where they do not apply."""


type How = Literal["running", "awaited", "answered"]
"""How a request came to the answer of a turn: it is under way here; it was in another process; it had ended."""


class Missed(Contract):
    """Assistant's messages of a request that got no hidden rounds back, though there may have been some."""

    unknown: int = 0
    """Nothing is kept of such a message: it was no turn of ours, or too long ago, or the runner altered it."""
    evicted: int = 0
    """The agent had no room for its rounds any more."""
    other_conversation: int = 0
    """What is kept of such a message belongs elsewhere."""
    over_bound: int = 0
    """The request had no room for its rounds, not even shortened."""


class Reinjected(Contract):
    """What a conversation got back of its hidden rounds: numbers, never words."""

    anchors: int
    """Assistant's messages that were looked for."""
    hits: int
    """Those whose turn was found, and what was hidden before it, if anything, was put there."""
    turns: int
    """Turns whose hidden rounds were put there."""
    bytes: int
    shortened: int
    """Of those turns, such as had to shrink to a line a call."""
    missed: Missed


class _Event(Contract):
    ts: str
    claw_id: str
    turn_id: str | None
    """None: the request only counts tokens."""
    model: str | None
    intervention: None = None


class ContinuityEvent(_Event, Reinjected):
    """A request whose conversation has messages of the assistant's."""

    type: Literal["continuity"]


class ResumeEvent(_Event):
    """A turn goes on where an earlier attempt was: told when all that is known of it was played."""

    type: Literal["resume"]
    replies: int
    """The model's replies that were not asked for again."""
    calls: int
    """Calls that were not made again, since their results were known."""
    unknown: int
    """Calls that were not made again, since their outcome is not known."""


class JoinEvent(_Event):
    """A request gets the answer of a turn that an equal one began."""

    type: Literal["join"]
    how: How
    waiting: int
    """Runners that wait for a turn that is under way here, this one among them."""
    bytes: int
    """Of the answer that is given again; 0 while there is none."""


type ContinuityEvents = ContinuityEvent | ResumeEvent | JoinEvent
