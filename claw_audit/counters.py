"""Counters of turns, calls and events. Their size does not grow with the number of turns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from claw_audit.bounded_counter import BoundedCounter, BoundedTable, LatestItems
from claw_audit.report import AgentRow, FailureRow, Report, SkippedInput, ToolRow, WithheldRow
from claw_audit.turns import Call, Turn


class Counters:
    """Everything that a report counts. ``last``: the number of calls, and of failures, that it lists one by one."""

    def __init__(self, last: int) -> None:
        self._total = AgentRow("")
        self._agents = BoundedTable(AgentRow)
        self._tools = BoundedTable(ToolRow)
        self.interventions = BoundedCounter()
        self.proxy_errors = BoundedCounter()
        self.events = BoundedCounter()
        self._turn_errors = BoundedCounter()
        self._call_errors = BoundedCounter()
        self._calls: LatestItems[Call] = LatestItems(last)
        self._failures: LatestItems[FailureRow] = LatestItems(last)
        self._first: float | None = None
        self._last: float | None = None

    def add_attempt(self, turn: Turn) -> None:
        """Count the usage of an attempt. Its turn is counted once it is over."""
        self._total.add_attempt(turn.used)
        self._agents[turn.agent].add_attempt(turn.used)

    def add_turn(self, turn: Turn, calls: Sequence[Call]) -> None:
        """Count a turn that is over, and those of its calls that match."""
        self._total.add_turn(turn, calls)
        self._agents[turn.agent].add_turn(turn, calls)
        if turn.at is not None:
            self._first = turn.at if self._first is None else min(self._first, turn.at)
            self._last = turn.at if self._last is None else max(self._last, turn.at)
        if turn.code:
            self._turn_errors.add(turn.code)
            self._add_failure(turn, "", turn.code, turn.status_code)
        for call in calls:
            self._tools[call.tool].add(call)
            self._calls.add(turn.at, call)
            if call.status == "error":
                self._call_errors.add(call.code)
                self._add_failure(turn, call.tool, call.code, call.status_code)

    def _add_failure(self, turn: Turn, tool: str, code: str, status_code: int | None) -> None:
        self._failures.add(turn.at, FailureRow(turn.ts, turn.agent, turn.turn_id, tool, code, status_code))

    def report(self, withheld: Sequence[WithheldRow], skipped: SkippedInput) -> Report:
        """Return the report of everything that was counted."""
        agents = tuple(row for _, row in self._agents.sorted_items())
        for row in (self._total, *agents):
            row.used.cost_usd = round(row.used.cost_usd, 10)
        return Report(
            first=_rfc3339(self._first),
            last=_rfc3339(self._last),
            turns=self._total.turns,
            used=self._total.used,
            latency_ms=self._total.latency_ms,
            agents=agents,
            tools=tuple(row for _, row in self._tools.sorted_items()),
            interventions=self.interventions.rows(),
            turn_errors=self._turn_errors.rows(),
            call_errors=self._call_errors.rows(),
            proxy_errors=self.proxy_errors.rows(),
            events=self.events.rows(),
            withheld=tuple(withheld),
            calls=tuple(self._calls),
            failures=tuple(self._failures),
            unread=skipped,
        )


def _rfc3339(at: float | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
