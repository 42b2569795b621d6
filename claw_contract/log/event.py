"""The types of log lines, and the members that all have."""

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
"""The members of every line; null where they do not apply."""


class Event(Contract):
    """One line of the log."""

    ts: str
    claw_id: str | None
    turn_id: str | None
    model: str | None
    intervention: str | None
    digest: str | None  # Digest of the agent's compiled files. None: no agent is concerned, or its files are broken.
