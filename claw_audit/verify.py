"""Verification of the hash chains of history, and of the lines that logs record.

The rule of a chain is in ``claw_contract.chain``. What an agent's files may show:

    a line's hash does not match its bytes      broken: the line was edited
    a line does not continue the one before it  broken: removed, inserted, moved or repeated
    a line without a seal                       broken: inserted, or edited at its end
    only the beginning of a line, maybe with    a note: torn by a crash or a power failure
    zero bytes at its end
    the oldest file is a rotated one, and       a note: rotated away
    continues a line that is gone
    the current file is the oldest one, and     broken: lines were removed
    continues a line that is gone

A chain alone does not show whole lines that were cut off at its beginning or its end. So every line
that a log records must be in one of the agent's chains, else its turn is missing, and the chain is
broken.

Lines that were rotated away are missing, too, because an agent can fill its files on purpose. The
report says "rotated" only if the logs show it: for lines that they record before a line that began
a new file (``history_rotated``), if a chain begins with that line. Of several workers, only lines
of the same worker count. History is no evidence about itself, since whoever removes lines can write
others.

Logs are read first, so that everything that they record was in history before. An event of a log
names a line by its hash (``history_hash``). So turns that leave no line are not missing: refused
requests, token counts, turns that still run, or that a crash ended.
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
from claw_audit.log_source import LoggedEvent, read_events
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
    """A turn as a log names it."""

    turn_id: str  # "" if the log's id does not have our form
    agent: str
    at: str  # RFC 3339, or "" without a time
    history_hash: str  # The first 16 digits


@dataclass(frozen=True, slots=True)
class MissingTurns:
    """Turns that one log names and history lacks."""

    log: str
    why: Literal["rotated", "not written", "removed"]
    """Why history lacks them.

    ``rotated``: the log shows that the proxy rotated them away. ``not written``: the log says that
    the proxy could not write them. ``removed``: neither, so somebody removed them.
    """
    count: int
    turns: tuple[MissingTurn, ...]
    """The first ones."""


@dataclass(slots=True)
class ChainVerdict:
    """The verdict on one agent's chain in one directory."""

    agent: str
    directory: str
    lines: int = 0
    broken: int = 0
    """The number of breaks, also of those that have no finding."""
    findings: tuple[Finding, ...] = ()
    """The first break of the chain, one for each of ``missing``, and notes."""
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
    """A walk along one agent's files."""

    def __init__(self, agent: str, directory: Path, seen: HashSet) -> None:
        """``seen`` gets the hash of every line."""
        self._agent = agent
        self._verdict = ChainVerdict(agent, str(directory))
        self._seen = seen
        self.first: int | None = None
        """The hash of the first line."""
        self._last: str | None = None  # hash of the last sealed line
        self._seal_reader = SealReader()  # of the line that is being read

    def verify(self, files: Iterable[HistoryFile]) -> ChainVerdict:
        """Return the verdict on the files, the oldest first."""
        paths = []
        for file in files:
            paths.append(file.path)
            try:
                self._walk(file)
            except SourceError as error:
                reason = str(error).rpartition(": ")[2]
                self._verdict.add_break(file.path, 0, 0, reason)

        if paths and paths[-1].name != CURRENT_FILE:
            self._verdict.add_note(paths[0], 0, 0, f"is the only file: {CURRENT_FILE} is missing")
        return self._verdict

    def _walk(self, file: HistoryFile) -> None:
        # The last line that was read, if it is torn and has a line break. A file can't end with it:
        # the proxy ends a torn line only when it writes the next one.
        torn_line: Line | None = None
        for line in read_lines(file.blocks(), self._hash):
            place = (file.path, line.number, line.offset)
            seal = self._take_seal(line)
            torn_line = None
            if seal is not None:
                self._check(place, line, seal)
            elif line.data is None or not _is_torn(line.data):
                what = "has no seal: it was edited at its end, or inserted"
                self._verdict.add_break(*place, what)
            elif line.data.endswith(b"\n"):
                torn_line = line
                self._add_torn(place, "the disk was full")
            else:
                self._add_torn(place, "it is being written")

        if torn_line is not None:
            what = "ends with a part of a line: the rest of it was removed"
            self._verdict.add_break(file.path, torn_line.number, torn_line.offset, what)

    def _add_torn(self, place: _Place, reason: str) -> None:
        what = f"is only the beginning of a line: its writer crashed, or {reason}"
        self._verdict.add_note(*place, what)

    def _hash(self, piece: bytes) -> None:
        self._seal_reader.add(piece)

    def _take_seal(self, line: Line) -> Seal | None:
        """Return the seal of the line that was hashed, and begin the next line."""
        if line.data is not None and not line.data.endswith(b"\n"):
            self._seal_reader.add(b"\n")  # a line that only lacks its line break is complete

        seal = self._seal_reader.seal()
        self._seal_reader = SealReader()
        return seal

    def _check(self, place: _Place, line: Line, seal: Seal) -> None:
        digest = hash_prefix(seal.hash)
        self._verdict.lines += 1
        self._seen.add(digest)
        if self.first is None:
            self.first = digest

        agent = _AGENT.search(line.data or b"", 0, _HEAD_BYTES)
        if not seal.is_intact:
            self._verdict.add_break(*place, "was edited: its hash does not match its bytes")
        elif agent is not None and agent[1].decode(errors="replace") != self._agent:
            self._verdict.add_break(*place, "is a line of another agent")
        elif self._last is None:
            self._check_beginning(place, seal)
        elif seal.prev != self._last:
            self._verdict.add_break(*place, _wrong_link(seal, self._last))
        self._last = seal.hash

    def _check_beginning(self, place: _Place, seal: Seal) -> None:
        """Check the first line of the oldest file."""
        if seal.prev == GENESIS:
            return

        file, _, _ = place
        if file.name != CURRENT_FILE:
            what = (
                "continues lines that were rotated away: the chain holds from here on, and "
                "only a log tells what was before"
            )
            self._verdict.add_note(*place, what)
        else:
            what = (
                f"continues a line that is not there: {CURRENT_FILE}.1 is missing, or lines "
                "were removed"
            )
            self._verdict.add_break(*place, what)


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
    """Return True for the beginning of a JSON object, and for zero bytes alone.

    A complete object was not torn. After a power failure, a file may have zero bytes in the place
    of data that did not reach the disk.
    """
    text = line.removesuffix(b"\n").rstrip(b"\0")
    if not text:
        return line.startswith(b"\0")
    if not text.startswith(b"{"):
        return False

    # A number may have been cut inside ("1e", "-"), which the decoder calls malformed and not
    # truncated. So it is replaced by a sound one.
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

    Each takes 32 bytes: there may be millions.
    """

    log: str
    agent: str
    worker: int
    since: float  # Time of the first one in seconds
    hashes: array[int] = field(default_factory=lambda: array("Q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    ids: bytearray = field(default_factory=bytearray)
    """16 bytes for each turn id; zeros for an id that does not have our form."""
    rotations: array[int] = field(default_factory=lambda: array("Q"))
    """The indexes of the lines that began a new file."""
    unwritten: int = 0  # Lines that the proxy could not write
    first_unwritten: list[MissingTurn] = field(default_factory=list)

    def add(self, event: LoggedEvent, digest: str) -> None:
        if event.begins_file:
            self.rotations.append(len(self.hashes))

        match = _TURN_ID.fullmatch(event.turn_id)
        self.ids += bytes.fromhex(match[1]) if match is not None else bytes(_ID_BYTES)
        self.times.append(event.at or 0.0)
        self.hashes.append(hash_prefix(digest))

    def add_unwritten(self, event: LoggedEvent) -> None:
        self.unwritten += 1
        if self.unwritten <= _MAX_NAMED:
            turn = MissingTurn(event.turn_id, self.agent, _rfc3339(event.at or 0.0), "")
            self.first_unwritten.append(turn)

    def turn(self, index: int) -> MissingTurn:
        """Return the turn of a line."""
        identity = self.ids[index * _ID_BYTES :][:_ID_BYTES]
        return MissingTurn(
            turn_id=f"turn_{identity.hex()}" if any(identity) else "",
            agent=self.agent,
            at=_rfc3339(self.times[index]),
            history_hash=f"{self.hashes[index]:016x}",
        )


def _rfc3339(seconds: float) -> str:
    """Return a time as text; "" for 0, which stands for no time, and for one out of range."""
    if not seconds:
        return ""
    try:
        time = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return ""

    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def verify(
    histories: tuple[Path, ...],
    logs: tuple[str, ...] = (),
    agent: str = "",
    progress: Progress = ignore,
) -> list[ChainVerdict]:
    """Return a verdict for each agent and directory.

    Raise ``SourceError`` for an unreadable directory or log.
    """
    logged: dict[str, list[_LoggedLines]] = {}
    for log in dict.fromkeys(logs):
        for (name, _), lines in _read_log(log, progress).items():
            logged.setdefault(name, []).append(lines)

    # An agent of a log may have lost all of its history, with its directory.
    directories = {name: [histories[0] / name] for name in logged}
    directories |= agent_directories(histories)

    verdicts: list[ChainVerdict] = []
    for name in sorted(directories):
        if agent in ("", name):
            verdicts += _verify_agent(name, directories[name], logged.get(name, []), progress)
    return verdicts


def _verify_agent(
    agent: str, directories: list[Path], logged: list[_LoggedLines], progress: Progress
) -> list[ChainVerdict]:
    """Return a verdict for each directory of an agent, with the turns that the logs miss there."""
    seen = HashSet()
    first_lines: set[int | None] = set()
    verdicts: list[ChainVerdict] = []
    for directory in directories:
        walk = ChainWalk(agent, directory, seen)
        try:
            with open_history(directory, progress) as files:
                verdict = walk.verify(files)
        except SourceError as error:
            file, _, reason = str(error).rpartition(": ")
            verdict = ChainVerdict(agent, str(directory))
            verdict.add_break(file, 0, 0, reason)
        verdicts.append(verdict)
        first_lines.add(walk.first)

    for worker in sorted({lines.worker for lines in logged}):
        of_worker = [lines for lines in logged if lines.worker == worker]
        of_worker.sort(key=lambda lines: lines.since)
        index = _find_directory(directories, worker)
        for missing in _missing(of_worker, seen, first_lines):
            verdicts[index].add_missing(directories[index] / CURRENT_FILE, missing)
    return verdicts


def _find_directory(directories: list[Path], worker: int) -> int:
    """Return the index of a worker's directory of an agent, or of the last one."""
    for index, directory in enumerate(directories):
        if directory.parent.name == worker_directory(worker):
            return index
    return len(directories) - 1


