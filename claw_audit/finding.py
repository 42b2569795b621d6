"""One turn's line of history, found by the beginning of its id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from claw_audit.bounded import Latest
from claw_audit.choice import is_named
from claw_audit.entries import UnreadableError, turn_of
from claw_audit.lines import lines
from claw_audit.sources import Progress, SourceError, agents, open_history
from claw_contract.transcript.render import render_headline

_MOST = 10
"""Turns of one beginning that are named."""
_MOST_EARLIER = 100
"""Attempts at a turn that are named, beside the last one."""


class Attempts:
    """At one turn, by their times: a line may be long, and there may be any number of them."""

    def __init__(self) -> None:
        self.count = 0
        self.last: Any = None
        """Its line, as data."""
        self._last_at = 0.0
        self._headlines: Latest[str] = Latest(_MOST_EARLIER + 1)

    def add(self, at: float, entry: Any) -> None:
        """One of them; behind others of the same time."""
        self.count += 1
        self._headlines.add(at, render_headline(entry))
        if at >= self._last_at:
            self.last, self._last_at = entry, at

    def earlier(self) -> list[str]:
        """Those before the last one, in a line each; of very many the last ones."""
        return list(self._headlines)[:-1]


class Found:
    """What stands in history under a beginning of an id."""

    def __init__(self) -> None:
        self.turns: dict[str, Attempts] = {}
        self.problems: list[str] = []


def find(histories: tuple[Path, ...], prefix: str, agent: str = "", progress: Progress | None = None) -> Found:
    """Raises ``SourceError`` where a directory can't be read."""
    found, told, wanted = Found(), progress or Progress(), prefix.encode(errors="surrogateescape")
    for name, place in agents(histories):
        if agent not in ("", name):
            continue
        try:
            with open_history(name, place, told) as history:
                for file in history.files:
                    for line in lines(file.reading()):
                        # Most lines are other turns', and are not parsed.
                        if line.data is not None and wanted in line.data and len(found.turns) <= _MOST:
                            _look(line.data, name, prefix, found)
        except SourceError as error:
            found.problems.append(str(error))
    return found


def _look(line: bytes, agent: str, prefix: str, found: Found) -> None:
    try:
        turn = turn_of(line, agent)
    except UnreadableError:
        return
    if is_named(turn.turn_id, prefix):
        found.turns.setdefault(turn.turn_id, Attempts()).add(turn.at or 0.0, msgspec.json.decode(line))
