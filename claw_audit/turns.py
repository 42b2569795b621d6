"""Turns and managed calls, from either source.

They are msgspec structs, as there may be millions of them.
"""

from datetime import UTC, datetime
from typing import Literal

import msgspec

type Source = Literal["history", "log"]
type Outcome = Literal["ok", "failed", "aborted", "unfinished"]
"""``aborted``: the runner left. ``unfinished``: the turn has a beginning, and no end was logged."""

MAX_COUNT = 10**12  # No real count is larger, and sums of such counts still fit everywhere
_MAX_TIME = 250_000_000_000  # seconds; the year 9892. Later times could not be written down again
_MAX_NAME = 200
_STATUS_RUNNER_LEFT = 499


class UnreadableLineError(ValueError):
    """A line that can't be read. The message gives the reason and quotes no text of the line."""


class Call(msgspec.Struct):
    """One managed call with its turn. The members are the columns of the CSV, in order."""

    ts: str
    agent: str
    turn_id: str
    round: int
    tool: str
    service: str
    status: Literal["ok", "error"]
    code: str  # Error code; "" for a call that succeeded
    status_code: int | None
    latency_ms: int
    effect: str  # ``read``, ``write``, ``unknown``; "" if it is not recorded
    ran: bool | None  # True if its service was asked; None if it is not recorded
    duplicate: bool
    model: str
    source: Source


class Usage(msgspec.Struct):
    """Tokens, and US dollars.

    ``unpriced``: attempts that used tokens and whose cost is unknown.
    ``estimated_usd``: what budgets were charged by estimate, beside ``cost_usd``.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0
    estimated_usd: float = 0.0

    def add(self, other: "Usage") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.cost_usd = round(self.cost_usd, 10)  # 0.1 + 0.2 is 0.3
        self.estimated_usd = round(self.estimated_usd, 10)


def usage_of_attempt(
    tokens_in: object,
    tokens_out: object,
    cached_tokens: object,
    cost: object,
    estimated: object = None,
) -> Usage:
    """Return the usage of one attempt.

    A value that is not a number counts as 0 tokens, or as an unknown cost.
    """
    counts = to_count(tokens_in), to_count(tokens_out), to_count(cached_tokens)
    known, estimate = _dollars(cost), _dollars(estimated)
    unpriced = int(known is None and counts[0] + counts[1] > 0)
    return Usage(*counts, known or 0.0, unpriced, estimate or 0.0)


def _dollars(amount: object) -> float | None:
    if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
        return None
    return float(min(amount, MAX_COUNT))


class Turn(msgspec.Struct):
    """One attempt at a turn, or one forwarded request."""

    source: Source
    agent: str
    turn_id: str
    ts: str
    at: float | None  # ``ts`` in seconds; None if it is no valid time
    outcome: Outcome
    code: str  # Error code; "" for a turn that succeeded
    status_code: int
    latency_ms: int | None
    model: str
    used: Usage = msgspec.field(default_factory=Usage)
    resumed: bool = False
    digest: str = ""
    offered: tuple[str, ...] = ()  # Aliases of the tools that the model was shown
    withheld: tuple[
        tuple[str, str], ...
    ] = ()  # (tool, reason) for each granted tool that the model was not shown
    calls: tuple[Call, ...] = ()


def decode_line[T](decoder: msgspec.json.Decoder[T], line: bytes) -> T:
    """Return the decoded line. Raise ``UnreadableLineError``."""
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as error:
        raise UnreadableLineError(_mismatch(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UnreadableLineError("is not JSON") from None
    except RecursionError:
        raise UnreadableLineError("is nested too deeply") from None


def parse_time(ts: str) -> float | None:
    """Return the seconds of an RFC 3339 time, read as UTC if it has no offset; None
    if it is no valid time.

    >>> parse_time("1970-01-01T00:01:00.500Z"), parse_time("yesterday")
    (60.5, None)
    """
    try:
        time = datetime.fromisoformat(ts)
        at = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if 0 <= at < _MAX_TIME else None


def short_text(value: object) -> str:
    """Return the text, cut to a length that no real name reaches; "" for any other type."""
    if not isinstance(value, str):
        return ""
    return value if len(value) <= _MAX_NAME else f"{value[:_MAX_NAME]}…"


def to_count(number: object) -> int:
    """Return a whole number from 0 to ``MAX_COUNT``; 0 for any other type."""
    return min(max(number, 0), MAX_COUNT) if type(number) is int else 0


def outcome_of(*, ok: bool, status_code: int, code: object) -> tuple[Outcome, str]:
    """Return (outcome, error code). An error without a code is named after its HTTP status."""
    if ok:
        return "ok", ""
    return ("aborted" if status_code == _STATUS_RUNNER_LEFT else "failed"), short_text(
        code
    ) or f"http_{status_code}"


def has_id_prefix(turn_id: str, prefix: str) -> bool:
    """Return True if the turn id begins with the prefix, with or without ``turn_``.

    >>> has_id_prefix("turn_4f1c", "4f"), has_id_prefix("turn_4f1c", "turn_4")
    (True, True)
    >>> has_id_prefix("turn_4f1c", "f1")
    False
    """
    return turn_id.startswith((prefix, f"turn_{prefix}"))


def _mismatch(error: msgspec.ValidationError) -> str:
    """Return the reason.

    The decoder's message holds names of members and types, and the path may hold text of the line.
    """
    text, _, path = str(error).partition(" - at ")
    if "missing required field" in text:
        return f"lacks {text.rpartition(' ')[2]}"
    place = "".join(sign for sign in path if sign.isalnum() or sign in "_.$[]")[:80]
    if place == "$.version":
        return "has another version"
    return f"has an unexpected form: {place or 'the whole line'}"
