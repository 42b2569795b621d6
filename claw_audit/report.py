"""The report of an audit: its rows, and its JSON document (docs/audit.md, "--json")."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from claw_audit.bounded_counter import BoundedCounter, BoundedTable, LatencyHistogram, LatestItems
from claw_audit.turns import RecordedCall, Turn, Usage

_MEMBERS: Final = (
    "first",
    "last",
    "turns",
    "used",
    "latency_ms",
    "ttft_ms",
    "agents",
    "tools",
    "interventions",
    "turn_errors",
    "call_errors",
    "proxy_errors",
    "events",
    "withheld",
    "calls",
    "failures",
    "unread",
)
"""The members of the JSON document, which are attributes of ``Report``."""
_MAX_NAMED: Final = 10  # of the unreadable lines, and of the files


@dataclass(slots=True)
class TurnCounts:
    """Numbers of turns. The four after ``total`` are those of ``Outcome``."""

    total: int = 0
    ok: int = 0
    failed: int = 0
    aborted: int = 0
    unfinished: int = 0
    resumed: int = 0
    attempts: int = 0  # A resumed turn has several
    only_in_log: int = 0


@dataclass(slots=True)
class AgentRow:
    """Activity of one agent, or of all: then ``agent`` is ""."""

    agent: str
    turns: TurnCounts = field(default_factory=TurnCounts)
    calls: int = 0
    calls_failed: int = 0
    latency_ms: LatencyHistogram = field(default_factory=LatencyHistogram)
    used: Usage = field(default_factory=Usage)

    def add(self, turn: Turn, calls: Sequence[RecordedCall]) -> None:
        """Count a turn that is over, and its calls that match the filters.

        ``Report.add_attempt`` has counted its attempts.
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
    """Calls of one tool."""

    tool: str
    service: str = ""
    effect: str = ""
    calls: int = 0
    failed: int = 0
    ran: int = 0  # Calls for which the service was asked, as far as that is recorded
    duplicates: int = 0
    latency_ms: LatencyHistogram = field(default_factory=LatencyHistogram)

    def add(self, call: RecordedCall) -> None:
        self.service = self.service or call.service
        self.effect = self.effect or call.effect
        self.calls += 1
        self.failed += call.status == "error"
        self.ran += call.ran is True
        self.duplicates += call.duplicate
        if call.ran is not False:  # a call that the proxy answered itself took no time
            self.latency_ms.add(call.latency_ms)


@dataclass(frozen=True, slots=True)
class FailureRow:
    """A failed or aborted turn, whose ``tool`` is ""; or a failed call."""

    ts: str
    agent: str
    turn_id: str
    tool: str
    code: str
    status_code: int | None


@dataclass(frozen=True, slots=True)
class WithheldRow:
    """A tool that an agent's model was not shown, or not always."""

    agent: str
    tool: str
    why: str
    turns: int | None
    """The number of turns without it; None for a tool that is not granted."""


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
        """Add a file, once. The reason begins with the file's name."""
        if str(reason) not in self.files and len(self.files) < _MAX_NAMED:
            self.files.append(str(reason))


class Report:
    """All counts of an audit. Their size does not grow with the number of turns.

    ``last``: the number of calls, and of failures, that are listed one by one.
    """

    def __init__(self, last: int) -> None:
        self._total = AgentRow("")
        self.turns = self._total.turns
        self.used = self._total.used
        self.latency_ms = self._total.latency_ms

        self.ttft_ms = LatencyHistogram()
        """The times to the first content of live turns, which only the log has."""

        self.agents = BoundedTable(AgentRow)
        self.tools = BoundedTable(ToolRow)
        self.turn_errors = BoundedCounter()
        self.call_errors = BoundedCounter()
        self.proxy_errors = BoundedCounter()
        self.interventions = BoundedCounter()
        self.events = BoundedCounter()
        self.withheld: list[WithheldRow] = []
        self.calls: LatestItems[RecordedCall] = LatestItems(last)
        self.failures: LatestItems[FailureRow] = LatestItems(last)
        self.unread = SkippedInput()
        self._times: tuple[float, float] | None = None

    @property
    def first(self) -> str | None:
        """The time of the first turn, in RFC 3339; None if no turn has one."""
        return None if self._times is None else _rfc3339(self._times[0])

    @property
    def last(self) -> str | None:
        """The same of the last turn."""
        return None if self._times is None else _rfc3339(self._times[1])

    def add_attempt(self, turn: Turn) -> None:
        """Count the usage of one attempt at a turn. ``add_turn`` counts the turn."""
        for row in (self._total, self.agents[turn.agent]):
            row.turns.attempts += 1
            row.used.add(turn.used)

    def add_turn(self, turn: Turn, calls: Sequence[RecordedCall]) -> None:
        """Count a turn that is over, and its calls that match the filters."""
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
        row = FailureRow(turn.ts, turn.agent, turn.turn_id, tool, code, status_code)
        self.failures.add(turn.at, row)


def document(report: Report) -> dict[str, Any]:
    """Return the JSON document of a report."""
    members = {name: getattr(report, name) for name in _MEMBERS}
    return {"version": 1, **msgspec.to_builtins(members, enc_hook=_to_builtins)}


def _to_builtins(value: Any) -> Any:
    """Return the JSON of a histogram, and of a table, a counter or a list of the latest."""
    if isinstance(value, LatencyHistogram):
        return {"p50": value.p50, "p95": value.p95}
    return list(value)


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
