"""Lines of the log that tell of requests and turns."""

from __future__ import annotations

from typing import Literal

from claw_contract.base import Contract
from claw_contract.log.event import Event

type JoinKind = Literal["running", "awaited", "answered"]
"""How a request came to the answer of a turn: it is under way here; it was in another process; it had ended."""


class MissedRounds(Contract):
    """Assistant's messages of a request that got no hidden rounds back, though there may have been some."""

    unknown: int = 0
    """Nothing is kept of such a message: it was no turn of ours, or too long ago, or the runner altered it."""
    evicted: int = 0
    """The agent had no room for its rounds any more."""
    other_conversation: int = 0
    """What is kept of such a message belongs elsewhere."""
    over_bound: int = 0
    """The request had no room for its rounds, not even shortened."""


class ReinjectedRounds(Contract):
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
    missed: MissedRounds


class RequestEvent(Event):
    """A turn begins, or a request is sent on as it is."""

    type: Literal["request"]
    path: str
    stream: bool
    manifest_present: bool
    tools_count: int
    mediated: bool
    """Whether tools are run for it here."""


class ModelCallRecord(Contract):
    """One request to a provider. A turn makes one a round, and more of them where a provider fails."""

    provider: str
    model: str
    status_code: int | None
    """None: there was no response."""
    started: str
    latency_ms: int
    """Until the whole response was there."""


class _Ended(Event):
    status_code: int
    latency_ms: int
    tokens_in: int
    tokens_out: int
    cached_tokens: int
    cost_usd: float | None
    """None: nobody knows."""
    total_rounds: int
    """Replies of the model that were paid for."""
    mediated: bool
    provider: str
    """Who answered; of several the one that was asked last."""
    model_calls: tuple[ModelCallRecord, ...]
    overhead_ms: float | None
    """The turn's time without the times at which it waited for a provider or a service. None: it is not mediated."""
    history_hash: str | None = None
    """Of its line of history, where one was written: who has the log knows by it which lines there were."""
    history_rotated: bool = False
    """Whether that line is the first of a file, since the one before was full."""


class ResponseEvent(_Ended):
    """A request is over, and was answered well."""

    type: Literal["response"]


class FailedEvent(_Ended):
    """A request is over, and its runner was told of an error, or left."""

    type: Literal["error"]
    error: str | None = None
    """A code of ours, or of the provider's as we call it."""


class ToolCallEvent(Event):
    """A managed call was run, or was answered without running."""

    type: Literal["tool_call"]
    name: str
    """The tool's; where there is none, what the model wrote."""
    service: str
    """Empty: there is no such tool."""
    round: int
    status: Literal["ok", "error"]
    code: str | None
    """Of an error (``claw_mediate/core/tool_result.py``)."""
    status_code: int | None
    latency_ms: int
    effect: Literal["read", "write"] | None
    ran: bool
    """Whether the service was called."""
    started: str | None
    """None: it was not tried."""


class InterventionEvent(Event):
    """The proxy did otherwise than it was asked to. What else is told of it depends on what it is."""

    type: Literal["intervention"]
    intervention: str
    round: int | None = None
    ref: str | None = None
    """A model of the policy."""
    reason: str | None = None
    effective_provider: str | None = None
    effective_model: str | None = None
    tool: str | None = None
    tools: tuple[str, ...] | None = None
    timezone: str | None = None
    limit: str | None = None
    """Of a budget, as all that follows: which of its limits."""
    retry_after: int | None = None
    behavior: str | None = None
    window: str | None = None
    requests: int | None = None
    reported_cost_usd: float | None = None
    unknown_cost_requests: int | None = None
    limit_usd: float | None = None
    max_requests: int | None = None


class FailoverEvent(Event):
    """Another model, or another provider, is asked."""

    type: Literal["failover"]
    from_provider: str
    from_model: str
    to_provider: str
    to_model: str
    reason: str


class ContinuityEvent(Event, ReinjectedRounds):
    """A request whose conversation has messages of the assistant's. Without a turn it only counts tokens."""

    type: Literal["continuity"]


class ResumeEvent(Event):
    """A turn goes on where an earlier attempt was: told when all that is known of it was played."""

    type: Literal["resume"]
    replies: int
    """The model's replies that were not asked for again."""
    calls: int
    """Calls that were not made again, since their results were known."""
    unknown: int
    """Calls that were not made again, since their outcome is not known."""


class JoinEvent(Event):
    """A request gets the answer of a turn that an equal one began."""

    type: Literal["join"]
    how: JoinKind
    waiting: int
    """Runners that wait for a turn that is under way here, this one among them."""
    bytes: int
    """Of the answer that is given again; 0 while there is none."""
