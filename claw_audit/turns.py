"""Turns and calls, as both history and the log tell of them. Structs, since there are millions of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import msgspec

type Source = Literal["history", "log"]
type Outcome = Literal["ok", "failed", "aborted", "unfinished"]
"""``aborted``: the runner left. ``unfinished``: it began, and nothing tells of its end."""

_LATEST = 250_000_000_000
"""Seconds; the year 9892. Later times can't be written down again."""
_LONGEST = 200
RUNNER_LEFT = 499
"""What history says of a runner that left."""


class Call(msgspec.Struct, frozen=True):
    """One managed call."""

    tool: str
    service: str
    round: int
    ok: bool
    code: str
    """Of a failed one; "" where it has none."""
    status_code: int | None
    latency_ms: int
    effect: str
    """``read``, ``write``, ``unknown``; "" where it is not told."""
    ran: bool | None
    """Whether its service was asked; None: not told."""
    duplicate: bool


class Tokens(msgspec.Struct, frozen=True):
    """What a turn used. ``cost`` is in US dollars; None where nobody knows it."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cost: float | None = None


class Turn(msgspec.Struct, frozen=True):
    """One turn, or one forwarded request."""

    source: Source
    agent: str
    turn_id: str
    ts: str
    at: float | None
    """``ts`` in seconds; None where it is no time."""
    outcome: Outcome
    code: str
    """Why it failed; "" where it did not."""
    status_code: int
    latency_ms: int | None
    model: str
    tokens: Tokens = Tokens()
    resumed: bool = False
    digest: str = ""
    offered: tuple[str, ...] = ()
    """The aliases of the tools that its model was shown."""
    withheld: tuple[tuple[str, str], ...] = ()
    """Tools that it was not shown, each with the reason."""
    calls: tuple[Call, ...] = ()


def moment(ts: str) -> float | None:
    """RFC 3339 as seconds; None for what is none. Without an offset it is UTC.

    >>> moment("1970-01-01T00:01:00.500Z"), moment("yesterday")
    (60.5, None)
    """
    try:
        found = datetime.fromisoformat(ts)
        at = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if 0 <= at < _LATEST else None


def short(text: str) -> str:
    """A name that can be held: no name of ours is as long."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def ended(*, ok: bool, status_code: int, code: str) -> tuple[Outcome, str]:
    """How a turn ended, and why: an error without a word of ours is known by its status."""
    if ok:
        return "ok", ""
    return ("aborted" if status_code == RUNNER_LEFT else "failed"), short(code) or f"http_{status_code}"
