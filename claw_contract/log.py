"""The log: one JSON object a line on stdout (spec/contract.md "The log")."""

from __future__ import annotations

from typing import Literal

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
    "error",
]

COMMON = ("ts", "type", "claw_id", "turn_id", "model", "intervention")
"""The members of every line, null where they do not apply."""
