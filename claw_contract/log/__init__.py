"""All lines of the log, one JSON object each, on stdout (docs/spec/contract.md "The log").

A reader ignores unknown types and members. An ``error`` line that ends a request has a
``status_code``; any other has none.
"""

from typing import Literal

from claw_contract.base import Contract
from claw_contract.history import McpRecord
from claw_contract.manifest import Effect, StreamMode

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
    "live_fallback",
    "live_cut",
    "state",
    "error",
]

COMMON = ("ts", "type", "claw_id", "turn_id", "model", "intervention", "digest")
"""The members of every line; null where they do not apply."""


class Event(Contract):
    """One line of the log."""

    ts: str
    claw_id: str | None
    turn_id: str | None
    model: str | None
    intervention: str | None
    digest: str | None
    """The digest of the agent's compiled files.

    None: no agent is concerned, or its files are broken.
    """
    worker: int | None = None
    """The number of the process that wrote the line.

    None: the proxy is one process, or its supervisor wrote the line.
    """


# Requests and turns.

type JoinKind = Literal["running", "awaited", "answered"]
"""The turn whose answer a request gets.

``running``: it runs in this process. ``awaited``: it ran in another process. ``answered``: it had
ended.
"""


class MissedRounds(Contract):
    """Numbers of a request's assistant messages that may have had hidden rounds and got none back.

    ``unknown``: nothing is stored for the message, because another program made it, it is too old,
    or the runner altered it. ``evicted``: the rounds were evicted for want of room.
    ``other_conversation``: the stored rounds belong to another conversation. ``over_bound``: the
    request had no room for the rounds, not even for shortened ones.
    """

    unknown: int = 0
    evicted: int = 0
    other_conversation: int = 0
    over_bound: int = 0


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
    # What was charged for model calls whose cost is not known; it is no part of ``cost_usd``.
    estimated_cost_usd: float | None = None
    total_rounds: int  # Responses of the model that were paid for
    mediated: bool
    provider: str  # The provider that answered, or the last that was asked
    model_calls: tuple[ModelCallRecord, ...]
    # The turn's time without its waits for providers and services. None: it is not mediated.
    overhead_ms: float | None
    # The hash of its line of history, if one was written: the log proves which lines there were.
    history_hash: str | None = None
    # True if that line is the first of a new file, because the previous file was full.
    history_rotated: bool = False
    # How the answer of a mediated turn was streamed. None: its runner asked for no stream.
    stream_mode: StreamMode | None = None
    # From the end of the runner's request to the first content that it was shown.
    ttft_ms: int | None = None
    # From the beginning of the turn's first model call to the first content of its reply.
    upstream_ttft_ms: int | None = None
    # From the first call of a reply to the decision about it, summed up over the replies.
    held_ms: int | None = None
    shown_rounds: int | None = None  # Replies of which something was shown


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
    effect: Effect | None
    ran: bool  # True if the service was called
    started: str | None  # None: the call was not tried
    mcp: McpRecord | None = None  # None: the call was not sent over MCP


class InterventionEvent(Event):
    """The proxy did something else than the request or the model asked for.

    Other members depend on the intervention.
    """

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
    # The exceeded limit of a budget. All following members belong to a budget, too.
    limit: str | None = None
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
    """A request's conversation has assistant messages. Without a turn it only counts tokens."""

    type: Literal["continuity"]


class ResumeEvent(Event):
    """A turn goes on where an earlier attempt stopped.

    Logged once everything known of that attempt was replayed.
    """

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


type FallbackReason = Literal["structured_output", "legacy_functions", "audio", "json_body"]
"""Why a turn is buffered although its agent's policy says that it streams live.

``structured_output``: the answer must be JSON, and text before it would break it.
``legacy_functions``: calls have a form of OpenAI's that can't be held in part. ``audio``: clients
join the parts of two replies wrongly. ``json_body``: the provider answered with one JSON body.
"""

