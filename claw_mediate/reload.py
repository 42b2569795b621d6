"""What an operator is told of the agents and providers that count now: names and problems, never a secret."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from claw_contract.manifest import HttpExecution
from claw_contract.transcript.text import as_line, printable
from claw_mediate.agents.directory import Agent, Agents
from claw_mediate.core.model_policy import Provider
from claw_mediate.providers.registry import Registry
from claw_mediate.telemetry.event_log import EventLog

_DIGEST = 12


def read(context: Path) -> tuple[Agents, dict[str, list[str]]]:
    """The agents as their files are now, and what is wrong with them, by agent. The log hears nothing of it."""
    problems: dict[str, list[str]] = {}

    def note(line: bytes) -> None:
        event = json.loads(line)
        if event["type"] in {"error", "intervention"}:
            what = event.get("file") or event.get("intervention")
            problems.setdefault(event["claw_id"], []).append(f"{as_line(what)}: {printable(event.get('reason'))}")

    agents = Agents(context, EventLog(note))
    for agent_id in agents.ids():
        agents.find(agent_id)
    return agents, problems


def agents_told(context: Path) -> str:
    """Every agent with the tools that it was granted, and its problems."""
    agents, problems = read(context)
    told = [line for agent_id in agents.ids() for line in _agent(agent_id, agents.find(agent_id), problems)]
    return "\n".join(told) or f"there is no agent in {printable(str(context))}"


def _agent(agent_id: str, agent: Agent | None, problems: Mapping[str, list[str]]) -> Iterator[str]:
    if agent is None:
        yield f"{agent_id} · refused: its context directory can't be read"
    else:
        yield f"{agent_id} · {_many(len(agent.tools), 'tool')} · pod {as_line(agent.digest)[:_DIGEST]}"
        for tool in agent.tools:
            service = tool.execution.service if isinstance(tool.execution, HttpExecution) else ""
            yield f"  {as_line(tool.name)} · {tool.effect} · {as_line(service)}"
    yield from (f"  problem: {problem}" for problem in problems.get(agent_id, ()))


def reread(agents: Agents, registry: Registry) -> list[str]:
    """Both are read from their files again, whatever these say of their age; what has changed by that."""
    before, held = agents.forget(), registry.forget()
    after = {agent_id: agents.find(agent_id) for agent_id in agents.ids()}
    told = [line for agent_id in sorted({*before, *after}) for line in _changed(agent_id, before, after)]
    now = registry.all()
    told += [
        f"provider {name} {how}" for name in sorted({*held, *now}) for how in _moved(held.get(name), now.get(name))
    ]
    return [*told, *([registry.problem] if registry.problem else [])]


def _changed(agent_id: str, before: Mapping[str, Agent | None], after: Mapping[str, Agent | None]) -> Iterator[str]:
    old, new = before.get(agent_id), after.get(agent_id)
    if agent_id not in after:
        yield f"{agent_id} is gone"
    elif new is None:
        yield f"{agent_id} can't be read" + (", and is refused from now on" if old is not None else "")
    elif old is None:
        yield f"{agent_id} is read {'again' if agent_id in before else 'for the first time'}: {_many(len(new.tools), 'tool')}"
    elif old != new:
        were, are = ({tool.name: tool for tool in agent.tools} for agent in (old, new))
        changes = [f"+ {name}" for name in are if name not in were]
        changes += [f"- {name}" for name in were if name not in are]
        changes += [f"{name} is another" for name in are if name in were and are[name] != were[name]]
        if replace(old, tools=(), digest="") != replace(new, tools=(), digest=""):
            changes.append("what is not its tools is another")
        yield f"{agent_id}: {as_line(', '.join(changes)) or 'compiled anew, to the same'}"


def _moved(old: Provider | None, new: Provider | None) -> Iterator[str]:
    if old is None or new is None:
        if old is not new:
            yield "is gone" if new is None else f"is there: {_many(len(new.keys), 'key')}"
    elif old != new:
        if replace(old, keys=()) != replace(new, keys=()):
            yield "is configured in another way"
        elif (were := _keys(old)) != (are := _keys(new)):
            yield f"has keys {are}, where it had {were}"
        else:
            yield "has other keys of the same names, or their states are others"


def _keys(provider: Provider) -> str:
    """Their names, as the operator gave them."""
    return as_line(", ".join(key.id for key in provider.keys)) or "none"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
