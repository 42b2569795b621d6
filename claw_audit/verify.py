"""The hash chain of an agent's files, walked from the first byte to the last (``claw_contract.chain`` has its rule).

| found | it is |
|---|---|
| a line whose hash is not of its bytes | edited: broken |
| a line that goes on behind another than the one before it | removed, put in, moved, or there twice: broken |
| a line of no seal | put in, or edited at its end: broken; the beginning of a line, with nothing behind it: torn, by a crash |
| the older file goes on behind what is not there any more | rotated away: no break |
| the newer one does, and there is no older one | removed: broken |
| a line of zero bytes, or with such an end | a disk that lost power: torn |

Rules. The first break is named, by file, line and byte. What can't be told without a log (``claw_audit.chains``): lines that
were cut off at a line's end, and at the beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from claw_audit.bounded import Marks
from claw_audit.lines import LINE_LIMIT, pieces
from claw_audit.sources import NEWER, OLDER, AgentHistory, Source, SourceError
from claw_contract.chain import GENESIS, Seal, SealReader

type Kind = Literal["broken", "note"]
_HEAD = 512
"""Bytes of a line in which its agent stands."""
_AGENT = re.compile(rb'"claw_id":"([^"\\]{0,80})"')
_NUMBER = b"+-.0123456789eE"
"""What a number that may go on is of."""
_MOST_NOTES = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, or worth to be known, and where. ``line`` is 0 where it is of a whole file."""

    kind: Kind
    file: str
    line: int
    offset: int
    what: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one agent's chain in one directory. ``findings`` begins with the first break, where there is one."""

    agent: str
    directory: str
    lines: int
    broken: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    """One line, as far as the chain goes."""

    number: int
    offset: int
    seal: Seal | None
    head: bytes
    torn: bool
    """Without a seal: whether it is the beginning of a line."""
    ended: bool


class Walk:
    """One agent's files, the older one first. ``met``: is told of every line."""

    def __init__(self, history: AgentHistory, met: Marks) -> None:
        self._history = history
        self._met = met
        self._last: str | None = None
        """The hash of the last sealed line."""
        self._lines = 0
        self.first: int | None = None
        """The first line."""
        self._torn: tuple[Source, _Line] | None = None
        """A torn line with an end, which another one should be behind."""
        self._breaks: list[Finding] = []
        self._broken = 0
        self._notes: list[Finding] = []

    def verdict(self) -> Verdict:
        for file in self._history.files:
            self._walk(file)
        names = [file.name for file in self._history.files]
        if names and not any(name.endswith(NEWER) for name in names):
            self._notes.append(Finding("note", names[0], 0, 0, f"is all there is: {NEWER} is missing"))
        findings = (*self._breaks, *self._notes)
        return Verdict(self._history.agent, str(self._history.directory), self._lines, self._broken, findings)

    def _walk(self, file: Source) -> None:
        try:
            for line in _lines(file):
                self._torn = None
                self._line(file, line)
            if self._torn is not None:
                self._break(*self._torn, "ends with a part of a line: the rest of it was removed")
        except SourceError as error:
            self._break(file, None, str(error).rpartition(": ")[2])

    def _line(self, file: Source, line: _Line) -> None:
        seal = line.seal
        if seal is None:
            self._unsealed(file, line)
            return
        self._lines += 1
        if self.first is None:
            self.first = mark(seal.hash)
        self._met.add(mark(seal.hash))
        if not seal.is_intact:
            self._break(file, line, "was edited: its hash is not of its bytes")
        elif (strange := _AGENT.search(line.head)) and strange[1].decode(errors="replace") != self._history.agent:
            self._break(file, line, "is a line of another agent")
        elif self._last is None:
            self._first(file, line, seal)
        elif seal.prev != self._last:
            self._break(file, line, _strange_link(seal, self._last))
        self._last = seal.hash

    def _first(self, file: Source, line: _Line, seal: Seal) -> None:
        if seal.prev == GENESIS:
            return
        if file.name.endswith(OLDER):
            self._note(file, line, "goes on behind lines that were rotated away")
        else:
            self._break(
                file, line, f"goes on behind a line that is not there: {OLDER} is missing, or lines were removed"
            )

    def _unsealed(self, file: Source, line: _Line) -> None:
        if not line.torn:
            self._break(file, line, "has no seal: it was edited at its end, or put in")
        elif line.ended:
            self._torn = file, line
            self._note(file, line, "is no more than the beginning of a line: its writer crashed, or the disk was full")
        else:
            self._note(
                file, line, "is no more than the beginning of a line: it is being written, or its writer crashed"
            )

    def _break(self, file: Source, line: _Line | None, what: str) -> None:
        self._broken += 1
        if not self._breaks:
            self._breaks.append(_found("broken", file, line, what))

    def _note(self, file: Source, line: _Line, what: str) -> None:
        if len(self._notes) < _MOST_NOTES:
            self._notes.append(_found("note", file, line, what))


def mark(digest: str) -> int:
    """What is kept of a line's hash."""
    return int(digest[:16], 16)


def _found(kind: Kind, file: Source, line: _Line | None, what: str) -> Finding:
    return Finding(kind, file.name, line.number if line else 0, line.offset if line else 0, what)


def _strange_link(seal: Seal, last: str) -> str:
    if seal.hash == last:
        return "is the line before it once more"
    if seal.prev == GENESIS:
        return "begins a new chain: what was before it was removed, or it was put in"
    return "does not go on behind the line before it: lines were removed, put in, or moved"


def _lines(file: Source) -> Iterator[_Line]:
    number, offset, size = 1, 0, 0
    reading, held = SealReader(), bytearray()
    for piece in pieces(file.reading()):
        reading.add(piece)
        size += len(piece)
        if len(held) < LINE_LIMIT:
            held += piece
        if piece.endswith(b"\n"):
            yield _line(number, offset, reading, held)
            number, offset, size = number + 1, offset + size, 0
            reading, held = SealReader(), bytearray()
    if size:
        reading.add(b"\n")  # a line that lacks its line break only is all there
        yield _line(number, offset, reading, held)


def _line(number: int, offset: int, reading: SealReader, held: bytearray) -> _Line:
    seal = reading.seal()
    torn = seal is None and _is_torn(held)
    return _Line(number, offset, seal, bytes(held[:_HEAD]), torn, held.endswith(b"\n"))


def _is_torn(held: bytearray) -> bool:
    """Whether it is the beginning of a JSON object and no more, or nothing. What is complete was not torn.

    Where power was lost, zeros may stand for what did not reach the disk.
    """
    if len(held) >= LINE_LIMIT:
        return False
    text = bytes(held.removesuffix(b"\n").rstrip(b"\0"))
    if not text.startswith(b"{"):
        return not text and held.startswith(b"\0")
    return _is_begun(text) or _is_begun(text.rstrip(_NUMBER) + b"1")


def _is_begun(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except RecursionError:
        return False
    return False
