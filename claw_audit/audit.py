"""Audit of histories and logs: one stream of turns, merged and counted (rules: docs/audit.md).

History comes first, by agent; then the logs, in the order in which they are named. No content of a file is an error: what
can't be read is counted and named. Memory grows by eight bytes for each turn of history if a log is merged, and by some
hundred for each turn that was resumed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from claw_audit.bounded_counter import HashSet, hash_names
from claw_audit.filters import Filters
from claw_audit.history_source import read_turns
from claw_audit.log_source import Event, TurnAssembler, interventions, is_traced, read_events
from claw_audit.report import Report
from claw_audit.sources import HistoryFile, Progress, SourceError, agent_directories, ignore, open_history
from claw_audit.turns import Call, Turn
from claw_audit.withheld import PodGrants, WithheldTools

LAST = 20
"""Default of ``--last``."""


@dataclass(frozen=True)
class AuditQuery:
    """The sources of an audit and its filters. ``last``: the number of calls and failures to list one by one."""

    histories: tuple[Path, ...]
    logs: tuple[str, ...] = ()
    filters: Filters = field(default_factory=Filters)
    last: int = LAST
    grants: PodGrants | None = None


def audit(query: AuditQuery, progress: Progress = ignore, on_call: Callable[[Call], object] = ignore) -> Report:
    """Return the report, and call ``on_call`` with each matching call. Raise ``SourceError`` for an unreadable directory."""
    return _Audit(query, progress, on_call).run()


class _Audit:
    def __init__(self, query: AuditQuery, progress: Progress, on_call: Callable[[Call], object]) -> None:
        self._query = query
        self._filters = query.filters
        self._progress = progress
        self._on_call = on_call
        self._call_matches = query.filters.call_predicate()
        self._report = Report(query.last)
        self._in_history = HashSet()
        """Hashes of (agent, turn id)."""
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

    def _count_event(self, event: Event) -> None:
        if not self._filters.matches(event.agent, event.at, event.turn_id):
            return
        self._report.events.add(event.kind)
        if event.kind == "intervention":
            name = event.text("intervention") or "unnamed"
            if not (is_traced(name) and hash_names(event.agent, event.turn_id) in self._in_history):
                self._report.interventions.add(name)
        elif event.kind == "error" and not event.ends_turn:
            self._report.proxy_errors.add(event.text("error") or "unnamed")

    def _count_turn(self, turn: Turn, *, is_last_attempt: bool = True) -> None:
        """Count an attempt, and its turn if it is the last one."""
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
