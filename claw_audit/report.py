"""The report of an audit: rows that count themselves, and the JSON document
(members: docs/audit.md, "--json").
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from claw_audit.bounded_counter import BoundedCounter, BoundedTable, LatencyHistogram, LatestItems
from claw_audit.turns import Call, Turn, Usage

_MEMBERS: Final = (
    *(
        "first",
        "last",
        "turns",
        "used",
        "latency_ms",
        "agents",
        "tools",
        "interventions",
        "turn_errors",
        "call_errors",
    ),
    *("proxy_errors", "events", "withheld", "calls", "failures", "unread"),
)
_MAX_NAMED: Final = 10  # unreadable lines, and files, that are named


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


@dataclass(slots=True)
class AgentRow:
    """Activity of one agent, or of all."""

    agent: str
    turns: TurnCounts = field(default_factory=TurnCounts)
    calls: int = 0
    calls_failed: int = 0
    latency_ms: LatencyHistogram = field(default_factory=LatencyHistogram)
    used: Usage = field(default_factory=Usage)

    def add(self, turn: Turn, calls: Sequence[Call]) -> None:
        """Count a turn that is over, and those of its calls that match.

        Its attempts are counted apart.
        """
        turns = self.turns
        turns.total += 1
        setattr(turns, turn.outcome, getattr(turns, turn.outcome) + 1)
        turns.resumed += turn.resumed
        turns.only_in_log += turn.source == "log"
        if turn.latency_ms is not None:
            self.latency_ms.add(turn.latency_ms)
        self.calls += len(calls)
        self.calls_failed += sum(call.status == "error" for call in calls)


@dataclass(slots=True)
class ToolRow:
    """Calls of one tool.

    ``ran``: calls for which its service was asked, as far as that is recorded.
    """

    tool: str
    service: str = ""
    effect: str = ""
    calls: int = 0
    failed: int = 0
    ran: int = 0
    duplicates: int = 0
    latency_ms: LatencyHistogram = field(default_factory=LatencyHistogram)

    def add(self, call: Call) -> None:
        self.service, self.effect = self.service or call.service, self.effect or call.effect
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
    """A tool that an agent's model was not shown, or not always.

    ``turns``: the number of turns without it.
    """

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
    foreign: int = 0  # Lines of a log that are no events of the proxy

    def add_line(self, file: str, number: int, offset: int, reason: object) -> None:
        self.lines += 1
        if len(self.first) < _MAX_NAMED:
            self.first.append(f"{file}:{number} (byte {offset}) {reason}")

    def add_file(self, reason: object) -> None:
        """Name a file once. The reason begins with its name."""
        if str(reason) not in self.files and len(self.files) < _MAX_NAMED:
            self.files.append(str(reason))


class Report:
    """All counts of an audit. Their size does not grow with the number of turns.

    ``last``: the number of calls, and of failures, that are listed one by one.
    """

    def __init__(self, last: int) -> None:
        self._total = AgentRow("")
        self.turns, self.used, self.latency_ms = (
            self._total.turns,
            self._total.used,
            self._total.latency_ms,
        )
        self.agents = BoundedTable(AgentRow)
        self.tools = BoundedTable(ToolRow)
        self.turn_errors, self.call_errors, self.proxy_errors = (
            BoundedCounter(),
            BoundedCounter(),
            BoundedCounter(),
        )
        self.interventions, self.events = BoundedCounter(), BoundedCounter()
        self.withheld: list[WithheldRow] = []
        self.calls: LatestItems[Call] = LatestItems(last)
        self.failures: LatestItems[FailureRow] = LatestItems(last)
        self.unread = SkippedInput()
        self._times: tuple[float, float] | None = None

    @property
    def first(self) -> str | None:
        return None if self._times is None else _rfc3339(self._times[0])

    @property
    def last(self) -> str | None:
        return None if self._times is None else _rfc3339(self._times[1])

    def add_attempt(self, turn: Turn) -> None:
        """Count the usage of an attempt. Its turn is counted once it is over."""
        for row in (self._total, self.agents[turn.agent]):
            row.turns.attempts += 1
            row.used.add(turn.used)

    def add_turn(self, turn: Turn, calls: Sequence[Call]) -> None:
        self._total.add(turn, calls)
        self.agents[turn.agent].add(turn, calls)
        if turn.at is not None:
            first, last = self._times or (turn.at, turn.at)
            self._times = min(first, turn.at), max(last, turn.at)
        if turn.code:
            self.turn_errors.add(turn.code)
            self._add_failure(turn, "", turn.code, turn.status_code)
        for call in calls:
            self.tools[call.tool].add(call)
            self.calls.add(turn.at, call)
            if call.status == "error":
                self.call_errors.add(call.code)
                self._add_failure(turn, call.tool, call.code, call.status_code)

    def _add_failure(self, turn: Turn, tool: str, code: str, status_code: int | None) -> None:
        self.failures.add(
            turn.at, FailureRow(turn.ts, turn.agent, turn.turn_id, tool, code, status_code)
        )


def document(report: Report) -> dict[str, Any]:
    members = {name: getattr(report, name) for name in _MEMBERS}
    return {"version": 1, **msgspec.to_builtins(members, enc_hook=_to_builtins)}


def _to_builtins(value: Any) -> Any:
    return (
        {"p50": value.p50, "p95": value.p95} if isinstance(value, LatencyHistogram) else list(value)
    )


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
