"""A line of history → a turn. Hostile until parsed; what is not needed of it is passed over unread."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from claw_audit.lines import LINE_LIMIT
from claw_audit.turns import Call, Tokens, Turn, ended, moment, short

_MOST = 10**12
"""No count of ours is as large; and their sums still fit everywhere."""


TOO_LONG = f"is longer than {LINE_LIMIT >> 20} MiB"
_OTHER_VERSION = "is of another version"


class UnreadableError(ValueError):
    """Why a line can't be read, without any of its text."""


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


class _Entry(msgspec.Struct, gc=False):
    version: int
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


class _Version(msgspec.Struct):
    version: Any = None


_DECODER = msgspec.json.Decoder(_Entry)
_VERSION = msgspec.json.Decoder(_Version)


def turn_of(line: bytes, agent: str) -> Turn:
    """The turn that a line tells of. Raises ``UnreadableError``."""
    try:
        entry = _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise UnreadableError(_why(line, error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UnreadableError("is no JSON") from None
    except RecursionError:
        raise UnreadableError("is nested too deeply") from None
    if entry.version != 1:
        raise UnreadableError(_OTHER_VERSION)
    if not (turn_id := entry.turn_id or entry.id):
        raise UnreadableError("names no turn")
    ok = entry.status == "ok"
    outcome, code = ended(ok=ok, status_code=entry.status_code, code=entry.error or "")
    provider = f"{entry.effective_provider}/" if entry.effective_provider else ""
    usage = entry.usage
    return Turn(
        source="history",
        agent=agent,
        turn_id=short(turn_id),
        ts=short(entry.ts),
        at=moment(entry.ts),
        outcome=outcome,
        code=code,
        status_code=entry.status_code,
        latency_ms=None if entry.latency_ms is None else counted(entry.latency_ms),
        model=short(f"{provider}{entry.effective_model}" if entry.effective_model else entry.requested_model),
        tokens=Tokens(
            counted(usage.prompt_tokens),
            counted(usage.completion_tokens),
            counted(usage.cached_tokens),
            priced(usage.reported_cost_usd),
        ),
        resumed=entry.resumed,
        digest=entry.digest or "",
        offered=tuple(map(short, entry.tools_offered)),
        withheld=tuple((short(tool.name), short(tool.reason)) for tool in entry.tools_withheld),
        calls=tuple(_call(call, past.round) for past in entry.tool_trace for call in past.tool_calls),
    )


def _call(call: _Call, number: int) -> Call:
    ok, error = call.status == "ok", call.result.error
    code = error.get("code") if isinstance(error, dict) else None
    return Call(
        tool=short(call.name),
        service=short(call.service),
        round=number,
        ok=ok,
        code="" if ok else short(code) if isinstance(code, str) else "error",
        status_code=call.status_code,
        latency_ms=counted(call.latency_ms),
        effect=short(call.effect or ""),
        ran=call.ran,
        duplicate=call.duplicate,
    )


def counted(number: object) -> int:
    """A count that somebody tells of: a whole number from 0 on."""
    return min(max(number, 0), _MOST) if type(number) is int else 0


def priced(cost: object) -> float | None:
    """A cost that somebody tells of."""
    if isinstance(cost, bool) or not isinstance(cost, int | float) or cost < 0:
        return None
    return float(min(cost, _MOST))


def _why(line: bytes, error: msgspec.ValidationError) -> str:
    """The decoder's own words hold names of members, and of types, but for the path."""
    with suppress(msgspec.ValidationError):
        if type(version := _VERSION.decode(line).version) is int and version != 1:
            return _OTHER_VERSION
    text, _, path = str(error).partition(" - at ")
    if "missing required field" in text:
        return f"lacks {text.rpartition(' ')[2]}"
    where = "".join(sign for sign in path if sign.isalnum() or sign in "_.$[]")[:80]
    return f"is not of the form: {where or 'the whole of it'}"
