"""Why an agent may call a tool: the grants that say so, and by which way they reached it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_compile.grammar.pod import All, Grant, PodSpec, Spread
from claw_compile.policy.agent import Agent


@dataclass(frozen=True)
class Reason:
    """A grant that allows a tool, or denies it. ``origin`` is the list that it stands in."""

    grant: Grant
    verdict: Literal["allow", "deny"]
    origin: Literal["tools", "tools-defaults"]


def reasons(pod: PodSpec, agent: Agent, service: str, tool: str) -> tuple[Reason, ...]:
    """Every grant of the agent that names the tool, or all of its service; those that deny it too, which win."""
    defaults = {id(entry) for entry in pod.tools.entries if not isinstance(entry, Spread)} if pod.tools else set()
    found: list[Reason] = []
    for grant in agent.grants:
        if grant.service.text != service:
            continue
        origin: Literal["tools", "tools-defaults"] = "tools-defaults" if id(grant) in defaults else "tools"
        if isinstance(grant.allow, All) or any(name.text == tool for name in grant.allow):
            found.append(Reason(grant, "allow", origin))
        if any(name.text == tool for name in grant.deny):
            found.append(Reason(grant, "deny", origin))
    return tuple(found)
