"""History and logs, read in a stream, merged by turn, and counted (spec/inspect.md "claw audit").

Rules. History first, by agent; then the logs, in the order in which they are named. Nothing that a file holds is an error:
what can't be read is counted and named. Memory grows by eight bytes for each turn of history where a log is merged, by some
hundred for each that was resumed, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from claw_audit.bounded_counter import Known
from claw_audit.filters import Choice
from claw_audit.entries import UnreadableError
from claw_audit.events import Event, LogReader
from claw_audit.history_source import turns
from claw_audit.log_source import LogTurns, interventions, is_told_by_history
from claw_audit.lines import LINE_LIMIT, lines
from claw_audit.report import CallRow, Report
from claw_audit.sources import Progress, Source, SourceError, agents, open_history, open_log
from claw_audit.counters import Tally, call_row
from claw_audit.turns import Turn
from claw_audit.skipped import Unreadables
from claw_audit.withheld import Grants, Offers

LAST = 20


@dataclass(frozen=True)
class Asked:
    """What to read, and what of it is asked for."""

    histories: tuple[Path, ...]
    logs: tuple[str, ...] = ()
    choice: Choice = field(default_factory=Choice)
    last: int = LAST
    grants: Grants | None = None


def audit(asked: Asked, progress: Progress | None = None, each: Callable[[CallRow], None] | None = None) -> Report:
    """The report; ``each`` is told of every call as it is met. Raises ``SourceError`` where a directory can't be read."""
    return _Audit(asked, progress or Progress(), each).report()


class _Audit:
    def __init__(self, asked: Asked, progress: Progress, each: Callable[[CallRow], None] | None) -> None:
        self._asked = asked
        self._progress = progress
        self._each = each
        self._fits = asked.choice.calls()
        self._tally = Tally(asked.last)
        self._unread = Unreadables()
        self._known = Known()
        self._offers = Offers(asked.grants)

    def report(self) -> Report:
        """All of it."""
        for agent, places in groupby(agents(self._asked.histories), key=lambda found: found[0]):
            if self._asked.choice.agent in ("", agent):
                self._history(agent, [place for _, place in places])
        put_together = LogTurns(self._known)
        for name in dict.fromkeys(self._asked.logs):
            self._log(name, put_together)
        for turn in put_together.rest():
            self._turn(turn, counts=True)
        return self._tally.report(list(self._offers.rows(self._asked.choice.agent)), self._unread.told())

    def _history(self, agent: str, directories: list[Path]) -> None:
        with ExitStack() as opened:
            files: list[Source] = []
            for directory in directories:
                try:
                    files += opened.enter_context(open_history(agent, directory, self._progress)).files
                except SourceError as error:
                    self._unread.file(str(error))
            for turn, counts in turns(agent, files, self._unread):
                if self._asked.logs and counts:
                    self._known.add(agent, turn.turn_id)
                self._turn(turn, counts=counts)

    def _log(self, name: str, put_together: LogTurns) -> None:
        reader = LogReader(LINE_LIMIT)
        try:
            with open_log(name, self._progress) as read:
                for line in lines(read):
                    try:
                        event = reader.event(line.data)
                    except UnreadableError as why:
                        self._unread.line(name, line.number, line.offset, str(why))
                        continue
                    if event is None:
                        self._unread.foreign += 1
                        continue
                    self._event(event)
                    for turn in put_together.add(event):
                        self._turn(turn, counts=True)
        except SourceError as error:
            self._unread.file(str(error))

    def _event(self, event: Event) -> None:
        """What is counted of an event by itself."""
        if not self._asked.choice.event(event.agent, event.at, event.turn_id):
            return
        self._tally.events.add(event.kind)
        if event.kind == "intervention" and not is_told_by_history(event, self._known):
            self._tally.interventions.add(event.intervention)
        elif event.kind == "error" and not event.ends_a_turn:
            self._tally.proxy_errors.add(event.error)

    def _turn(self, turn: Turn, *, counts: bool) -> None:
        choice = self._asked.choice
        if not choice.event(turn.agent, turn.at, turn.turn_id):
            return
        calls = [call for call in turn.calls if self._fits(call)]
        if not choice.turns(turn, len(calls)):
            return
        self._tally.attempt(turn)
        if not counts:
            return
        self._tally.turn(turn, calls)
        self._offers.turn(turn)
        if turn.source == "history":
            for name in interventions(turn):
                self._tally.interventions.add(name)
        if self._each is not None:
            for call in calls:
                self._each(call_row(turn, call))
