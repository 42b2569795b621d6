"""Granted tools that a model is not shown, and why: history says so with each turn."""

from __future__ import annotations

from collections.abc import Collection

from claw_contract.base import JsonObject
from claw_mediate.agents.directory import Agent

OVER_LIMIT = "over_limit"
"""The provider has no room for as many tools."""
SIDE_REQUEST = "side_request"
"""Nobody calls tools in a runner's own housekeeping."""


def from_turn(agent: Agent, shown: Collection[str]) -> list[JsonObject]:
    """Of a turn whose model was shown these."""
    return [*_quarantined(agent), *(_told(tool.name, OVER_LIMIT) for tool in agent.tools if tool.name not in shown)]


def from_request(agent: Agent, why: str) -> list[JsonObject]:
    """Of a request that is forwarded without any."""
    return [*_quarantined(agent), *(_told(tool.name, why) for tool in agent.tools)]


def _quarantined(agent: Agent) -> list[JsonObject]:
    return [_told(tool.name, f"quarantined: {tool.reason}") for tool in agent.quarantined]


def _told(name: str, reason: str) -> JsonObject:
    return {"name": name, "reason": reason}
