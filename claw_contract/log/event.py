"""What every line of the log has, and which lines there are."""

from __future__ import annotations

from typing import Literal

from claw_contract.base import Contract

type EventType = Literal[
    "request",
    "response",
    "tool_call",
    "intervention",
    "failover",
    "provider_pool",
    "feed_fetch",
    "feed_injection",
    "memory_op",
    "tool_manifest_loaded",
    "continuity",
    "resume",
    "join",
    "state",
    "error",
]

COMMON = ("ts", "type", "claw_id", "turn_id", "model", "intervention", "digest")
"""The members of every line, null where they do not apply."""


class Event(Contract):
    """One line."""

    ts: str
    claw_id: str | None
    turn_id: str | None
    model: str | None
    intervention: str | None
    digest: str | None
    """Of the agent's compiled tree: it names the exact compile. None: it is no event of an agent, or its tree is broken."""
