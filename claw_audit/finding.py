"""One turn's line of history, found by the beginning of its id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from claw_audit.choice import is_named
from claw_audit.entries import UnreadableError, turn_of
from claw_audit.lines import lines
from claw_audit.sources import Progress, SourceError, agents, open_history
from claw_audit.turns import Turn

_MOST = 10
"""Turns of one beginning that are named."""


class Found:
    """What stands in history under a beginning of an id."""

    def __init__(self) -> None:
        self.turns: dict[str, list[tuple[Turn, Any]]] = {}
        """Turn → its attempts, each with its line as data."""
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
    for attempts in found.turns.values():
        attempts.sort(key=lambda attempt: attempt[0].at or 0.0)
    return found


def _look(line: bytes, agent: str, prefix: str, found: Found) -> None:
    try:
        turn = turn_of(line, agent)
    except UnreadableError:
        return
    if is_named(turn.turn_id, prefix):
        found.turns.setdefault(turn.turn_id, []).append((turn, msgspec.json.decode(line)))
