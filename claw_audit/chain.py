"""Verification of the hash chain in one agent's files, from the first byte to the last (``claw_contract.chain`` has its rule).

| what is found | verdict |
|---|---|
| the hash of a line does not match its bytes | edited: broken |
| a line does not continue the line before it | removed, inserted, moved or repeated: broken |
| a line without a seal | inserted, or edited at its end: broken |
| the beginning of a line, and nothing after it; zero bytes at its end | torn by a crash or a power failure: a note |
| the rotated file continues a line that is gone | rotated away: a note |
| the current file does, and there is no rotated file | removed: broken |

The first break is named with file, line and byte. Whole lines that were cut off at the beginning or the end show only with a
log (``claw_audit.verify``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from claw_audit.bounded_counter import HashSet
from claw_audit.sources import CURRENT_FILE, MAX_LINE_BYTES, ROTATED_FILE, HistoryFile, SourceError, line_pieces
from claw_contract.chain import GENESIS, Reading, Seal

_HEAD_BYTES = 512
"""The part of a line that holds its agent."""
_AGENT = re.compile(rb'"claw_id":"([^"\\]{0,80})"')
_NUMBER = b"+-.0123456789eE"
_MAX_NOTES = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """A break, or a note, and its place. ``line`` is 0 for a finding about a whole file."""

    kind: Literal["broken", "note"]
    file: str
    line: int
    offset: int
    what: str


@dataclass(slots=True)
class Verdict:
    """The verdict on one agent's chain in one directory. ``findings``: the first of ``broken`` breaks, then notes."""

    agent: str
    directory: str
    lines: int = 0
    broken: int = 0
    findings: tuple[Finding, ...] = ()

    def add_break(self, file: object, line: int, offset: int, what: str) -> None:
        """Count a break and name it if it is the first."""
        self.broken += 1
        if self.broken == 1:
            self.findings = (Finding("broken", str(file), line, offset, what), *self.findings)

    def add_note(self, file: object, line: int, offset: int, what: str) -> None:
        """Add a note if there are not too many."""
        if len(self.findings) < _MAX_NOTES:
            self.findings = (*self.findings, Finding("note", str(file), line, offset, what))


@dataclass(slots=True)
class _Line:
    """One line as far as the chain needs it. ``is_torn``: it has no seal and is the beginning of a line."""

    file: Path
    number: int
    offset: int
    seal: Seal | None
    head: bytes
    is_torn: bool
    has_end: bool

    @property
    def place(self) -> tuple[Path, int, int]:
        return self.file, self.number, self.offset


@dataclass
class ChainWalk:
    """A walk along one agent's files. ``seen`` gets the hash of every line, and ``first`` is that of the first one."""

    agent: str
    directory: Path
    seen: HashSet
    first: int | None = None
    _last: str | None = None
    """Hash of the last sealed line."""
    _verdict: Verdict = field(init=False)

    def __post_init__(self) -> None:
        self._verdict = Verdict(self.agent, str(self.directory))

    def verify(self, files: Iterable[HistoryFile]) -> Verdict:
        """Return the verdict on the files, the rotated one first."""
        paths = []
        for file in files:
            paths.append(file.path)
            line: _Line | None = None
            try:
                for line in _read_lines(file):
                    self._check(line)
            except SourceError as error:
                self._verdict.add_break(file.path, 0, 0, str(error).rpartition(": ")[2])
            else:
                if line is not None and line.is_torn and line.has_end:
                    self._verdict.add_break(*line.place, "ends with a part of a line: the rest of it was removed")
        if paths and paths[-1].name != CURRENT_FILE:
            self._verdict.add_note(paths[0], 0, 0, f"is the only file: {CURRENT_FILE} is missing")
        return self._verdict

    def _check(self, line: _Line) -> None:
        seal = line.seal
        if seal is None:
            self._check_unsealed(line)
            return
        self._verdict.lines += 1
        self.first = hash_prefix(seal.hash) if self.first is None else self.first
        self.seen.add(hash_prefix(seal.hash))
        agent = _AGENT.search(line.head)
        if not seal.holds:
            self._verdict.add_break(*line.place, "was edited: its hash does not match its bytes")
        elif agent is not None and agent[1].decode(errors="replace") != self.agent:
            self._verdict.add_break(*line.place, "is a line of another agent")
        elif self._last is not None and seal.prev != self._last:
            self._verdict.add_break(*line.place, _wrong_link(seal, self._last))
        elif self._last is None and seal.prev != GENESIS:
            self._check_beginning(line)
        self._last = seal.hash

    def _check_beginning(self, line: _Line) -> None:
        if line.file.name == ROTATED_FILE:
            self._verdict.add_note(*line.place, "continues lines that were rotated away")
        else:
            what = f"continues a line that is not there: {ROTATED_FILE} is missing, or lines were removed"
            self._verdict.add_break(*line.place, what)

    def _check_unsealed(self, line: _Line) -> None:
        if not line.is_torn:
            self._verdict.add_break(*line.place, "has no seal: it was edited at its end, or inserted")
        else:
            reason = "its writer crashed, or the disk was full" if line.has_end else "it is being written, or torn"
            self._verdict.add_note(*line.place, f"is only the beginning of a line: {reason}")


def hash_prefix(digest: str) -> int:
    """Return the first 64 bits of a line's hash, given in hexadecimal."""
    return int(digest[:16], 16)


def _wrong_link(seal: Seal, last: str) -> str:
    if seal.hash == last:
        return "repeats the line before it"
    if seal.prev == GENESIS:
        return "begins a new chain: the lines before it were removed, or it was inserted"
    return "does not continue the line before it: lines were removed, inserted or moved"


def _read_lines(file: HistoryFile) -> Iterator[_Line]:
    number, offset, size = 1, 0, 0
    reading, held = Reading(), bytearray()
    for piece in line_pieces(file.blocks()):
        reading.add(piece)
        size += len(piece)
        if len(held) < MAX_LINE_BYTES:
            held += piece
        if piece.endswith(b"\n"):
            yield _line(file, number, offset, reading, held)
            number, offset, size = number + 1, offset + size, 0
            reading, held = Reading(), bytearray()
    if size:
        reading.add(b"\n")  # a line that only lacks its line break is complete
        yield _line(file, number, offset, reading, held)


def _line(file: HistoryFile, number: int, offset: int, reading: Reading, held: bytearray) -> _Line:
    seal = reading.seal()
    is_torn = seal is None and _is_torn(held)
    return _Line(file.path, number, offset, seal, bytes(held[:_HEAD_BYTES]), is_torn, held.endswith(b"\n"))


def _is_torn(held: bytearray) -> bool:
    """Return True for the beginning of a JSON object, and for nothing but zero bytes.

    A complete object was not torn. After a power failure, zero bytes stand for data that did not reach the disk.
    """
    if len(held) >= MAX_LINE_BYTES:
        return False
    text = bytes(held.removesuffix(b"\n").rstrip(b"\0"))
    if not text.startswith(b"{"):
        return not text and held.startswith(b"\0")
    # A number may have been cut within: the rest of it would make the text valid.
    return _is_truncated(text) or _is_truncated(text.rstrip(_NUMBER) + b"1")


def _is_truncated(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except RecursionError:
        return False
    return False
