"""Why an agent may call a tool, or may not: the chain of reasons, each with its place (spec/compile.md "Verbs", explain).

Rules. The whole chain is told, also of what is denied, and what would change it. No value of a variable is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from claw_compile.authority.agent import Agent
from claw_compile.authority.project import ProjectedPod
from claw_compile.authority.reasons import Reason, reasons
from claw_compile.descriptors.descriptor import Described
from claw_compile.diagnostics.diagnostic import Span, did_you_mean
from claw_compile.grammar.pod import All, Grant, Listed, Spread
from claw_compile.reading.node import ListNode, MapNode, span_at
from claw_contract.context_files import ServiceAuth
from claw_contract.descriptor import DescriptorTool
from claw_contract.manifest import BasicAuth, BearerAuth, HeaderAuth, NoAuth, Tool
from claw_contract.names import assign_aliases, canonical_name
from claw_contract.secret import SecretRef


@dataclass(frozen=True)
class Step:
    """One reason. ``at`` is None where it is no place in a file."""

    text: str
    at: Span | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether ``agent`` may call ``tool`` (canonical), and why."""

    agent: str
    tool: str
    allowed: bool
    effect: str | None
    why: tuple[Step, ...]
    change: str
    """What would change it."""


@dataclass(frozen=True)
class Unknown:
    """A word that names nothing of the pod, and a hint."""

    message: str
    hint: str | None


def explain(pod: ProjectedPod, agent_id: str, word: str | None = None) -> tuple[Verdict, ...] | Unknown:
    """One tool, by canonical name, alias or, where only one service has it, base name; without one, every tool of the pod."""
    agents = {each.agent.id: each.agent for each in pod.agents}
    agent = agents.get(agent_id)
    if agent is None:
        return Unknown(f"the pod has no agent '{agent_id}'", did_you_mean(agent_id, agents))
    offered = dict(_offered(pod))
    if word is None:
        return tuple(_verdict(pod, agent, name) for name in sorted(offered))
    presented = assign_aliases(sorted(offered))
    named = [name for name, (_, base) in offered.items() if word in {name, base, presented[name]}]
    if not named:
        known = [*offered, *(base for _, base in offered.values()), *presented.values()]
        return Unknown(f"no service of the pod declares a tool '{word}'", did_you_mean(word, known))
    if len(named) > 1:
        return Unknown(f"several services declare a tool '{word}'", f"name one of {', '.join(sorted(named))}")
    return (_verdict(pod, agent, named[0]),)


def _offered(pod: ProjectedPod) -> Iterator[tuple[str, tuple[str, str]]]:
    """Every tool that a service of the pod declares: canonical name → service and base name."""
    for service, described in pod.described.items():
        for tool in described.tools if described is not None else ():
            yield canonical_name(service, tool.name), (service, tool.name)


def _verdict(pod: ProjectedPod, agent: Agent, name: str) -> Verdict:
    service, base = dict(_offered(pod))[name]
    described = pod.described[service]
    assert described is not None
    declared = next(tool for tool in described.tools if tool.name == base)
    found = reasons(pod.spec, agent, service, base)
    granted = next((tool for tool in _granted(pod, agent) if tool.name == name), None)
    why = [*_inheritance(pod, agent, found), *map(_grant, found)]
    if not found:
        why.append(_nothing_grants(agent, service, name))
    why.append(_declared(described, base))
    if granted is not None:
        why += _runs(pod, agent, granted)
    return Verdict(
        agent.id, name, granted is not None, declared.effect, tuple(why), _change(agent, found, service, declared)
    )


def _granted(pod: ProjectedPod, agent: Agent) -> tuple[Tool, ...]:
    manifest = next(each.manifest for each in pod.agents if each.agent is agent)
    return manifest.tools if manifest is not None else ()


def _inheritance(pod: ProjectedPod, agent: Agent, found: tuple[Reason, ...]) -> Iterator[Step]:
    """How the pod's defaults got to the agent, where they count; and that they did not, where it has said so."""
    own, defaults = agent.spec.tools, pod.spec.tools
    if any(reason.origin == "tools-defaults" for reason in found):
        if own is None:
            yield Step(f"{agent.spec.name.text} has no 'tools', and so inherits the pod's", agent.spec.name.span)
        else:
            yield Step("'...' splices the pod's defaults", _spread(own))
    elif own is not None and defaults is not None and _spread(own) is None:
        word = "replaces" if own.entries else "suppresses"
        yield Step(f"'tools' of {agent.spec.name.text} {word} the pod's defaults", own.key)


def _spread(listed: Listed[Grant]) -> Span | None:
    return next((entry.span for entry in listed.entries if isinstance(entry, Spread)), None)


def _grant(reason: Reason) -> Step:
    grant, service = reason.grant, reason.grant.service.shown
    if reason.verdict == "deny":
        return Step(f"'deny' of a grant in '{reason.origin}' names it; deny beats allow", grant.span)
    if isinstance(grant.allow, All):
        return Step(f"'allow: all' of {service} in '{reason.origin}'", grant.allow.span)
    return Step(f"a grant of {service} in '{reason.origin}' names it", grant.span)


def _nothing_grants(agent: Agent, service: str, name: str) -> Step:
    others = [grant for grant in agent.grants if grant.service.text == service]
    if others:
        return Step(f"the grant of {service} does not name {name}", others[0].span)
    if agent.spec.tools is not None:
        return Step(f"{agent.spec.name.text} has no grant of {service}", agent.spec.tools.key)
    return Step(f"{agent.spec.name.text} has no grant of {service}: deny by default", agent.spec.name.span)


def _declared(described: Described, base: str) -> Step:
    tools = described.root.value("tools") if isinstance(described.root, MapNode) else None
    items = tools.items if isinstance(tools, ListNode) else ()
    number = next((index for index, tool in enumerate(described.tools) if tool.name == base), 0)
    at = span_at(described.root, ("tools", number)) if number < len(items) else described.root.span
    return Step(f"declared as tool {number + 1} of {len(described.tools)}", at)


def _runs(pod: ProjectedPod, agent: Agent, tool: Tool) -> Iterator[Step]:
    presented = assign_aliases(each.name for each in _granted(pod, agent))[tool.name]
    yield Step(f"presented to the model as '{presented}'")
    execution = tool.execution
    service = pod.spec.service(execution.service)
    at = service.name.span if service is not None else None
    own = any(each.service == execution.service for each in _principals(pod, agent))
    match execution.auth:
        case NoAuth():
            yield Step(f"called over {execution.transport}, without a credential", at)
        case BearerAuth(token=token) | HeaderAuth(token=token) | BasicAuth(password=token):
            kept = f"the secret {token.secret}" if isinstance(token, SecretRef) else "the environment of the service"
            owner = "the agent's own credential" if own else f"the credential of {execution.service}"
            yield Step(f"called over {execution.transport} with {owner}, from {kept}", at)


def _principals(pod: ProjectedPod, agent: Agent) -> tuple[ServiceAuth, ...]:
    return next(each.principals for each in pod.agents if each.agent is agent)


def _change(agent: Agent, found: tuple[Reason, ...], service: str, tool: DescriptorTool) -> str:
    owner = agent.spec.name.text
    if any(reason.verdict == "deny" for reason in found):
        return f"take {tool.name} out of 'deny'"
    if found:
        return f"add 'deny: [{tool.name}]' to a grant of {service} in the 'tools' of {owner}, or name other tools"
    return f"add '- service: {service}' with 'allow: [{tool.name}]' to the 'tools' of {owner}"
