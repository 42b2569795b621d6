"""Verification of all agents' chains, and of the lines that the logs record.

A chain alone does not show whole lines that were cut off at its beginning or its end. So every line that a log records must be
in one of the agent's chains. Only rotation excuses a missing line: lines that the logs record before one that began a new
file (``history_rotated``), if a chain begins with that line. History is not believed about itself, since whoever removes
lines can write others. Logs are read first, so that everything that they record was in history before.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from claw_audit.bounded_counter import HashSet
from claw_audit.chain import ChainWalk, Verdict, hash_prefix
from claw_audit.log_source import read_events
from claw_audit.report import SkippedInput
from claw_audit.sources import CURRENT_FILE, Progress, SourceError, agent_directories, open_history
from claw_contract.names import is_agent_id

_MAX_AGENTS = 10_000
"""Agents of one log."""
_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class _LoggedLines:
    """The lines of one agent that one log records, in its order. Each takes eight bytes."""

    log: str
    since: float
    """Time of the first one in seconds."""
    hashes: array[int] = field(default_factory=lambda: array("Q"))
    rotations: array[int] = field(default_factory=lambda: array("Q"))
    """Indexes of the lines that began a new file."""


def verify(
    histories: tuple[Path, ...], logs: tuple[str, ...] = (), agent: str = "", progress: Progress = int
) -> list[Verdict]:
    """Return a verdict for each agent and directory. Raise ``SourceError`` for an unreadable directory or log."""
    logged: dict[str, list[_LoggedLines]] = {}
    for log in dict.fromkeys(logs):
        for name, lines in _read_log(log, progress).items():
            logged.setdefault(name, []).append(lines)
    directories = {name: [histories[0] / name] for name in logged} | agent_directories(histories)
    return [
        verdict
        for name in sorted(directories)
        if agent in ("", name)
        for verdict in _verify_agent(name, directories[name], logged.get(name, []), progress)
    ]


def _verify_agent(agent: str, directories: list[Path], logged: list[_LoggedLines], progress: Progress) -> list[Verdict]:
    seen, firsts, verdicts = HashSet(), set[int | None](), []
    for directory in directories:
        walk = ChainWalk(agent, directory, seen)
        try:
            with open_history(directory, progress) as files:
                verdicts.append(walk.verify(files))
        except SourceError as error:
            verdicts.append(Verdict(agent, str(directory)))
            file, _, reason = str(error).rpartition(": ")
            verdicts[-1].add_break(file, 0, 0, reason)
        firsts.add(walk.first)
    for what in _missing(sorted(logged, key=lambda lines: lines.since), seen, firsts):
        verdicts[-1].add_break(directories[-1] / CURRENT_FILE, 0, 0, what)
    return verdicts


def _missing(logged: list[_LoggedLines], seen: HashSet, firsts: set[int | None]) -> Iterator[str]:
    """Return a message for each log with missing lines. The older log comes first."""
    starts = [
        (number, index) for number, log in enumerate(logged) for index in log.rotations if log.hashes[index] in firsts
    ]
    start = max(starts, default=(0, 0))
    for number, log in enumerate(logged):
        count, first = 0, 0
        for index, line in enumerate(log.hashes):
            if (number, index) >= start and line not in seen:
                count, first = count + 1, first if count else line
        if count:
            lines = "1 line that is" if count == 1 else f"{count} lines that are"
            yield f"{log.log} records {lines} missing, the first with the history_hash {first:016x}…: removed"


def _read_log(log: str, progress: Progress) -> dict[str, _LoggedLines]:
    lines: dict[str, _LoggedLines] = {}
    for event in read_events(log, progress, SkippedInput()):
        digest = event.text("history_hash")
        if event.ends_turn and _HASH.fullmatch(digest) and is_agent_id(event.agent):
            if event.agent not in lines and len(lines) >= _MAX_AGENTS:
                continue
            logged = lines.setdefault(event.agent, _LoggedLines(log, event.at or 0.0))
            if event.is_rotation:
                logged.rotations.append(len(logged.hashes))
            logged.hashes.append(hash_prefix(digest))
    return lines