type CutPlace = Literal["opening", "thinking", "text", "held"]
"""The last thing that a live stream showed before it was cut.

``opening``: no content yet. ``held``: calls had begun, which were held.
"""


class LiveFallbackEvent(Event):
    """A turn that was to stream live is buffered."""

    type: Literal["live_fallback"]
    reason: FallbackReason


class LiveCutEvent(Event):
    """A live stream ended without its protocol's end."""

    type: Literal["live_cut"]
    where: CutPlace
    code: str  # Our code of the error that ended it


# What surrounds turns: files, keys, services, the state.

type Fault = Literal[
    "agent_context_broken",
    "agents_not_read",
    "budget_not_written",
    "bytes_in_flight",
    "ca_does_not_cover",
    "ca_expired",
    "ca_expires",
    "connections_closed",
    "continuity_not_read",
    "continuity_not_written",
    "descriptors_exhausted",
    "dispatch_not_fast",
    "history_cut",
    "history_not_written",
    "id_of_another_agent",
    "internal",
    "journal_not_read",
    "journal_not_written",
    "key_state_broken",
    "key_states_not_written",
    "log_lines_dropped",
    "not_admitted",
    "not_ready",
    "ownership_not_read",
    "ownership_not_written",
    "prices_not_read",
    "providers_broken",
    "state_evicts",
    "state_shared",
    "state_unusable",
    "too_many_connections",
    "worker_died",
]


class FaultEvent(Event):
    """A fault, or a client that was not admitted. It ends no request of an agent."""

    type: Literal["error"]
    error: Fault
    reason: str | None = None
    file: str | None = None
    place: str | None = None  # The place of a state
    ca: str | None = None
    host: str | None = None  # A host that runners use, and that the CA does not sign for
    lines: int | None = None  # Number of log lines that were dropped because nobody read them
    left_out: int | None = None  # Number of equal lines since the last one that were not written


class ProviderPoolEvent(Event):
    """A key is not used now, or it is used again (``ready``).

    ``cooldown`` with a ``model``: it is not used for that model only.
    """

    type: Literal["provider_pool"]
    provider: str
    key_id: str
    action: Literal["dead", "cooldown", "ready"]
    reason: str
    cooldown_until: str | None


class FeedFetchEvent(Event):
    """A feed was fetched."""

    type: Literal["feed_fetch"]
    feed_name: str
    source: str
    status_code: int | None
    latency_ms: int
    feed_source_bytes: int | None
    feed_source_exact: bool  # True if the whole feed was read
    feed_fetched_at: str | None
    error: str | None


class FeedInjectionEvent(Event):
    """A feed was put into a prompt, or named there as missing."""

    type: Literal["feed_injection"]
    feed_name: str
    source: str
    feed_status: str
    feed_cached: bool
    feed_stale_seconds: float | None
    feed_truncated: bool
    feed_content_bytes: int
    feed_total_after: int


class MemoryOpEvent(Event):
    """A memory service was called to recall or to retain."""

    type: Literal["memory_op"]
    memory_service: str
    memory_op: str
    memory_status: str
    memory_blocks: int | None
    memory_bytes: int | None
    memory_removed: int | None
    latency_ms: int
    status_code: int | None
    error: str | None


class ManifestEvent(Event):
    """An agent's files were read for the first time, or again after a change."""

    type: Literal["tool_manifest_loaded"]
    manifest_present: bool
    tools_count: int
    feeds_count: int


class StateEvent(Event):
    """The state is usable again. An unusable one is an ``error``."""

    type: Literal["state"]
    state: Literal["usable"]
    place: str


type LogEvent = (
    RequestEvent
    | ResponseEvent
    | FailedEvent
    | ToolCallEvent
    | InterventionEvent
    | FailoverEvent
    | ContinuityEvent
    | ResumeEvent
    | JoinEvent
    | LiveFallbackEvent
    | LiveCutEvent
    | ProviderPoolEvent
    | FeedFetchEvent
    | FeedInjectionEvent
    | MemoryOpEvent
    | ManifestEvent
    | StateEvent
    | FaultEvent
)
