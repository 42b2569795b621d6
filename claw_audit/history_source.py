"""Turns from history files.

A turn that was resumed has a line for each attempt. Every line after the first repeats the whole
trace, so the last attempt is the turn, and only the usage of the others counts. Therefore history
is read twice; the first pass only looks for lines of resumed attempts. Lines are untrusted until
they are decoded, and members that are not needed are skipped without decoding.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from claw_audit.bounded_counter import LatestItems
from claw_audit.report import SkippedInput
from claw_audit.sources import (
    LINE_TOO_LONG,
    HistoryFile,
    Line,
    Progress,
    SourceError,
    agent_directories,
    ignore,
    open_history,
    read_lines,
)
from claw_audit.turns import (
    RecordedCall,
    Turn,
    UnreadableLineError,
    decode_line,
    has_id_prefix,
    outcome_of,
    parse_time,
    short_text,
    to_count,
    usage_of_attempt,
)
from claw_contract.history import decode_recorded
from claw_contract.transcript.render import render_headline

_RESUMED = b'"resumed":true'
type _Place = tuple[float, int, int]
"""(time, number of the file, offset) of a line: that of a later attempt is greater."""
_MAX_TURNS = 10  # turns of one prefix that are named
_MAX_EARLIER = 100  # earlier attempts that are named


class _Result(msgspec.Struct, gc=False):
    error: Any = None


class _Call(msgspec.Struct, gc=False):
    name: str
    service: str = ""
    status: str = ""
    status_code: int | None = None
    latency_ms: int = 0
    duplicate: bool = False
    effect: str | None = None
    ran: bool | None = None
    result: _Result = msgspec.field(default_factory=_Result)


class _Round(msgspec.Struct, gc=False):
    round: int = 0
    tool_calls: list[_Call] = []


class _Withheld(msgspec.Struct, gc=False):
    name: str
    reason: str = ""


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reported_cost_usd: float | None = None
    estimated_cost_usd: float | None = None


class _Entry(msgspec.Struct, gc=False):
    version: Literal[1]
    status: str
    ts: str
    turn_id: str = ""
    id: str = ""
    digest: str | None = None
    status_code: int = 0
    latency_ms: int | None = None
    error: str | None = None
    requested_model: str = ""
    effective_provider: str = ""
    effective_model: str = ""
    resumed: bool = False
    tools_offered: list[str] = []
    tools_withheld: list[_Withheld] = []
    usage: _Usage = msgspec.field(default_factory=_Usage)
    tool_trace: list[_Round] = []


_ENTRY = msgspec.json.Decoder(_Entry)


def read_turns(
    agent: str, files: Sequence[HistoryFile], skipped: SkippedInput
) -> Iterator[tuple[Turn, bool]]:
    """Yield every attempt at a turn, each with True if it is the last one."""
    last = _last_attempts(agent, files)
    for number, file in enumerate(files):
        for line, data in _read_lines(file, skipped):
            try:
                turn = decode_turn(data, agent)
            except UnreadableLineError as error:
                # The proxy may still be writing the last line of its newest file.
                is_complete = file.is_rotated or data.endswith(b"\n")
                if is_complete:
                    skipped.add_line(str(file.path), line.number, line.offset, error)
                continue

            place = (turn.at or 0.0, number, line.offset)
            yield turn, last.get(turn.turn_id, place) == place


def _last_attempts(agent: str, files: Sequence[HistoryFile]) -> dict[str, _Place]:
    """Return the place of the last attempt of each turn that was resumed, by turn id."""
    last: dict[str, _Place] = {}
    for number, file in enumerate(files):
        for line, data in _read_lines(file, SkippedInput()):
            if _RESUMED not in data:  # most lines are not decoded
                continue

            try:
                turn = decode_turn(data, agent)
            except UnreadableLineError:  # the second pass reports it
                continue

            place = (turn.at or 0.0, number, line.offset)
            if turn.resumed:
                last[turn.turn_id] = max(place, last.get(turn.turn_id, place))
    return last


def _read_lines(file: HistoryFile, skipped: SkippedInput) -> Iterator[tuple[Line, bytes]]:
    try:
        for line in read_lines(file.blocks()):
            if line.data is not None and line.data.strip():
                yield line, line.data
            else:
                reason = LINE_TOO_LONG if line.data is None else "is empty"
                skipped.add_line(str(file.path), line.number, line.offset, reason)
    except SourceError as error:
        skipped.add_file(error)


def decode_turn(line: bytes, agent: str) -> Turn:
    """Return the turn of a line of history. Raise ``UnreadableLineError``."""
    entry = decode_line(_ENTRY, line)
    turn_id = entry.turn_id or entry.id
    if not turn_id:
        raise UnreadableLineError("has no turn id")

    outcome, code = outcome_of(
        ok=entry.status == "ok", status_code=entry.status_code, code=entry.error
    )

    model = entry.effective_model or entry.requested_model
    if entry.effective_model and entry.effective_provider:
        model = f"{entry.effective_provider}/{model}"

    usage = entry.usage
    used = usage_of_attempt(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        usage.reported_cost_usd,
        usage.estimated_cost_usd,
    )
    withheld = [(short_text(tool.name), short_text(tool.reason)) for tool in entry.tools_withheld]
    turn = Turn(
        source="history",
        agent=agent,
        turn_id=short_text(turn_id),
        ts=short_text(entry.ts),
        at=parse_time(entry.ts),
        outcome=outcome,
        code=code,
        status_code=entry.status_code,
        latency_ms=None if entry.latency_ms is None else to_count(entry.latency_ms),
        model=short_text(model),
        used=used,
        resumed=entry.resumed,
        digest=entry.digest or "",
        offered=tuple(map(short_text, entry.tools_offered)),
        withheld=tuple(withheld),
    )

    calls: list[RecordedCall] = []
    for trace in entry.tool_trace:
        calls += [_call(call, trace.round, turn) for call in trace.tool_calls]
    turn.calls = tuple(calls)
    return turn


def _call(call: _Call, round_number: int, turn: Turn) -> RecordedCall:
    is_ok = call.status == "ok"
    error = call.result.error
    code = error.get("code") if isinstance(error, dict) else None
    return RecordedCall(
        ts=turn.ts,
        agent=turn.agent,
        turn_id=turn.turn_id,
        round=round_number,
        tool=short_text(call.name),
        service=short_text(call.service),
        status="ok" if is_ok else "error",
        code="" if is_ok else short_text(code) or "error",
        status_code=call.status_code,
        latency_ms=to_count(call.latency_ms),
        effect=short_text(call.effect),
        ran=call.ran,
        duplicate=call.duplicate,
        model=turn.model,
        source="history",
    )


class Attempts:
    """All attempts at one turn, by time. Of long lines, only the last is held in memory."""

    def __init__(self) -> None:
        self.count = 0
        self.last: Any = None
        """The line of the last attempt, as JSON data."""
        self._last_at = 0.0
        self._headlines: LatestItems[str] = LatestItems(_MAX_EARLIER + 1)

    def add(self, at: float, entry: Any) -> None:
        """Add an attempt. Of two at the same time, the one that is added later is the later one."""
        self.count += 1
        self._headlines.add(at, render_headline(entry))
        if at >= self._last_at:
            self.last = entry
            self._last_at = at

    def earlier(self) -> list[str]:
        """Return a headline for each attempt before the last; of very many, the latest."""
        return list(self._headlines)[:-1]


@dataclass
class Lookup:
    """Turns by id, and problems with files, one line each."""

    turns: dict[str, Attempts] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def find_turns(
    histories: tuple[Path, ...], prefix: str, agent: str = "", progress: Progress = ignore
) -> Lookup:
    """Return the turns whose id begins with the prefix.

    Raise ``SourceError`` for an unreadable directory.
    """
    lookup = Lookup()
    for name, directories in agent_directories(histories).items():
        if agent not in ("", name):
            continue

        for directory in directories:
            try:
                _search(directory, name, prefix, lookup, progress)
            except SourceError as error:
                lookup.problems.append(str(error))
    return lookup


def _search(directory: Path, agent: str, prefix: str, lookup: Lookup, progress: Progress) -> None:
    needle = prefix.encode(errors="surrogateescape")
    with open_history(directory, progress) as files:
        for file in files:
            for line in read_lines(file.blocks()):
                # Most lines belong to other turns and are not decoded.
                if line.data is None or needle not in line.data:
                    continue
                if len(lookup.turns) <= _MAX_TURNS:
                    _add_attempt(line.data, agent, prefix, lookup)


def _add_attempt(line: bytes, agent: str, prefix: str, lookup: Lookup) -> None:
    with suppress(ValueError, RecursionError):  # an unreadable line: ``claw audit`` counts those
        turn = decode_turn(line, agent)
        if has_id_prefix(turn.turn_id, prefix):
            attempts = lookup.turns.setdefault(turn.turn_id, Attempts())
            attempts.add(turn.at or 0.0, decode_recorded(line))
