"""Turns out of history files.

Rules. A turn that was gone on with has a line for each attempt, of which each but the first has the whole turn's trace: the
last one is the turn, and of the others only what they used counts. So the files are looked through twice, and the first time
only for lines of attempts that went on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from claw_audit.entries import TOO_LONG, UnreadableError, turn_of
from claw_audit.lines import Line, lines
from claw_audit.sources import Source, SourceError
from claw_audit.turns import Turn
from claw_audit.skipped import Unreadables

_RESUMED = b'"resumed":true'
type _Place = tuple[float, int, int]
"""When, in which file, where: a later one is behind an earlier one."""


def turns(agent: str, files: Sequence[Source], unread: Unreadables) -> Iterator[tuple[Turn, bool]]:
    """Every attempt at a turn, and whether it is the one that counts."""
    last = _last_attempts(agent, files)
    for number, file in enumerate(files):
        for line, data in _held(file, unread):
            try:
                turn = turn_of(data, agent)
            except UnreadableError as why:
                if file.ends or data.endswith(b"\n"):  # else it is being written
                    unread.line(file.name, line.number, line.offset, str(why))
                continue
            place = (turn.at or 0.0, number, line.offset)
            yield turn, last.get(turn.turn_id, place) == place


def _last_attempts(agent: str, files: Sequence[Source]) -> dict[str, _Place]:
    """Of turns that were gone on with: where the last attempt's line is."""
    last: dict[str, _Place] = {}
    for number, file in enumerate(files):
        for line, data in _held(file, Unreadables()):
            if _RESUMED in data:
                try:
                    turn = turn_of(data, agent)
                except UnreadableError:
                    continue
                if turn.resumed:
                    place = (turn.at or 0.0, number, line.offset)
                    last[turn.turn_id] = max(place, last.get(turn.turn_id, place))
    return last


def _held(file: Source, unread: Unreadables) -> Iterator[tuple[Line, bytes]]:
    """The lines that can be held."""
    try:
        for line in lines(file.reading()):
            if line.data is None:
                unread.line(file.name, line.number, line.offset, TOO_LONG)
            elif line.data.strip():
                yield line, line.data
            else:
                unread.line(file.name, line.number, line.offset, "is empty")
    except SourceError as error:
        unread.file(str(error))
