"""Turns, calls and events are counted as they come; what is kept does not grow with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from claw_audit.bounded_counter import Counts, Latest, Table
from claw_audit.latencies import Latencies
from claw_audit.report import (
    AgentRow,
    CallRow,
    Counted,
    FailureRow,
    Latency,
    Report,
    ToolRow,
    Turns,
    Unread,
    Used,
    WithheldRow,
)
from claw_audit.turns import Call, Outcome, Tokens, Turn


@dataclass(slots=True)
class _Sums:
    """Of an agent, or of all."""

    outcomes: dict[Outcome, int] = field(
        default_factory=lambda: dict.fromkeys(("ok", "failed", "aborted", "unfinished"), 0)
    )
    resumed: int = 0
    attempts: int = 0
    only_in_log: int = 0
    calls: int = 0
    calls_failed: int = 0
    latencies: Latencies = field(default_factory=Latencies)
    tokens_in: int = 0
    tokens_out: int = 0
    cached: int = 0
    cost: float = 0.0
    unpriced: int = 0

    def turn(self, turn: Turn, calls: Sequence[Call]) -> None:
        self.outcomes[turn.outcome] += 1
        self.resumed += turn.resumed
        self.only_in_log += turn.source == "log"
        if turn.latency_ms is not None:
            self.latencies.add(turn.latency_ms)
        self.calls += len(calls)
        self.calls_failed += sum(not call.ok for call in calls)

    def used(self, tokens: Tokens) -> None:
        self.attempts += 1
        self.tokens_in += tokens.prompt
        self.tokens_out += tokens.completion
        self.cached += tokens.cached
        self.cost += tokens.cost or 0.0
        self.unpriced += tokens.cost is None and tokens.prompt + tokens.completion > 0

    def turns_row(self) -> Turns:
        counts = self.outcomes
        return Turns(
            total=sum(counts.values()),
            **counts,
            resumed=self.resumed,
            attempts=self.attempts,
            only_in_log=self.only_in_log,
        )

    def used_row(self) -> Used:
        return Used(self.tokens_in, self.tokens_out, self.cached, round(self.cost, 10), self.unpriced)


@dataclass(slots=True)
class _Tool:
    service: str = ""
    effect: str = ""
    calls: int = 0
    failed: int = 0
    ran: int = 0
    duplicates: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def add(self, call: Call) -> None:
        self.service = self.service or call.service
        self.effect = self.effect or call.effect
        self.calls += 1
        self.failed += not call.ok
        self.ran += call.ran is True
        self.duplicates += call.duplicate
        if call.ran is not False:
            self.latencies.add(call.latency_ms)


class Tally:
    """``last``: so many calls, and so many failures, are told of one by one."""

    def __init__(self, last: int) -> None:
        self._all = _Sums()
        self._agents = Table(_Sums)
        self._tools = Table(_Tool)
        self.interventions = Counts()
        self.proxy_errors = Counts()
        self.events = Counts()
        self._turn_errors = Counts()
        self._call_errors = Counts()
        self._calls: Latest[tuple[Turn, Call]] = Latest(last)
        self._failures: Latest[FailureRow] = Latest(last)
        self._first: float | None = None
        self._last: float | None = None

    def attempt(self, turn: Turn) -> None:
        """What an attempt used. Its turn may be gone on with, and counts when that is over."""
        self._all.used(turn.tokens)
        self._agents[turn.agent].used(turn.tokens)

    def turn(self, turn: Turn, calls: Sequence[Call]) -> None:
        """A turn is over, and these calls of it are asked for."""
        self._all.turn(turn, calls)
        self._agents[turn.agent].turn(turn, calls)
        if turn.at is not None:
            self._first = turn.at if self._first is None else min(self._first, turn.at)
            self._last = turn.at if self._last is None else max(self._last, turn.at)
        if turn.code:
            self._turn_errors.add(turn.code)
            self._failures.add(turn.at, FailureRow(turn.ts, turn.agent, turn.turn_id, "", turn.code, turn.status_code))
        for call in calls:
            self._tools[call.tool].add(call)
            self._calls.add(turn.at, (turn, call))
            if not call.ok:
                self._call_errors.add(call.code)
                failure = FailureRow(turn.ts, turn.agent, turn.turn_id, call.tool, call.code, call.status_code)
                self._failures.add(turn.at, failure)

    def report(self, withheld: Sequence[WithheldRow], unread: Unread) -> Report:
        """All that was counted."""
        return Report(
            first=_rfc3339(self._first),
            last=_rfc3339(self._last),
            turns=self._all.turns_row(),
            used=self._all.used_row(),
            latency_ms=_latency(self._all.latencies),
            agents=tuple(_agent(name, sums) for name, sums in self._agents.items()),
            tools=tuple(_tool(name, tool) for name, tool in self._tools.items()),
            interventions=_counted(self.interventions),
            turn_errors=_counted(self._turn_errors),
            call_errors=_counted(self._call_errors),
            proxy_errors=_counted(self.proxy_errors),
            events=_counted(self.events),
            withheld=tuple(withheld),
            calls=tuple(call_row(turn, call) for turn, call in self._calls),
            failures=tuple(self._failures),
            unread=unread,
        )


def call_row(turn: Turn, call: Call) -> CallRow:
    """A call with its turn."""
    return CallRow(
        ts=turn.ts,
        agent=turn.agent,
        turn_id=turn.turn_id,
        round=call.round,
        tool=call.tool,
        service=call.service,
        status="ok" if call.ok else "error",
        code=call.code,
        status_code=call.status_code,
        latency_ms=call.latency_ms,
        effect=call.effect,
        ran=call.ran,
        duplicate=call.duplicate,
        model=turn.model,
        source=turn.source,
    )


def _agent(name: str, sums: _Sums) -> AgentRow:
    return AgentRow(name, sums.turns_row(), sums.calls, sums.calls_failed, _latency(sums.latencies), sums.used_row())


def _tool(name: str, tool: _Tool) -> ToolRow:
    return ToolRow(
        name, tool.service, tool.effect, tool.calls, tool.failed, tool.ran, tool.duplicates, _latency(tool.latencies)
    )


def _latency(latencies: Latencies) -> Latency:
    return Latency(latencies.quantile(0.5), latencies.quantile(0.95))


def _counted(counts: Counts) -> tuple[Counted, ...]:
    return tuple(Counted(name, count) for name, count in counts.items())


def _rfc3339(at: float | None) -> str | None:
    return (
        None
        if at is None
        else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
