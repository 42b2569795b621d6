"""history.jsonl: one line a turn (spec/contract.md "history.jsonl")."""

from __future__ import annotations

from typing import Any, Literal

from claw_contract.base import Contract, JsonObject
from claw_contract.manifest import Effect


class ToolCallRecord(Contract):
    """One managed call: what was asked, what came back. ``arguments`` is text when the model's JSON did not parse."""

    name: str
    arguments: Any
    result: JsonObject
    latency_ms: int
    service: str
    status: Literal["ok", "error"]
    status_code: int | None = None
    duplicate: bool = False
    duplicate_of_round: int | None = None
    duplicate_count: int | None = None
    effect: Effect | None = None
    """As the tool's manifest had it; None: no tool of that name was granted."""
    ran: bool = True
    """Whether its service was asked. A call that is answered with advice, or is a repeat, does not run."""


class TokenUsage(Contract):
    """Token counts, in these names whatever the provider calls them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class RoundRecord(Contract):
    """One response of the model that the proxy answered by itself."""

    round: int
    wall_time_ms: int
    tool_calls: tuple[ToolCallRecord, ...]
    round_usage: TokenUsage | None = None


class UsageRecord(TokenUsage):
    """Tokens over all model calls of the turn."""

    reported_cost_usd: float | None = None
    total_rounds: int = 0


class ResponseRecord(Contract):
    """What the runner got: ``json`` a parsed body, ``text`` a stream or a body that is not JSON."""

    format: Literal["json", "sse"]
    json_body: Any = None
    text: str | None = None


class WithheldTool(Contract):
    """A tool by its own name, and why: over_limit, side_request, "quarantined: …", or the form of the request."""

    name: str
    reason: str


class HistoryEntry(Contract):
    """One turn. ``prev``, ``id`` and ``hash`` are the line's seal (``chain``)."""

    version: Literal[1] = 1
    id: str
    turn_id: str
    digest: str | None
    status: Literal["ok", "error"]
    ts: str
    claw_id: str
    path: str
    requested_model: str
    effective_provider: str
    effective_model: str
    status_code: int
    latency_ms: int | None = None
    error: str | None = None
    """The code of an error of ours, or of the provider's as we call it."""
    stream: bool
    resumed: bool = False
    """Whether an earlier attempt began this turn, and is told of by an earlier line. Usage is this attempt's own; the trace is
    the whole turn's.
    """
    tools_offered: tuple[str, ...] = ()
    """The aliases of the managed tools that the model was shown."""
    tools_withheld: tuple[WithheldTool, ...] = ()
    """Granted tools that it was not shown."""
    request_original: Any
    request_effective: Any
    response: JsonObject
    usage: UsageRecord
    tool_trace: tuple[RoundRecord, ...] = ()
    prev: str
    hash: str
