"""Verification of the hash chains of history, and of the lines that the logs record
(``claw_contract.chain`` has the rule).

| what is found in an agent's files | verdict |
|---|---|
| the hash of a line does not match its bytes | edited: broken |
| a line does not continue the line before it | removed, inserted, moved or repeated: broken |
| a line without a seal | inserted, or edited at its end: broken |
| the beginning of a line, and nothing after it; zero bytes at its end | torn by a crash or a power failure: a note |
| the oldest file continues a line that is gone, and is a rotated one | rotated away: a note |
| the current file does, and there is no rotated file | removed: broken |

A chain alone does not show whole lines that were cut off at its beginning or its end. So every line
that a log records must be in one of the agent's chains, else the turn is missing: broken. An agent
can fill its files on purpose, so rotation is no excuse; it is only said where the logs show it: of
lines that they record before one that began a new file (``history_rotated``), if a chain begins
with that line, and of several workers only of lines of the same one. History is not believed about
itself, since whoever removes lines can write others. Logs are read first, so that everything that
they record was in history before.

A log's event names a line by its hash (``history_hash``), so what leaves no line is not missed:
refused requests, token counts, turns that still run, or that a crash ended.
"""

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from claw_audit.bounded_counter import HashSet
from claw_audit.log_source import Event, read_events
from claw_audit.report import SkippedInput
from claw_audit.sources import (
    CURRENT_FILE,
    HistoryFile,
    Line,
    Progress,
    SourceError,
    agent_directories,
    ignore,
    open_history,
    read_lines,
)
from claw_contract.chain import GENESIS, Seal, SealReader
from claw_contract.names import is_agent_id, worker_directory

_MAX_AGENTS = 10_000  # agents of one log
_HASH = re.compile("[0-9a-f]{64}")
_HEAD_BYTES = 512  # the part of a line that holds its agent
_AGENT = re.compile(rb'"claw_id":"([^"\\]{0,80})"')
_NUMBER = b"+-.0123456789eE"
_MAX_NOTES = 20
_MAX_NAMED = 10  # missing turns of one log and one reason that are named
_TURN_ID = re.compile("turn_([0-9a-f]{32})")
_ID_BYTES = 16
type _Place = tuple[Path, int, int]  # (file, line, offset)


@dataclass(frozen=True, slots=True)
class Finding:
    """A break, or a note, and its place. ``line`` is 0 for a finding about a whole file."""

    kind: Literal["broken", "note"]
    file: str
    line: int
    offset: int
    what: str


@dataclass(frozen=True, slots=True)
class MissingTurn:
    """A turn as a log names it.

    ``turn_id`` is "" if the log's one is none of ours; ``at`` is "" without a time.
    """

    turn_id: str
    agent: str
    at: str
    history_hash: str  # The first 16 digits


@dataclass(frozen=True, slots=True)
class MissingTurns:
    """Turns that one log names and history lacks; ``turns`` are the first of ``count``.

    ``why``: the log shows that the proxy rotated them away; the log says that it could not write
    them; or neither, so somebody removed them.
    """

    log: str
    why: Literal["rotated", "not written", "removed"]
    count: int
    turns: tuple[MissingTurn, ...]


@dataclass(slots=True)
class Verdict:
    """The verdict on one agent's chain in one directory.

    ``findings``: the first break of the chain, one for each of ``missing``, and notes. ``broken``
    counts all breaks.
    """

    agent: str
    directory: str
    lines: int = 0
    broken: int = 0
    findings: tuple[Finding, ...] = ()
    missing: tuple[MissingTurns, ...] = ()

    def add_break(self, file: object, line: int, offset: int, what: str) -> None:
        self.broken += 1
        if self.broken == 1:
            self.findings = (Finding("broken", str(file), line, offset, what), *self.findings)

    def add_missing(self, file: object, missing: MissingTurns) -> None:
        self.broken += 1
        self.missing = (*self.missing, missing)
        lines = "1 line that is" if missing.count == 1 else f"{missing.count} lines that are"
        what = f"{missing.log} records {lines} missing, {_REASONS[missing.why]}"
        findings = (*self.findings, Finding("broken", str(file), 0, 0, what))
        self.findings = tuple(sorted(findings, key=lambda each: each.kind))  # breaks before notes

    def add_note(self, file: object, line: int, offset: int, what: str) -> None:
        if len(self.findings) < _MAX_NOTES:
            self.findings = (*self.findings, Finding("note", str(file), line, offset, what))


_REASONS = {
    "rotated": (
        "which the proxy rotated away: if the older files were copied, name their directory "
        "with --history, too"
    ),
    "not written": "which the proxy could not write (history_not_written)",
    "removed": "and the log shows no rotation that explains it: they were removed",
}


