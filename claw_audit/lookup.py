"""Look-up of a turn's line of history by the beginning of its id."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from claw_audit.bounded_counter import LatestItems
from claw_audit.filters import has_id_prefix
from claw_audit.history_source import decode_turn
from claw_audit.sources import Progress, SourceError, agent_directories, ignore, open_history, read_lines
from claw_audit.turns import UnreadableLineError
from claw_contract.transcript.render import render_headline

_MAX_TURNS = 10
"""Turns of one prefix that are named."""
_MAX_EARLIER = 100
"""Earlier attempts that are named."""


class Attempts:
    """All attempts at one turn, by time. Only the last line is held, as a line may be long."""

    def __init__(self) -> None:
        self.count = 0
        self.last: Any = None
        """The line of the last attempt, as JSON data."""
        self._last_at = 0.0
        self._headlines: LatestItems[str] = LatestItems(_MAX_EARLIER + 1)

    def add(self, at: float, entry: Any) -> None:
        """Add an attempt. It comes after others of the same time."""
        self.count += 1
        self._headlines.add(at, render_headline(entry))
        if at >= self._last_at:
            self.last, self._last_at = entry, at

    def earlier(self) -> list[str]:
        """Return a headline for each earlier attempt; of very many, the latest."""
        return list(self._headlines)[:-1]


@dataclass
class Lookup:
    """Turns by id, and problems with files, one line each."""

    turns: dict[str, Attempts] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def find_turns(histories: tuple[Path, ...], prefix: str, agent: str = "", progress: Progress = ignore) -> Lookup:
    """Return the turns whose id begins with the prefix. Raise ``SourceError`` for an unreadable directory."""
    result = Lookup()
    for name, directories in agent_directories(histories).items():
        for directory in directories if agent in ("", name) else ():
            try:
                _search(directory, name, prefix, result, progress)
            except SourceError as error:
                result.problems.append(str(error))
    return result


def _search(directory: Path, agent: str, prefix: str, result: Lookup, progress: Progress) -> None:
    needle = prefix.encode(errors="surrogateescape")
    with open_history(directory, progress) as files:
        for line in (line for file in files for line in read_lines(file.blocks())):
            # Most lines belong to other turns and are not decoded.
            if line.data is not None and needle in line.data and len(result.turns) <= _MAX_TURNS:
                _add_line(line.data, agent, prefix, result)


def _add_line(line: bytes, agent: str, prefix: str, result: Lookup) -> None:
    try:
        turn = decode_turn(line, agent)
    except UnreadableLineError:
        return
    if has_id_prefix(turn.turn_id, prefix):
        result.turns.setdefault(turn.turn_id, Attempts()).add(turn.at or 0.0, msgspec.json.decode(line))
