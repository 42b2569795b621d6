"""Status of agents and providers for the operator, and what a reload changed.

The text has names and problems, and never a secret.
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
        name = as_line(problem.name)
        if problem.kind != "file":
            name = f"{problem.kind} {name}"
        yield f"  problem: {name}: {printable(problem.reason)}"


def reload_files(
    agents: AgentDirectory, registry: ProviderRegistry, release: Callable[[str], None]
) -> list[str]:
    """Read all files again, even if they look unchanged; return a line for each change.

    Raise ``UnreadableDirectoryError``.

    ``release`` is called with the id of each agent that has changed.
    """
    agents.ids()  # raises before the cache is cleared: what is known of the agents stays
    old_agents = agents.clear_cache()
    old_providers = registry.clear_cache()
    new_agents = {agent_id: agents.find(agent_id) for agent_id in agents.ids()}

    changes: list[str] = []
    for agent_id in sorted({*old_agents, *new_agents}):
        if old_agents.get(agent_id) != new_agents.get(agent_id):
            release(agent_id)
        changes += _agent_changes(agent_id, old_agents, new_agents)

    new_providers = registry.all()
    for name in sorted({*old_providers, *new_providers}):
        for change in _provider_changes(old_providers.get(name), new_providers.get(name)):
            changes.append(f"provider {name} {change}")

    if registry.problem:
        changes.append(registry.problem)
    return changes


def _agent_changes(
    agent_id: str, before: Mapping[str, Agent | None], after: Mapping[str, Agent | None]
) -> Iterator[str]:
    """Yield at most one line about an agent. In a mapping, None is an agent that can't be read."""
    old = before.get(agent_id)
    new = after.get(agent_id)
    if agent_id not in after:
        yield f"{agent_id}: removed"
    elif new is None:
        consequence = "; refused from now on" if old is not None else ""
        yield f"{agent_id}: can't be read{consequence}"
    elif old is None:
        how = "readable again" if agent_id in before else "added"
        yield f"{agent_id}: {how}, {_count(len(new.granted), 'tool')}"
    elif old != new:
        changes = ", ".join(_differences(old, new))
        yield f"{agent_id}: {as_line(changes) or 'compiled again, unchanged'}"


def _differences(old: Agent, new: Agent) -> Iterator[str]:
    """Yield each tool that changed, and whether anything else did."""
    were = {tool.name: tool for tool in old.granted}
    are = {tool.name: tool for tool in new.granted}
    added = [name for name in are if name not in were]
    removed = [name for name in were if name not in are]
    changed = [name for name in are if name in were and are[name] != were[name]]

    yield from (f"+ {name}" for name in added)
    yield from (f"- {name}" for name in removed)
    yield from (f"{name} changed" for name in changed)

    if _without_tools(old) != _without_tools(new):
        yield "settings other than tools changed"


def _without_tools(agent: Agent) -> Agent:
    return replace(agent, tools=(), native_tools=(), digest="")


def _provider_changes(old: Provider | None, new: Provider | None) -> Iterator[str]:
    if old == new:
        return

    if new is None:
        yield "was removed"
    elif old is None:
        yield f"was added with {_count(len(new.keys), 'key')}"
    elif replace(old, keys=()) != replace(new, keys=()):
        yield "has a new configuration"
    elif _key_names(old) != _key_names(new):
        yield f"has keys {_key_names(new)} (before: {_key_names(old)})"
    else:
        yield "has the same key names, but keys or key states changed"


def _key_names(provider: Provider) -> str:
    return as_line(", ".join(key.id for key in provider.keys)) or "none"


def _count(number: int, noun: str) -> str:
    ending = "" if number == 1 else "s"
    return f"{number} {noun}{ending}"
