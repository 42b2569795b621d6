"""Lines of the log about the surroundings of turns: files, keys, services, the state."""

from typing import Literal

from claw_contract.log.event import Event

type Fault = Literal[
    "agent_context_broken",
    "budget_not_written",
    "ca_does_not_cover",
    "ca_expired",
    "ca_expires",
    "continuity_not_read",
    "continuity_not_written",
    "dispatch_not_fast",
    "history_cut",
    "history_not_written",
    "internal",
    "journal_not_read",
    "journal_not_written",
    "key_state_broken",
    "key_states_not_written",
    "log_lines_dropped",
    "not_admitted",
    "not_ready",
    "prices_not_read",
    "providers_broken",
    "state_unusable",
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


class ProviderPoolEvent(Event):
    """A key is not used any more, or not for a while."""

    type: Literal["provider_pool"]
    provider: str
    key_id: str
    action: Literal["dead", "cooldown"]
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