class ChainWalk:
    """A walk along one agent's files.

    ``seen`` gets the hash of every line, and ``first`` is that of the first one.
    """

    def __init__(self, agent: str, directory: Path, seen: HashSet) -> None:
        self._agent = agent
        self._verdict = Verdict(agent, str(directory))
        self._seen = seen
        self.first: int | None = None
        self._last: str | None = None  # hash of the last sealed line
        self._reading = SealReader()

    def verify(self, files: Iterable[HistoryFile]) -> Verdict:
        """Return the verdict on the files, the oldest first."""
        paths = []
        for file in files:
            paths.append(file.path)
            try:
                self._walk(file)
            except SourceError as error:
                self._verdict.add_break(file.path, 0, 0, str(error).rpartition(": ")[2])
        if paths and paths[-1].name != CURRENT_FILE:
            self._verdict.add_note(paths[0], 0, 0, f"is the only file: {CURRENT_FILE} is missing")
        return self._verdict

    def _walk(self, file: HistoryFile) -> None:
        torn: Line | None = None
        for line in read_lines(file.blocks(), self._hash):
            place, seal = (file.path, line.number, line.offset), self._seal(line)
            torn = None
            if seal is not None:
                self._check(place, line, seal)
            elif line.data is None or not _is_torn(line.data):
                self._verdict.add_break(
                    *place, "has no seal: it was edited at its end, or inserted"
                )
            else:
                torn = line if line.data.endswith(b"\n") else None
                reason = "the disk was full" if torn else "it is being written"
                self._verdict.add_note(
                    *place, f"is only the beginning of a line: its writer crashed, or {reason}"
                )
        if torn is not None:
            place = (file.path, torn.number, torn.offset)
            self._verdict.add_break(
                *place, "ends with a part of a line: the rest of it was removed"
            )

    def _hash(self, piece: bytes) -> None:
        self._reading.add(piece)

    def _seal(self, line: Line) -> Seal | None:
        if line.data is not None and not line.data.endswith(b"\n"):
            self._reading.add(b"\n")  # a line that only lacks its line break is complete
        seal, self._reading = self._reading.seal(), SealReader()
        return seal

    def _check(self, place: _Place, line: Line, seal: Seal) -> None:
        self._verdict.lines += 1
        self.first = hash_prefix(seal.hash) if self.first is None else self.first
        self._seen.add(hash_prefix(seal.hash))
        agent = _AGENT.search(line.data or b"", 0, _HEAD_BYTES)
        if not seal.is_intact:
            self._verdict.add_break(*place, "was edited: its hash does not match its bytes")
        elif agent is not None and agent[1].decode(errors="replace") != self._agent:
            self._verdict.add_break(*place, "is a line of another agent")
        elif self._last is not None and seal.prev != self._last:
            self._verdict.add_break(*place, _wrong_link(seal, self._last))
        elif self._last is None and seal.prev != GENESIS and place[0].name != CURRENT_FILE:
            what = (
                "continues lines that were rotated away: the chain holds from here on, and "
                "only a log tells what was before"
            )
            self._verdict.add_note(*place, what)
        elif self._last is None and seal.prev != GENESIS:
            what = (
                f"continues a line that is not there: {CURRENT_FILE}.1 is missing, or lines "
                "were removed"
            )
            self._verdict.add_break(*place, what)
        self._last = seal.hash


def hash_prefix(digest: str) -> int:
    """Return the first 64 bits of a line's hash, given in hexadecimal."""
    return int(digest[:16], 16)


def _wrong_link(seal: Seal, last: str) -> str:
    if seal.hash == last:
        return "repeats the line before it"
    if seal.prev == GENESIS:
        return "begins a new chain: the lines before it were removed, or it was inserted"
    return "does not continue the line before it: lines were removed, inserted or moved"


def _is_torn(line: bytes) -> bool:
    """Return True for the beginning of a JSON object, and for nothing but zero bytes.

    A complete object was not torn. After a power failure, zero bytes stand for data that did not
    reach the disk.
    """
    text = line.removesuffix(b"\n").rstrip(b"\0")
    if not text.startswith(b"{"):
        return not text and line.startswith(b"\0")
    # A number may have been cut within: the rest of it would make the text valid.
    return _is_truncated(text) or _is_truncated(text.rstrip(_NUMBER) + b"1")


def _is_truncated(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError) as error:
        return "truncated" in str(error)
    return False


