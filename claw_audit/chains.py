"""The chains of all agents, and what the logs know of their ends.

Rules. The last line that a log knows of an agent has to be in that agent's chain, in one of the directories: else lines were
cut off at a line's end, which no chain shows by itself. A log that ends before a chain's first line says nothing of it. Logs
are read first: what they know of was in history before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from claw_audit.entries import UnreadableError
from claw_audit.events import Event, LogReader
from claw_audit.lines import LINE_LIMIT, lines
from claw_audit.sources import NEWER, Progress, SourceError, agents, open_history, open_log
from claw_audit.verify import Finding, Verdict, Walk
from claw_contract.names import is_agent_id

_MOST_AGENTS = 10_000
"""Of which a log may tell."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The last line of an agent's history that a log knows."""

    log: str
    hash: str
    turn_id: str
    at: float | None


def verify(
    histories: tuple[Path, ...], logs: tuple[str, ...] = (), agent: str = "", progress: Progress | None = None
) -> list[Verdict]:
    """One verdict for each agent and directory. Raises ``SourceError`` where a directory or a log can't be read."""
    told = progress or Progress()
    anchors: dict[str, list[Anchor]] = {}
    for name in dict.fromkeys(logs):
        for known, anchor in _anchors(name, told).items():
            anchors.setdefault(known, []).append(anchor)
    found = {
        name: [place for _, place in places] for name, places in groupby(agents(histories), key=lambda one: one[0])
    }
    missing = {known: [histories[0] / known] for known in anchors if known not in found}
    return [
        verdict
        for name, places in sorted({**found, **missing}.items())
        if agent in ("", name)
        for verdict in _of_agent(name, places, anchors.get(name, []), told)
    ]


def _of_agent(agent: str, places: list[Path], anchors: list[Anchor], progress: Progress) -> Iterator[Verdict]:
    met: set[str] = set()
    first_at: list[float] = []
    verdicts = []
    for place in places:
        try:
            with open_history(agent, place, progress) as history:
                walk = Walk(history, {anchor.hash for anchor in anchors})
                verdicts.append(walk.verdict())
                met |= walk.met
                first_at += [] if walk.first_at is None else [walk.first_at]
        except SourceError as error:
            file, _, what = str(error).rpartition(": ")
            verdicts.append(Verdict(agent, str(place), 0, 1, (Finding("broken", file, 0, 0, what),)))
    begins = min(first_at, default=None)
    for anchor in anchors:
        if anchor.hash not in met:
            verdicts[-1] = _unmet(verdicts[-1], anchor, begins)
    yield from verdicts


def _unmet(verdict: Verdict, anchor: Anchor, begins: float | None) -> Verdict:
    file = str(Path(verdict.directory) / NEWER)
    if begins is not None and anchor.at is not None and anchor.at < begins:
        note = Finding("note", file, 0, 0, f"begins behind the end of {anchor.log}, which says nothing of it")
        return replace(verdict, findings=(*verdict.findings, note))
    what = f"the line of {anchor.turn_id}, which {anchor.log} knows, is not there: the end was cut off"
    breaks = [found for found in verdict.findings if found.kind == "broken"] or [Finding("broken", file, 0, 0, what)]
    notes = [found for found in verdict.findings if found.kind == "note"]
    return replace(verdict, broken=verdict.broken + 1, findings=(*breaks, *notes))


def _anchors(log: str, progress: Progress) -> dict[str, Anchor]:
    found: dict[str, Anchor] = {}
    reader = LogReader(LINE_LIMIT)
    with open_log(log, progress) as read:
        for line in lines(read):
            try:
                event = reader.event(line.data)
            except UnreadableError:
                continue
            if event is not None and event.history_hash and event.ends_a_turn and _fits(event, found):
                found[event.agent] = Anchor(log, event.history_hash, event.turn_id, event.at)
    return found


def _fits(event: Event, found: dict[str, Anchor]) -> bool:
    return is_agent_id(event.agent) and (event.agent in found or len(found) < _MOST_AGENTS)
