"""Status of agents and providers for the operator, and what a reload changed: names
and problems, never a secret.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from claw_contract.transcript.text import as_line, printable
from claw_mediate.agents.directory import Agent, AgentDirectory
from claw_mediate.core.model_policy import Provider
from claw_mediate.providers.registry import ProviderRegistry

_DIGEST = 12


def describe_agents(context: Path) -> str:
    """Return every agent of a context root with its granted tools and its problems, as text."""
    agents = AgentDirectory(context)
    lines = [line for agent_id in agents.ids() for line in _describe(agents, agent_id)]
    return "\n".join(lines) or f"there is no agent in {printable(str(context))}"


def _describe(agents: AgentDirectory, agent_id: str) -> Iterator[str]:
    agent = agents.find(agent_id)
    if agent is None:
        yield f"{agent_id} · refused: its context directory can't be read"
    else:
        yield (
            f"{agent_id} · {_count(len(agent.granted), 'tool')} · pod "
            f"{as_line(agent.digest)[:_DIGEST]}"
        )
        for tool in agent.granted:
            yield f"  {as_line(tool.name)} · {tool.effect} · {as_line(tool.execution.service)}"
    for problem in agents.problems(agent_id):
        name = (
            as_line(problem.name)
            if problem.kind == "file"
            else f"{problem.kind} {as_line(problem.name)}"
        )
        yield f"  problem: {name}: {printable(problem.reason)}"


def reload_files(
    agents: AgentDirectory, registry: ProviderRegistry, release: Callable[[str], None]
) -> list[str]:
    """Read all files again, even if they look unchanged; return a line for each change.

    Raise ``UnreadableDirectoryError``.

    ``release`` is called with the id of each agent that has changed.
    """
    agents.ids()  # if they can't be listed, what is known of them stays
    old_agents, old_providers = agents.clear_cache(), registry.clear_cache()
    new_agents = {agent_id: agents.find(agent_id) for agent_id in agents.ids()}
    for agent_id in {*old_agents, *new_agents}:
        if old_agents.get(agent_id) != new_agents.get(agent_id):
            release(agent_id)
    changes = [
        change
        for agent_id in sorted({*old_agents, *new_agents})
        for change in _agent_changes(agent_id, old_agents, new_agents)
    ]
    new_providers = registry.all()
    changes += [
        f"provider {name} {change}"
        for name in sorted({*old_providers, *new_providers})
        for change in _provider_changes(old_providers.get(name), new_providers.get(name))
    ]
    return [*changes, *([registry.problem] if registry.problem else [])]


def _agent_changes(
    agent_id: str, before: Mapping[str, Agent | None], after: Mapping[str, Agent | None]
) -> Iterator[str]:
    old, new = before.get(agent_id), after.get(agent_id)
    if agent_id not in after:
        yield f"{agent_id}: removed"
    elif new is None:
        yield f"{agent_id}: can't be read" + ("; refused from now on" if old is not None else "")
    elif old is None:
        yield (
            f"{agent_id}: {'readable again' if agent_id in before else 'added'}, "
            f"{_count(len(new.granted), 'tool')}"
        )
    elif old != new:
        were, are = ({tool.name: tool for tool in agent.granted} for agent in (old, new))
        changes = [f"+ {name}" for name in are if name not in were]
        changes += [f"- {name}" for name in were if name not in are]
        changes += [f"{name} changed" for name in are if name in were and are[name] != were[name]]
        if _without_tools(old) != _without_tools(new):
            changes.append("settings other than tools changed")
        yield f"{agent_id}: {as_line(', '.join(changes)) or 'compiled again, unchanged'}"


def _without_tools(agent: Agent) -> Agent:
    return replace(agent, tools=(), native_tools=(), digest="")


def _provider_changes(old: Provider | None, new: Provider | None) -> Iterator[str]:
    if old is None or new is None:
        if old is not new:
            yield "was removed" if new is None else f"was added with {_count(len(new.keys), 'key')}"
    elif old != new:
        if replace(old, keys=()) != replace(new, keys=()):
            yield "has a new configuration"
        elif (were := _key_names(old)) != (are := _key_names(new)):
            yield f"has keys {are} (before: {were})"
        else:
            yield "has the same key names, but keys or key states changed"


def _key_names(provider: Provider) -> str:
    return as_line(", ".join(key.id for key in provider.keys)) or "none"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
