r"""A line of the proxy's output → an event of the log, from wherever the output was kept.

    {"ts":…}                                    as the proxy writes it
    {"log":"{\"ts\":…}\n","stream":…}           Docker's json-file; long lines come in parts
    cllama-1  | {"ts":…}                        docker compose logs, also with --timestamps; kubectl logs --prefix
    2026-01-01T00:00:00Z {"ts":…}               docker logs --timestamps, kubectl logs --timestamps

Rules. Where lines are prefixed with who wrote them, only those of ``cllama`` count: what an agent's container prints is its
own word. Lines that are no JSON object are mitmproxy's, and none of ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from claw_audit.entries import TOO_LONG, UnreadableError, counted, priced
from claw_audit.turns import Call, Tokens, Turn, ended, moment, short

_COLOUR: Final = re.compile(rb"\x1b\[[0-9;]*m")
_COMPOSE: Final = re.compile(rb"\s*(?P<who>[A-Za-z0-9][\w.-]*?)(?:[-_][0-9]+)?\s+\|(?:\s+(?P<at>\S+))?\s*")
_KUBECTL: Final = re.compile(rb"\[pod/[\w.-]+/(?P<who>[\w.-]+)\]\s*(?:(?P<at>\S+)\s*)?")
_TIMESTAMP: Final = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T\S{1,40}\s+")
_PART: Final = 100
"""Bytes that it takes to hold a part, however little is in it."""
_OURS: Final = b"cllama"
"""The proxy's service, as it is compiled."""


class _Line(msgspec.Struct, gc=False):
    """Members of every event that audit asks for; what they are is looked at when they are."""

    type: Any = None
    ts: Any = None
    log: Any = None
    stream: Any = None
    claw_id: Any = None
    turn_id: Any = None
    model: Any = None
    intervention: Any = None
    name: Any = None
    service: Any = None
    round: Any = None
    status: Any = None
    code: Any = None
    status_code: Any = None
    latency_ms: Any = None
    effect: Any = None
    ran: Any = None
    tokens_in: Any = None
    tokens_out: Any = None
    cached_tokens: Any = None
    cost_usd: Any = None
    total_rounds: Any = None
    digest: Any = None
    error: Any = None
    history_hash: Any = None
    history_rotated: Any = None


_DECODER = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``line`` is read as the event's type asks."""

    kind: str
    agent: str
    turn_id: str
    at: float | None
    line: _Line

    @property
    def ends_a_turn(self) -> bool:
        """An error ends one where it counts its model calls."""
        return self.kind == "response" or (self.kind == "error" and type(self.line.total_rounds) is int)

    @property
    def intervention(self) -> str:
        return _text(self.line.intervention) or "unnamed"

    @property
    def error(self) -> str:
        return _text(self.line.error) or "unnamed"

    @property
    def history_hash(self) -> str:
        return _text(self.line.history_hash)

    @property
    def history_rotated(self) -> bool:
        return self.line.history_rotated is True

    def call(self) -> Call:
        """The call that it tells of."""
        line, ok = self.line, self.line.status == "ok"
        return Call(
            tool=_text(line.name),
            service=_text(line.service),
            round=counted(line.round),
            ok=ok,
            code="" if ok else _text(line.code) or "error",
            status_code=counted(line.status_code) or None,
            latency_ms=counted(line.latency_ms),
            effect=_text(line.effect),
            ran=line.ran if isinstance(line.ran, bool) else None,
            duplicate=line.code == "duplicate_tool_call",
        )

    def turn(self, calls: tuple[Call, ...], *, resumed: bool) -> Turn:
        """The turn that it ends."""
        line = self.line
        status = counted(line.status_code)
        outcome, code = ended(ok=self.kind == "response", status_code=status, code=_text(line.error))
        return Turn(
            source="log",
            agent=self.agent,
            turn_id=self.turn_id,
            ts=_text(line.ts),
            at=self.at,
            outcome=outcome,
            code=code,
            status_code=status,
            latency_ms=counted(line.latency_ms) if line.latency_ms is not None else None,
            model=_text(line.model),
            tokens=Tokens(
                counted(line.tokens_in), counted(line.tokens_out), counted(line.cached_tokens), priced(line.cost_usd)
            ),
            resumed=resumed,
            digest=_text(line.digest),
            calls=calls,
        )


class LogReader:
    """Reads one log's lines, each by itself but for those that Docker has cut in parts."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: dict[str, tuple[int, list[str]]] = {}
        """By stream: how much there is, and what; of two streams at most."""

    def event(self, line: bytes | None) -> Event | None:
        """The event of a line; None where it has none. Raises ``UnreadableError``, also for a line that can't be held."""
        if line is None:
            raise UnreadableError(TOO_LONG)
        document = _document(line)
        if document is None:
            return None
        found = _decoded(document)
        if isinstance(found.log, str) and found.type is None:
            whole = self._joined(found.log, _text(found.stream))
            if whole is None or not whole.lstrip().startswith("{"):
                return None
            found = _decoded(whole.encode(errors="replace"))
        if not isinstance(found.type, str) or not isinstance(found.ts, str):
            return None  # some other program's JSON
        return Event(found.type, _text(found.claw_id), _text(found.turn_id), moment(found.ts), found)

    def _joined(self, part: str, stream: str) -> str | None:
        """The line that this part ends; None where it does not end one."""
        size, parts = self._parts.pop(stream, (0, []))
        if size + len(part) > self._limit:
            raise UnreadableError(TOO_LONG)
        parts.append(part)
        if part.endswith("\n"):
            return "".join(parts)
        self._parts = {**dict(list(self._parts.items())[:1]), stream: (size + len(part) + _PART, parts)}
        return None


def _document(line: bytes) -> bytes | None:
    """What of a line is JSON, if any of it, and if the proxy wrote it."""
    if line.startswith(b"{"):
        return line
    start = line.find(b"{", 0, 400)
    if start < 0:
        return None
    before = _COLOUR.sub(b"", line[:start])
    named = _COMPOSE.fullmatch(before) or _KUBECTL.fullmatch(before)
    if named is not None:
        return line[start:] if named["who"] == _OURS else None
    return line[start:] if not before.strip() or _TIMESTAMP.fullmatch(before) else None


def _decoded(document: bytes) -> _Line:
    try:
        return _DECODER.decode(document)
    except msgspec.ValidationError:
        raise UnreadableError("is not of the form of an event") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UnreadableError("is no JSON") from None
    except RecursionError:
        raise UnreadableError("is nested too deeply") from None


def _text(value: object) -> str:
    return short(value) if isinstance(value, str) else ""
