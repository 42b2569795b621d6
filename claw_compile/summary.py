"""What a compile comes to, in a few lines for people."""

from __future__ import annotations

from claw_compile.compiler import Plan, Written


def summary(plan: Plan | Written) -> str:
    """Agents × tools: what each agent may call, and what a call may do."""
    lines: list[str] = []
    for agent in plan.agents:
        tools = agent.manifest.tools if agent.manifest is not None else ()
        lines.append(f"{agent.agent.id}: {len(tools)} tool{'' if len(tools) == 1 else 's'}")
        width = max((len(tool.name) for tool in tools), default=0)
        lines.extend(f"  {tool.name:<{width}}  {tool.effect}" for tool in tools)
    return "".join(f"{line}\n" for line in lines)
