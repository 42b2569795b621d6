"""What an audit says. ``document`` is its JSON; docs/audit.md tells what each member means."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

VERSION: Final = 1
"""Of the document."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds, to within 1%; None where nothing was measured."""

    p50: int | None
    p95: int | None


@dataclass(frozen=True, slots=True)
class Turns:
    """How turns ended. ``attempts`` counts those that were gone on with, too."""

    total: int
    ok: int
    failed: int
    aborted: int
    unfinished: int
    resumed: int
    attempts: int
    only_in_log: int


@dataclass(frozen=True, slots=True)
class Used:
    """Tokens, and US dollars. ``unpriced``: attempts that used tokens, and whose cost nobody knows."""

    tokens_in: int
    tokens_out: int
    cached_tokens: int
    cost_usd: float
    unpriced: int


@dataclass(frozen=True, slots=True)
class AgentRow:
    agent: str
    turns: Turns
    calls: int
    calls_failed: int
    latency_ms: Latency
    used: Used


@dataclass(frozen=True, slots=True)
class ToolRow:
    """``ran``: calls that its service was asked for, as far as it is told."""

    tool: str
    service: str
    effect: str
    calls: int
    failed: int
    ran: int
    duplicates: int
    latency_ms: Latency


@dataclass(frozen=True, slots=True)
class Counted:
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call, as it stands in the CSV."""

    ts: str
    agent: str
    turn_id: str
    round: int
    tool: str
    service: str
    status: str
    code: str
    status_code: int | None
    latency_ms: int
    effect: str
    ran: bool | None
    duplicate: bool
    model: str
    source: str


@dataclass(frozen=True, slots=True)
class FailureRow:
    """A turn that failed or was left, or a call that failed: then ``tool`` is there."""

    ts: str
    agent: str
    turn_id: str
    tool: str
    code: str
    status_code: int | None


@dataclass(frozen=True, slots=True)
class WithheldRow:
    """A tool that an agent's model was not shown, or not always; ``turns`` in which."""

    agent: str
    tool: str
    why: str
    turns: int | None


@dataclass(frozen=True, slots=True)
class Unread:
    """What could not be read: so many lines, the first of them, and files."""

    lines: int
    first: tuple[str, ...]
    files: tuple[str, ...]
    foreign: int
    """Lines of a log that are no events: mitmproxy's own."""


@dataclass(frozen=True, slots=True)
class Report:
    """All of it."""

    first: str | None
    last: str | None
    turns: Turns
    used: Used
    latency_ms: Latency
    agents: tuple[AgentRow, ...]
    tools: tuple[ToolRow, ...]
    interventions: tuple[Counted, ...]
    turn_errors: tuple[Counted, ...]
    call_errors: tuple[Counted, ...]
    proxy_errors: tuple[Counted, ...]
    events: tuple[Counted, ...]
    withheld: tuple[WithheldRow, ...]
    calls: tuple[CallRow, ...]
    failures: tuple[FailureRow, ...]
    unread: Unread


def document(report: Report) -> dict[str, Any]:
    """As JSON has it."""
    return {"version": VERSION, **asdict(report)}
