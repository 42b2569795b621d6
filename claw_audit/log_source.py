r"""Events and turns from the proxy's output.

The output may be kept in any of these forms:

    {"ts":…}                                    standard output
    {"log":"{\"ts\":…}\n","stream":…}           Docker's json-file, which splits long lines
    cllama-1  | {"ts":…}                        docker compose logs, kubectl logs --prefix
    2026-01-01T00:00:00Z {"ts":…}               docker logs --timestamps, or both prefixes

If a prefix names a container, only the lines of ``cllama`` count, since an agent's container may
print anything. Lines without a JSON object are mitmproxy's own, and no events.

A turn that is in history is counted from there, with its calls and the interventions in its trace.
The events of a turn's calls come before the event that ends it. A turn that failed may be resumed:
its attempts count as one turn.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from claw_audit.bounded_counter import HashSet, hash_names
from claw_audit.report import SkippedInput
from claw_audit.sources import LINE_TOO_LONG, MAX_LINE_BYTES, Progress, open_log, read_lines
from claw_audit.turns import (
    RecordedCall,
    Turn,
    UnreadableLineError,
    Usage,
    decode_line,
    outcome_of,
    parse_time,
    short_text,
    to_count,
    usage_of_attempt,
)
from claw_contract.interventions import CALL_INTERVENTIONS, ROUND_INTERVENTIONS

_COLOUR: Final = re.compile(rb"\x1b\[[0-9;]*m")
_PREFIX: Final = re.compile(
    rb"\s*(?:(?P<compose>[A-Za-z0-9][\w.-]*?)(?:[-_][0-9]+)?\s+\||\[pod/[\w.-]+/(?P<kubectl>[\w.-]+)\])?"
    rb"\s*(?:[0-9]{4}-[0-9]{2}-[0-9]{2}T\S{1,40}\s+)?"
)
_MAX_PREFIX: Final = 400
_PART_OVERHEAD: Final = (
    100  # bytes of memory that each part of a line takes in addition to its text
)
_PROXY: Final = b"cllama"  # name of the proxy's service in compiled output
_MAX_OPEN_TURNS: Final = 10_000
_MAX_CALLS: Final = 10_000  # calls of one turn
_OF_TURN: Final = frozenset({"request", "tool_call", "resume"})
"""The events of a turn before the one that ends it."""
_TRACED: Final = frozenset({*ROUND_INTERVENTIONS.values(), *CALL_INTERVENTIONS.values()})
"""The interventions that the trace of a turn shows."""


class LoggedEvent:
    """One event of a log. Any process may have written it, so its members may be any JSON."""

    __slots__ = ("_members", "agent", "kind", "turn_id")

    def __init__(self, members: dict[str, Any]) -> None:
        self._members = members
        self.kind = self.text("type")
        self.agent = self.text("claw_id")
        self.turn_id = self.text("turn_id")

    def text(self, name: str) -> str:
        """Return a text, cut to the length of a name; "" for any other type."""
        return short_text(self._members.get(name))

    def _count(self, name: str) -> int:
        return to_count(self._members.get(name))

    @property
    def worker(self) -> int:
        """The number of the process that wrote it; 1 if the proxy has only one."""
        return self._count("worker") or 1

    @property
    def at(self) -> float | None:
        return parse_time(self.text("ts"))

    @property
    def ends_turn(self) -> bool:
        """True for a response, and for an error that counts its model calls."""
        return self.kind == "response" or (
            self.kind == "error" and type(self._members.get("total_rounds")) is int
        )

    @property
    def ttft_ms(self) -> int | None:
        """The time to the first content of the live turn that it ends; None for any other."""
        is_told = self.ends_turn and self._members.get("ttft_ms") is not None
        return self._count("ttft_ms") if is_told else None

    @property
    def begins_file(self) -> bool:
        """True if its line of history is the first one of a new file."""
        return self._members.get("history_rotated") is True

    def call(self) -> RecordedCall:
        """Return the managed call that the event reports."""
        is_ok = self._members.get("status") == "ok"
        code = self.text("code")
        ran = self._members.get("ran")
        return RecordedCall(
            ts=self.text("ts"),
            agent=self.agent,
            turn_id=self.turn_id,
            round=self._count("round"),
            tool=self.text("name"),
            service=self.text("service"),
            status="ok" if is_ok else "error",
            code="" if is_ok else code or "error",
            status_code=self._count("status_code") or None,
            latency_ms=self._count("latency_ms"),
            effect=self.text("effect"),
            ran=ran if isinstance(ran, bool) else None,
            duplicate=code == "duplicate_tool_call",
            model=self.text("model"),
            source="log",
        )

    def turn(self) -> Turn:
        """Return the turn that the event begins or ends, without its calls and its usage."""
        status = self._count("status_code")
        outcome, code = outcome_of(
            ok=self.kind == "response", status_code=status, code=self.text("error")
        )
        if self.kind == "request":
            outcome, code = "unfinished", ""

        has_latency = self._members.get("latency_ms") is not None
        return Turn(
            source="log",
            agent=self.agent,
            turn_id=self.turn_id,
            ts=self.text("ts"),
            at=self.at,
            outcome=outcome,
            code=code,
            status_code=status,
            latency_ms=self._count("latency_ms") if has_latency else None,
            model=self.text("model"),
            digest=self.text("digest"),
        )

    def usage(self) -> Usage:
        """Return the usage of the attempt that the event ends."""
        return usage_of_attempt(
            self._members.get("tokens_in"),
            self._members.get("tokens_out"),
            self._members.get("cached_tokens"),
            self._members.get("cost_usd"),
            self._members.get("estimated_cost_usd"),
        )


_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


def read_events(name: str, progress: Progress, skipped: SkippedInput) -> Iterator[LoggedEvent]:
    """Yield the events of a log, and add all other lines to ``skipped``. Raise ``SourceError``."""
    parser = LogParser(MAX_LINE_BYTES)
    with open_log(name, progress) as blocks:
        for line in read_lines(blocks):
            try:
                event = parser.parse(line.data)
            except UnreadableLineError as error:
                skipped.add_line(name, line.number, line.offset, error)
                continue

            if event is None:
                skipped.foreign += 1
            else:
                yield event


class LogParser:
    """Parser of one log's lines. It keeps state only for lines that Docker has split."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._parts: dict[str, tuple[int, list[str]]] = {}
        """Size and parts of an unfinished line, for each of at most two streams."""

    def parse(self, line: bytes | None) -> LoggedEvent | None:
        """Return the event of a line; None if it is no event of the proxy.

        Raise ``UnreadableLineError``, also for None, which stands for a line that is too long.
        """
        if line is None:
            raise UnreadableLineError(LINE_TOO_LONG)

        document = _without_prefix(line)
        if document is None:
            return None

        members = decode_line(_OBJECT, document)
        part = members.get("log")
        if isinstance(part, str) and members.get("type") is None:  # Docker's json-file
            joined = self._join(part, short_text(members.get("stream")))
            if joined is None or not joined.lstrip().startswith("{"):
                return None
            members = decode_line(_OBJECT, joined.encode(errors="replace"))

        is_event = isinstance(members.get("type"), str) and isinstance(members.get("ts"), str)
        return LoggedEvent(members) if is_event else None

    def _join(self, part: str, stream: str) -> str | None:
        """Return the line that this part ends, or None if more parts follow."""
        size, parts = self._parts.pop(stream, (0, []))
        if size + len(part) > self._max_line_bytes:
            raise UnreadableLineError(LINE_TOO_LONG)

        parts.append(part)
        if part.endswith("\n"):
            return "".join(parts)

        # Docker knows stdout and stderr. A hostile log may name any number of streams: one other
        # is kept.
        one_other = dict(list(self._parts.items())[:1])
        self._parts = {**one_other, stream: (size + len(part) + _PART_OVERHEAD, parts)}
        return None