@dataclass(slots=True)
class _LoggedLines:
    """The lines of one agent and one worker that one log records, in its order.

    Each takes 32 bytes.
    """

    log: str
    agent: str
    worker: int
    since: float  # Time of the first one in seconds
    hashes: array[int] = field(default_factory=lambda: array("Q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    ids: bytearray = field(
        default_factory=bytearray
    )  # 16 bytes each; zeros for an id that is none of ours
    rotations: array[int] = field(
        default_factory=lambda: array("Q")
    )  # Indexes of the lines that began a new file
    unwritten: int = 0  # Lines that the proxy could not write
    first_unwritten: list[MissingTurn] = field(default_factory=list)

    def add(self, event: Event, digest: str) -> None:
        if event.begins_file:
            self.rotations.append(len(self.hashes))

        match = _TURN_ID.fullmatch(event.turn_id)
        self.ids += bytes.fromhex(match[1]) if match is not None else bytes(_ID_BYTES)
        self.times.append(event.at or 0.0)
        self.hashes.append(hash_prefix(digest))

    def add_unwritten(self, event: Event) -> None:
        self.unwritten += 1
        if self.unwritten <= _MAX_NAMED:
            self.first_unwritten.append(
                MissingTurn(event.turn_id, self.agent, _rfc3339(event.at or 0.0), "")
            )

    def turn(self, index: int) -> MissingTurn:
        identity = self.ids[index * _ID_BYTES :][:_ID_BYTES]
        turn_id = f"turn_{identity.hex()}" if any(identity) else ""
        return MissingTurn(
            turn_id, self.agent, _rfc3339(self.times[index]), f"{self.hashes[index]:016x}"
        )


def _rfc3339(seconds: float) -> str:
    try:
        time = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z") if seconds else ""


def verify(
    histories: tuple[Path, ...],
    logs: tuple[str, ...] = (),
    agent: str = "",
    progress: Progress = ignore,
) -> list[Verdict]:
    """Return a verdict for each agent and directory.

    Raise ``SourceError`` for an unreadable directory or log.
    """
    logged: dict[str, list[_LoggedLines]] = {}
    for log in dict.fromkeys(logs):
        for (name, _), lines in _read_log(log, progress).items():
            logged.setdefault(name, []).append(lines)
    directories = {name: [histories[0] / name] for name in logged} | agent_directories(histories)
    return [
        verdict
        for name in sorted(directories)
        if agent in ("", name)
        for verdict in _verify_agent(name, directories[name], logged.get(name, []), progress)
    ]


def _verify_agent(
    agent: str, directories: list[Path], logged: list[_LoggedLines], progress: Progress
) -> list[Verdict]:
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
    for worker in sorted({lines.worker for lines in logged}):
        written = sorted(
            (lines for lines in logged if lines.worker == worker), key=lambda lines: lines.since
        )
        index = _find_directory(directories, worker)
        for missing in _missing(written, seen, firsts):
            verdicts[index].add_missing(directories[index] / CURRENT_FILE, missing)
    return verdicts


def _find_directory(directories: list[Path], worker: int) -> int:
    """Return the index of a worker's directory of an agent, or of the last one."""
    indexes = (
        index
        for index, each in enumerate(directories)
        if each.parent.name == worker_directory(worker)
    )
    return next(indexes, len(directories) - 1)


def _missing(
    logged: list[_LoggedLines], seen: HashSet, firsts: set[int | None]
) -> Iterator[MissingTurns]:
    """Yield the turns that the logs of one worker name and that no chain has."""
    starts = [
        (number, index)
        for number, log in enumerate(logged)
        for index in log.rotations
        if log.hashes[index] in firsts
    ]
    start = max(starts, default=(0, 0))

    for number, log in enumerate(logged):
        rotated, removed = array("Q"), array("Q")
        for index, line in enumerate(log.hashes):
            if line not in seen:
                (removed if (number, index) >= start else rotated).append(index)

        reasons: tuple[tuple[Literal["rotated", "removed"], array[int]], ...] = (
            ("rotated", rotated),
            ("removed", removed),
        )
        for why, indexes in reasons:
            if indexes:
                yield MissingTurns(
                    log.log, why, len(indexes), tuple(map(log.turn, indexes[:_MAX_NAMED]))
                )
        if log.unwritten:
            yield MissingTurns(log.log, "not written", log.unwritten, tuple(log.first_unwritten))


def _read_log(log: str, progress: Progress) -> dict[tuple[str, int], _LoggedLines]:
    """Return the lines that a log records, by agent and worker."""
    lines: dict[tuple[str, int], _LoggedLines] = {}
    for event in read_events(log, progress, SkippedInput()):
        digest = event.text("history_hash")
        is_line = event.ends_turn and _HASH.fullmatch(digest) is not None
        is_unwritten = event.kind == "error" and event.text("error") == "history_not_written"
        if not (is_line or is_unwritten) or not is_agent_id(event.agent):
            continue

        series = event.agent, event.worker
        if series not in lines and len(lines) >= _MAX_AGENTS:
            continue

        logged = lines.setdefault(
            series, _LoggedLines(log, event.agent, event.worker, event.at or 0.0)
        )
        if is_line:
            logged.add(event, digest)
        else:
            logged.add_unwritten(event)
    return lines
