"""Audit of histories and logs: one stream of turns, merged and counted (rules: docs/audit.md).

History is read first, by agent; then the logs, in the order in which they are named. No content of
a file is an error: lines and files that can't be read are counted and named. Memory grows by eight
bytes for each turn of history if a log is merged, and by some hundred for each resumed turn.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from claw_audit.bounded_counter import BoundedCounter, BoundedTable, HashSet, hash_names
from claw_audit.history_source import read_turns
from claw_audit.log_source import LoggedEvent, TurnAssembler, interventions, is_traced, read_events
from claw_audit.report import Report, WithheldRow
from claw_audit.sources import (
    HistoryFile,
    Progress,
    SourceError,
    agent_directories,
    ignore,
    open_history,
)
from claw_audit.turns import RecordedCall, Turn, has_id_prefix
from claw_contract.names import hashed_alias, plain_alias

type Status = Literal["ok", "error"]

LAST = 20  # Default of ``--last``


@dataclass(frozen=True, slots=True)
class AgentGrants:
    """The tools of one compiled agent, and the digest of its manifest."""

    digest: str
    tools: frozenset[str]


@dataclass(frozen=True, slots=True)
class PodGrants:
    """The agents of a compiled pod, and every tool that its services declare."""

    agents: Mapping[str, AgentGrants]
    declared: frozenset[str]


class WithheldTools:
    """Counts, for each agent, of the tools that its turns offered and withheld.

    Offers count only in turns of the given compiled pod (by its digest): other turns say nothing
    about its grants.
    """

    def __init__(self, grants: PodGrants | None) -> None:
        self._grants = grants
        self._withheld = BoundedTable(lambda _agent: BoundedCounter())
        """Turns by agent, and by tool and reason with a zero byte between them."""
        self._turns = BoundedCounter()
        """Turns of this compiled pod that offered tools, by agent."""
        self._offered = BoundedTable(lambda _agent: BoundedCounter())
        """Turns of this compiled pod by agent, and by offered alias."""

    def add(self, turn: Turn) -> None:
        for tool, reason in turn.withheld:
            self._withheld[turn.agent].add(f"{tool}\0{reason}")

        if self._grants is None or not turn.offered:
            return

        granted = self._grants.agents.get(turn.agent)
        if granted is not None and granted.digest == turn.digest:
            self._turns.add(turn.agent)
            for alias in dict.fromkeys(turn.offered):
                self._offered[turn.agent].add(alias)

    def rows(self, agent: str = "") -> Iterator[WithheldRow]:
        """Yield the tools that history says were withheld, then those that the pod's grants show.

        ``agent``: only the grants of this agent; "" for all.
        """
        for name, withheld in self._withheld.items():
            for key, turns in sorted(withheld.counts.items()):
                tool, _, reason = key.partition("\0")
                yield WithheldRow(name, tool, reason, turns)

        if self._grants is None:
            return

        for name, granted in sorted(self._grants.agents.items()):
            if agent in ("", name):
                yield from self._pod_rows(name, granted, self._grants.declared)

    def _pod_rows(
        self, agent: str, granted: AgentGrants, declared: frozenset[str]
    ) -> Iterator[WithheldRow]:
        for tool in sorted(declared - granted.tools):
            yield WithheldRow(agent, tool, "not granted", None)

        # A tool for which history has a reason is in its own row already.
        has_reason = {key.partition("\0")[0] for key in self._withheld[agent].counts}
        turns = self._turns.counts[agent]
        unexplained = dict(self._offered[agent].counts)
        for tool in sorted(granted.tools):
            offers = 0
            for alias in {plain_alias(tool), hashed_alias(tool)}:
                offers += unexplained.pop(alias, 0)
            if offers < turns and tool not in has_reason:
                yield WithheldRow(agent, tool, "granted, not offered", turns - offers)

        # No granted tool has these aliases.
        for alias, count in sorted(unexplained.items()):
            yield WithheldRow(agent, alias, "offered, not granted", count)


@dataclass(frozen=True, slots=True)
class Filters:
    """Values to match; None or "" matches everything.

    Agent, time and turn select turns and events; tool and status select calls. A turn counts if one
    of its calls matches. If no tool is given, a turn also counts if its own outcome has the status.
    The time of a turn is its end.
    """

    agent: str = ""
    tool: str = ""  # Name as service.tool, or the alias that a model sees
    status: Status | None = None
    since: float | None = None
    until: float | None = None
    turn: str = ""  # Beginning of a turn id, with or without ``turn_``

    def matches(self, agent: str, at: float | None, turn_id: str) -> bool:
        """Return whether agent, time and turn match. An unknown time is in no period."""
        return (
            (not self.agent or agent == self.agent)
            and (self.since is None or (at is not None and at >= self.since))
            and (self.until is None or (at is not None and at < self.until))
            and (not self.turn or has_id_prefix(turn_id, self.turn))
        )

    def call_predicate(self) -> Callable[[RecordedCall], bool]:
        """Return a function that says whether a call matches tool and status."""
        names = {self.tool, plain_alias(self.tool), hashed_alias(self.tool)}
        tool, status = self.tool, self.status
        return lambda call: (
            (not tool or call.tool in names) and (status is None or call.status == status)
        )

    def matches_turn(self, turn: Turn, matching_calls: int) -> bool:
        """Return whether a turn counts that has so many calls that match."""
        if matching_calls or self.tool:
            return matching_calls > 0
        return self.status is None or (turn.outcome == "ok") == (self.status == "ok")


@dataclass(frozen=True)
class AuditQuery:
    """The sources of an audit and its filters."""

    histories: tuple[Path, ...]
    logs: tuple[str, ...] = ()
    filters: Filters = field(default_factory=Filters)
    last: int = LAST
    """The number of calls, and of failures, that are listed one by one."""
    grants: PodGrants | None = None


def audit(
    query: AuditQuery,
    progress: Progress = ignore,
    on_call: Callable[[RecordedCall], object] = ignore,
) -> Report:
    """Return the report, and call ``on_call`` with each matching call.

    Raise ``SourceError`` for an unreadable directory.
    """
    return _Audit(query, progress, on_call).run()


class _Audit:
    def __init__(
        self, query: AuditQuery, progress: Progress, on_call: Callable[[RecordedCall], object]
    ) -> None:
        self._query = query
        self._filters = query.filters
        self._progress = progress
        self._on_call = on_call
        self._call_matches = query.filters.call_predicate()
        self._report = Report(query.last)
        self._in_history = HashSet()  # hashes of (agent, turn id)
        self._withheld = WithheldTools(query.grants)

    def run(self) -> Report:
        for agent, directories in agent_directories(self._query.histories).items():
            if self._filters.agent in ("", agent):
                self._read_history(agent, directories)

        assembler = TurnAssembler(self._in_history)
        for name in dict.fromkeys(self._query.logs):
            self._read_log(name, assembler)
        for turn in assembler.remaining():
            self._count_turn(turn)

        self._report.withheld += self._withheld.rows(self._filters.agent)
        return self._report

    def _read_history(self, agent: str, directories: list[Path]) -> None:
        with ExitStack() as stack:
            files: list[HistoryFile] = []
            for directory in directories:
                try:
                    files += stack.enter_context(open_history(directory, self._progress))
                except SourceError as error:
                    self._report.unread.add_file(error)

            for turn, is_last_attempt in read_turns(agent, files, self._report.unread):
                if self._query.logs and is_last_attempt:
                    self._in_history.add(hash_names(agent, turn.turn_id))
                self._count_turn(turn, is_last_attempt=is_last_attempt)

    def _read_log(self, name: str, assembler: TurnAssembler) -> None:
        try:
            for event in read_events(name, self._progress, self._report.unread):
                self._count_event(event)
                for turn in assembler.add(event):
                    self._count_turn(turn)
        except SourceError as error:
            self._report.unread.add_file(error)

    def _count_event(self, event: LoggedEvent) -> None:
        if not self._filters.matches(event.agent, event.at, event.turn_id):
            return

        self._report.events.add(event.kind)
        if event.kind == "intervention":
            name = event.text("intervention") or "unnamed"
            # A turn of history has counted those that its trace shows.
            is_counted = (
                is_traced(name) and hash_names(event.agent, event.turn_id) in self._in_history
            )
            if not is_counted:
                self._report.interventions.add(name)
        elif event.kind == "error" and not event.ends_turn:
            self._report.proxy_errors.add(event.text("error") or "unnamed")
        if event.ttft_ms is not None:
            self._report.ttft_ms.add(event.ttft_ms)

    def _count_turn(self, turn: Turn, *, is_last_attempt: bool = True) -> None:
        if not self._filters.matches(turn.agent, turn.at, turn.turn_id):
            return

        calls = [call for call in turn.calls if self._call_matches(call)]
        if not self._filters.matches_turn(turn, len(calls)):
            return

        self._report.add_attempt(turn)
        if not is_last_attempt:
            return

        self._report.add_turn(turn, calls)
        self._withheld.add(turn)
        if turn.source == "history":
            for name in interventions(turn):
                self._report.interventions.add(name)
        for call in calls:
            self._on_call(call)