def _without_prefix(line: bytes) -> bytes | None:
    """Return the JSON of a line that the proxy wrote, or None."""
    if line.startswith(b"{"):
        return line

    start = line.find(b"{", 0, _MAX_PREFIX)
    if start < 0:
        return None

    prefix = _PREFIX.fullmatch(_COLOUR.sub(b"", line[:start]))
    if prefix is None:
        return None

    container = prefix["compose"] or prefix["kubectl"]  # None if only a time was before it
    if container not in (None, _PROXY):
        return None
    return line[start:]


@dataclass(slots=True)
class _OpenTurn:
    """A turn that may continue: it has not ended, or it failed and may be resumed."""

    turn: Turn | None = None
    """The turn from the event that ends it, else from the one that begins it; None without both."""
    calls: list[RecordedCall] = field(default_factory=list)
    used: Usage = field(default_factory=Usage)
    resumed: bool = False

    def close(self) -> Iterator[Turn]:
        """Yield the turn with its calls and its usage; nothing if only its calls were logged."""
        if self.turn is None:
            return

        for call in self.calls:
            call.ts = self.turn.ts
            call.model = self.turn.model
        self.turn.calls = tuple(self.calls)
        self.turn.used = self.used
        self.turn.resumed = self.resumed
        yield self.turn


class TurnAssembler:
    """Makes turns of the events of a log, but not of turns that are in history."""

    def __init__(self, in_history: HashSet) -> None:
        """``in_history``: the hashes of (agent, turn id)."""
        self._in_history = in_history
        self._open: OrderedDict[tuple[str, str], _OpenTurn] = OrderedDict()

    def add(self, event: LoggedEvent) -> Iterator[Turn]:
        """Add an event, and yield the turns that are over with it."""
        is_of_turn = event.ends_turn or event.kind in _OF_TURN
        key = (event.agent, event.turn_id)
        if not is_of_turn or not event.turn_id or hash_names(*key) in self._in_history:
            return

        open_turn = self._open.setdefault(key, _OpenTurn())
        if event.ends_turn:
            open_turn.turn = event.turn()
            open_turn.used.add(event.usage())
        elif event.kind == "request":
            # A turn that failed, and is attempted again, has failed until that attempt ends.
            open_turn.turn = open_turn.turn or event.turn()
        elif event.kind == "resume":
            open_turn.resumed = True
        elif len(open_turn.calls) < _MAX_CALLS:
            open_turn.calls.append(event.call())

        if event.kind == "response":
            yield from self._open.pop(key).close()
        elif len(self._open) > _MAX_OPEN_TURNS:  # the oldest one will hardly continue
            yield from self._open.popitem(last=False)[1].close()

    def remaining(self) -> Iterator[Turn]:
        """Yield the turns that failed and were not resumed, and those without an end."""
        for open_turn in self._open.values():
            yield from open_turn.close()


def is_traced(name: str) -> bool:
    """Return True for an intervention that the trace of a turn in history has, too."""
    return name.partition(":")[0] in _TRACED


def interventions(turn: Turn) -> Iterator[str]:
    """Yield the interventions that a turn's calls show, each once a round."""
    seen: set[tuple[int, str]] = set()
    for call in turn.calls:
        name = ROUND_INTERVENTIONS.get(call.code, "")
        if not name and call.code in CALL_INTERVENTIONS:
            name = f"{CALL_INTERVENTIONS[call.code]}:{call.tool}"

        if name and (call.round, name) not in seen:
            seen.add((call.round, name))
            yield name
