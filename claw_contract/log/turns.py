"""Lines of the log about requests and turns."""

from typing import Literal

from claw_contract.base import Contract
from claw_contract.log.event import Event

type JoinKind = Literal["running", "awaited", "answered"]
"""The turn whose answer a request gets: one that runs here, one that ran in another process, or one that had ended."""


class MissedRounds(Contract):
    """Numbers of assistant messages in a request that got no hidden rounds back, though there may have been some."""

    unknown: int = 0  # Nothing is stored for the message: another program made it, it is too old, or the runner altered it
    evicted: int = 0  # The rounds were evicted for want of room
    other_conversation: int = 0  # The stored rounds belong to another conversation
    over_bound: int = 0  # The request had no room for the rounds, not even shortened


class ReinjectedRounds(Contract):
    """Numbers of hidden rounds that a conversation got back."""

    anchors: int  # Assistant messages that were looked up
    hits: int  # Those whose turn was found, and whose hidden rounds, if any, were injected
    turns: int  # Turns whose hidden rounds were injected
    bytes: int
    shortened: int  # Those turns that were shortened to one line for each call
    missed: MissedRounds


class RequestEvent(Event):
    """A turn begins, or a request is passed through."""

    type: Literal["request"]
    path: str
    stream: bool
    manifest_present: bool
    tools_count: int
    mediated: bool  # True if the proxy runs tools for it


class ModelCallRecord(Contract):
    """One request to a provider. A turn makes one for each round, and more if a provider fails."""

    provider: str
    model: str
    status_code: int | None  # None: there was no response
    started: str
    latency_ms: int  # Time to the end of the response


class _RequestEnd(Event):
    status_code: int
    latency_ms: int
    tokens_in: int
    tokens_out: int
    cached_tokens: int
    cost_usd: float | None  # None: unknown
    total_rounds: int  # Responses of the model that were paid for
    mediated: bool
    provider: str  # The provider that answered, or the last that was asked
    model_calls: tuple[ModelCallRecord, ...]
    overhead_ms: float | None  # The turn's time without its waits for providers and services. None: it is not mediated.
    history_hash: str | None = None  # Hash of its line of history, if one was written: the log proves which lines there were
    history_rotated: bool = False  # True if that line is the first of a new file, because the previous file was full


class ResponseEvent(_RequestEnd):
    """A request ended with a good response."""

    type: Literal["response"]


class FailedEvent(_RequestEnd):
    """A request ended with an error, or its runner left."""

    type: Literal["error"]
    error: str | None = None  # Our code of an error, ours or the provider's


class ToolCallEvent(Event):
    """A managed call was run, or answered without running."""

    type: Literal["tool_call"]
    name: str  # The tool's name, or the name that the model wrote if there is no such tool
    service: str  # Empty: there is no such tool
    round: int
    status: Literal["ok", "error"]
    code: str | None  # The code of an error (``claw_mediate/core/tool_result.py``)
    status_code: int | None
    latency_ms: int
    effect: Literal["read", "write"] | None
    ran: bool  # True if the service was called
    started: str | None  # None: the call was not tried


class InterventionEvent(Event):
    """The proxy did something else than the request or the model asked for. Other members depend on the intervention."""

    type: Literal["intervention"]
    intervention: str
    round: int | None = None
    ref: str | None = None  # A model of the policy
    reason: str | None = None
    effective_provider: str | None = None
    effective_model: str | None = None
    tool: str | None = None
    tools: tuple[str, ...] | None = None
    timezone: str | None = None
    limit: str | None = None  # The exceeded limit of a budget. All following members belong to a budget too.
    retry_after: int | None = None
    behavior: str | None = None
    window: str | None = None
    requests: int | None = None
    reported_cost_usd: float | None = None
    unknown_cost_requests: int | None = None
    limit_usd: float | None = None
    max_requests: int | None = None


class FailoverEvent(Event):
    """Another model or provider is asked."""

    type: Literal["failover"]
    from_provider: str
    from_model: str
    to_provider: str
    to_model: str
    reason: str


class ContinuityEvent(Event, ReinjectedRounds):
    """A request whose conversation has assistant messages. Without a turn it only counts tokens."""

    type: Literal["continuity"]


class ResumeEvent(Event):
    """A turn goes on where an earlier attempt stopped. Logged once everything known of that attempt was replayed."""

    type: Literal["resume"]
    replies: int  # Responses of the model that were not requested again
    calls: int  # Calls that were not made again, because their results were known
    unknown: int  # Calls that were not made again, because their outcome is unknown


class JoinEvent(Event):
    """A request gets the answer of a turn that an equal request began."""

    type: Literal["join"]
    how: JoinKind
    waiting: int  # Number of runners that wait for a turn that runs here, including this one
    bytes: int  # Size of the answer that is sent again; 0 while there is none
