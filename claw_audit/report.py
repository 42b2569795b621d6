"""The report of an audit: rows that count themselves, and the JSON document (members: docs/audit.md, "--json")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from claw_audit.bounded_counter import LatencyHistogram, NamedCount
from claw_audit.turns import Call, Turn, Usage

VERSION: Final = 1
"""Version of the document."""
_MAX_NAMED: Final = 10
"""Unreadable lines, and files, that are named."""


@dataclass(slots=True)
class TurnCounts:
    """Numbers of turns. ``attempts`` also counts attempts that were resumed."""

    total: int = 0
    ok: int = 0
    failed: int = 0
    aborted: int = 0
    unfinished: int = 0
    resumed: int = 0
    attempts: int = 0
    only_in_log: int = 0

    def add(self, turn: Turn) -> None:
        """Count a turn. Its attempts are counted apart."""
        self.total += 1
        setattr(self, turn.outcome, getattr(self, turn.outcome) + 1)
        self.resumed += turn.resumed
        self.only_in_log += turn.source == "log"


@dataclass(slots=True)
class AgentRow:
    """Activity of one agent, or of all."""

    agent: str
    turns: TurnCounts = field(default_factory=TurnCounts)
    calls: int = 0
    calls_failed: int = 0
    latency_ms: LatencyHistogram = field(default_factory=LatencyHistogram)
    used: Usage = field(default_factory=Usage)

    def add_attempt(self, used: Usage) -> None:
        """Count an attempt at a turn, and its usage."""
        self.turns.attempts += 1
        self.used.add(used)

    def add_turn(self, turn: Turn, calls: Sequence[Call]) -> None:
        """Count a turn that is over, and those of its calls that match."""
        self.turns.add(turn)
        if turn.latency_ms is not None:
            self.latency_ms.add(turn.latency_ms)
        self.calls += len(calls)
        self.calls_failed += sum(call.status == "error" for call in calls)


@dataclass(slots=True)
class ToolRow:
    """Calls of one tool. ``ran``: calls for which its service was asked, as far as that is recorded."""

    tool: str
    service: str = ""
    effect: str = ""
    calls: int = 0
    failed: int = 0
    ran: int = 0
    duplicates: int = 0
    latency_ms: LatencyHistogram = field(default_factory=LatencyHistogram)

    def add(self, call: Call) -> None:
        """Count a call."""
        self.service = self.service or call.service
        self.effect = self.effect or call.effect
        self.calls += 1
        self.failed += call.status == "error"
        self.ran += call.ran is True
        self.duplicates += call.duplicate
        if call.ran is not False:
            self.latency_ms.add(call.latency_ms)


@dataclass(frozen=True, slots=True)
class FailureRow:
    """A failed or aborted turn, with an empty ``tool``; or a failed call."""

    ts: str
    agent: str
    turn_id: str
    tool: str
    code: str
    status_code: int | None


@dataclass(frozen=True, slots=True)
class WithheldRow:
    """A tool that an agent's model was not shown, or not always. ``turns``: the number of turns without it."""

    agent: str
    tool: str
    why: str
    turns: int | None


@dataclass(slots=True)
class SkippedInput:
    """Input that could not be read: the number of lines, the first of them, and files."""

    lines: int = 0
    first: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    foreign: int = 0
    """Lines of a log that are no events of the proxy."""

    def add_line(self, file: str, number: int, offset: int, reason: object) -> None:
        """Count a line, and name it if it is one of the first."""
        self.lines += 1
        if len(self.first) < _MAX_NAMED:
            self.first.append(f"{file}:{number} (byte {offset}) {reason}")

    def add_file(self, reason: object) -> None:
        """Name a file once. The reason begins with its name."""
        if str(reason) not in self.files and len(self.files) < _MAX_NAMED:
            self.files.append(str(reason))


@dataclass(frozen=True, slots=True)
class Report:
    """All results of an audit. ``first`` and ``last`` are the times of turns."""

    first: str | None
    last: str | None
    turns: TurnCounts
    used: Usage
    latency_ms: LatencyHistogram
    agents: tuple[AgentRow, ...]
    tools: tuple[ToolRow, ...]
    interventions: tuple[NamedCount, ...]
    turn_errors: tuple[NamedCount, ...]
    call_errors: tuple[NamedCount, ...]
    proxy_errors: tuple[NamedCount, ...]
    events: tuple[NamedCount, ...]
    withheld: tuple[WithheldRow, ...]
    calls: tuple[Call, ...]
    failures: tuple[FailureRow, ...]
    unread: SkippedInput


def document(report: Report) -> dict[str, Any]:
    """Return the report as JSON data; a histogram becomes ``{"p50": …, "p95": …}`` in milliseconds."""
    quantiles = msgspec.to_builtins(report, enc_hook=lambda latency: {"p50": latency.p50, "p95": latency.p95})
    return {"version": VERSION, **quantiles}
