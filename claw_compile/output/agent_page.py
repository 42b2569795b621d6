"""CLAWDAPUS.md: the page that tells an agent about its pod (docs/spec/compile.md "Output").

Rules. It holds no credential, and of a service that declares tools nothing but its name and what it is for: no endpoint, no
address, whether the agent has a grant or not.
"""

from __future__ import annotations

from collections.abc import Iterator

from claw_compile.policy.project import ProjectedAgent, ReachableService
from claw_contract.names import assign_aliases

SKILLS = "skills"
"""The directory of an agent's skills, beside this page."""
_SURFACES = {"volume": "a volume", "host": "a directory of the host", "channel": "a channel", "egress": "the internet"}


def page(agent: ProjectedAgent) -> str:
    """Return the whole page, each section only where there is something to say."""
    sections = (_identity, _surfaces, _feeds, _skills, _memory, _tools)
    parts = [part for section in sections if (part := "\n".join(section(agent)))]
    return "\n\n".join(["# CLAWDAPUS.md\n\nWhat this pod gives you. The compiler writes this page.", *parts]) + "\n"


def _identity(agent: ProjectedAgent) -> Iterator[str]:
    yield "## Identity"
    yield ""
    yield f"- agent: {agent.agent.id}"
    if agent.agent.ordinal is not None:
        yield f"- one of: {agent.agent.spec.name.text} (number {agent.agent.ordinal})"
    yield f"- pod: {agent.pod}"
    yield f"- runner: {agent.agent.spec.runner}"


def _surfaces(agent: ProjectedAgent) -> Iterator[str]:
    lines = [_reached(reached) for reached in agent.reached]
    for surface in agent.agent.surfaces:
        if surface.scheme != "service":
            target = f" `{surface.target}`" if surface.target else ""
            mode = f", {surface.mode}" if surface.mode else ""
            lines.append(f"- {_SURFACES[surface.scheme]}{target}{mode}")
    if lines:
        yield "## Surfaces"
        yield ""
        yield "What you reach yourself."
        yield ""
        yield from dict.fromkeys(lines)


def _reached(reached: ReachableService) -> str:
    address = f" at {reached.address}" if reached.address else ""
    line = f"- the service `{reached.service}`{address}{_about(reached.description)}"
    endpoints = [f"  - {each.method.upper()} {each.path}{_about(each.description)}" for each in reached.endpoints]
    return "\n".join([line, *endpoints])


def _feeds(agent: ProjectedAgent) -> Iterator[str]:
    if agent.agent.feeds:
        yield "## Feeds"
        yield ""
        yield "They are put before you with every request; you fetch nothing."
        yield ""
        yield from (f"- `{feed.name}` (from {feed.service}){_about(feed.description)}" for feed in agent.agent.feeds)


def _skills(agent: ProjectedAgent) -> Iterator[str]:
    if agent.agent.skills:
        yield "## Skills"
        yield ""
        yield "Read one before you do what it is about."
        yield ""
        yield from (f"- `{SKILLS}/{skill.name}`{_about(skill.description)}" for skill in agent.agent.skills)


def _memory(agent: ProjectedAgent) -> Iterator[str]:
    if agent.memory is not None:
        verbs = [verb for verb, path in (("recalls", agent.memory.recall), ("retains", agent.memory.retain)) if path]
        yield "## Memory"
        yield ""
        yield f"- `{agent.memory.service}` {' and '.join(verbs)} for you, with every request; you call nothing."


def _tools(agent: ProjectedAgent) -> Iterator[str]:
    if agent.manifest is not None:
        yield "## Tools"
        yield ""
        yield "Call them by these names. They are run for you; you need no address and no key."
        yield ""
        presented = assign_aliases(tool.name for tool in agent.manifest.tools)
        yield from (f"- `{presented[tool.name]}`{_about(tool.description)}" for tool in agent.manifest.tools)


def _about(description: str) -> str:
    """Return a description as the rest of a line."""
    text = " ".join(description.split())
    return f": {text}" if text else ""