def _missing(
    logged: list[_LoggedLines], seen: HashSet, first_lines: set[int | None]
) -> Iterator[MissingTurns]:
    """Yield the turns that the logs of one worker name and that no chain has.

    ``logged``: the oldest first. ``first_lines``: the hashes with which the chains begin.
    """
    start = _find_rotation(logged, first_lines)
    for number, log in enumerate(logged):
        rotated = array("Q")
        removed = array("Q")
        for index, line in enumerate(log.hashes):
            if line in seen:
                continue

            was_rotated = (number, index) < start
            if was_rotated:
                rotated.append(index)
            else:
                removed.append(index)

        if rotated:
            yield _missing_turns(log, "rotated", rotated)
        if removed:
            yield _missing_turns(log, "removed", removed)
        if log.unwritten:
            yield MissingTurns(log.log, "not written", log.unwritten, tuple(log.first_unwritten))


def _find_rotation(logged: list[_LoggedLines], first_lines: set[int | None]) -> tuple[int, int]:
    """Return the place (number of the log, index) before which lines may have been rotated away.

    It is that of the latest line that began a new file, as a log says, and with which a chain
    begins; (0, 0) if there is none.
    """
    place = (0, 0)
    for number, log in enumerate(logged):
        for index in log.rotations:
            if log.hashes[index] in first_lines:
                place = max(place, (number, index))
    return place


def _missing_turns(
    log: _LoggedLines, why: Literal["rotated", "removed"], indexes: array[int]
) -> MissingTurns:
    first = tuple(log.turn(index) for index in indexes[:_MAX_NAMED])
    return MissingTurns(log.log, why, len(indexes), first)


def _read_log(log: str, progress: Progress) -> dict[tuple[str, int], _LoggedLines]:
    """Return the lines that a log records, by agent and worker."""
    lines: dict[tuple[str, int], _LoggedLines] = {}
    for event in read_events(log, progress, SkippedInput()):
        digest = event.text("history_hash")
        is_line = event.ends_turn and _HASH.fullmatch(digest) is not None
        is_unwritten = event.kind == "error" and event.text("error") == "history_not_written"
        if not (is_line or is_unwritten) or not is_agent_id(event.agent):
            continue

        key = (event.agent, event.worker)
        if key not in lines:
            if len(lines) >= _MAX_AGENTS:
                continue
            lines[key] = _LoggedLines(log, event.agent, event.worker, event.at or 0.0)

        if is_line:
            lines[key].add(event, digest)
        else:
            lines[key].add_unwritten(event)

    return lines
