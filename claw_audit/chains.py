"""The chains of all agents, and the lines that the logs know of.

Rules. Every line that a log knows has to be in one of the agent's chains, since the chain alone does not show what was cut off
at its beginning or its end. Only what was rotated away is rightly gone: what the logs tell of before a line of which they
say that it began a file (``history_rotated``), where a chain begins with that line. No word of history's own is believed:
whoever removes lines can write others. Logs are read first: what they know of was in history before.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from claw_audit.bounded_counter import Marks
from claw_audit.entries import UnreadableError
from claw_audit.events import Event, LogReader
from claw_audit.lines import LINE_LIMIT, lines
from claw_audit.sources import NEWER, Progress, SourceError, agents, open_history, open_log
from claw_audit.verify import Finding, Verdict, Walk, mark
from claw_contract.names import is_agent_id

_MOST_AGENTS = 10_000
"""Of which a log may tell."""
_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class _Logged:
    """The lines of one agent that one log knows, in its order: eight bytes each."""

    log: str
    since: float
    """When the first one was written."""
    marks: array[int] = field(default_factory=lambda: array("Q"))
    began: array[int] = field(default_factory=lambda: array("Q"))
    """Which of them began a file, as the one before was full."""


def verify(
    histories: tuple[Path, ...], logs: tuple[str, ...] = (), agent: str = "", progress: Progress | None = None
) -> list[Verdict]:
    """One verdict for each agent and directory. Raises ``SourceError`` where a directory or a log can't be read."""
    told = progress or Progress()
    logged: dict[str, list[_Logged]] = {}
    for name in dict.fromkeys(logs):
        for known, of_agent in _logged(name, told).items():
            logged.setdefault(known, []).append(of_agent)
    found = {
        name: [place for _, place in places] for name, places in groupby(agents(histories), key=lambda one: one[0])
    }
    missing = {known: [histories[0] / known] for known in logged if known not in found}
    return [
        verdict
        for name, places in sorted({**found, **missing}.items())
        if agent in ("", name)
        for verdict in _of_agent(name, places, logged.get(name, []), told)
    ]


def _of_agent(agent: str, places: list[Path], logged: list[_Logged], progress: Progress) -> Iterator[Verdict]:
    met, firsts = Marks(), set[int]()
    verdicts = []
    for place in places:
        try:
            with open_history(agent, place, progress) as history:
                walk = Walk(history, met)
                verdicts.append(walk.verdict())
                firsts |= set() if walk.first is None else {walk.first}
        except SourceError as error:
            file, _, what = str(error).rpartition(": ")
            verdicts.append(Verdict(agent, str(place), 0, 1, (Finding("broken", file, 0, 0, what),)))
    for what in _gone(sorted(logged, key=lambda one: one.since), met, firsts):
        verdicts[-1] = _less(verdicts[-1], what)
    yield from verdicts


def _gone(logged: list[_Logged], met: Marks, firsts: set[int]) -> Iterator[str]:
    """Of each log, what should be there and is not. The older log comes first."""
    kept = max(
        ((number, place) for number, log in enumerate(logged) for place in log.began if log.marks[place] in firsts),
        default=(0, 0),
    )
    for number, log in enumerate(logged):
        count, first = 0, 0
        for place, one in enumerate(log.marks):
            if (number, place) >= kept and one not in met:
                count, first = count + 1, first if count else one
        if count:
            lines = "1 line that is" if count == 1 else f"{count} lines that are"
            yield f"{log.log} knows {lines} not there, the first with the history_hash {first:016x}…: removed"


def _less(verdict: Verdict, what: str) -> Verdict:
    breaks = [found for found in verdict.findings if found.kind == "broken"]
    notes = [found for found in verdict.findings if found.kind == "note"]
    breaks = breaks or [Finding("broken", str(Path(verdict.directory) / NEWER), 0, 0, what)]
    return replace(verdict, broken=verdict.broken + 1, findings=(*breaks, *notes))


def _logged(log: str, progress: Progress) -> dict[str, _Logged]:
    found: dict[str, _Logged] = {}
    reader = LogReader(LINE_LIMIT)
    with open_log(log, progress) as read:
        for line in lines(read):
            try:
                event = reader.event(line.data)
            except UnreadableError:
                continue
            if event is not None and event.ends_a_turn and _HASH.fullmatch(event.history_hash) and _fits(event, found):
                logged = found.setdefault(event.agent, _Logged(log, event.at or 0.0))
                if event.history_rotated:
                    logged.began.append(len(logged.marks))
                logged.marks.append(mark(event.history_hash))
    return found


def _fits(event: Event, found: dict[str, _Logged]) -> bool:
    return is_agent_id(event.agent) and (event.agent in found or len(found) < _MOST_AGENTS)
