"""Explanations why an agent may call a tool, or may not: reasons with places
(docs/spec/compile.md "Verbs", explain).

Rules. The whole chain is shown, also of what is denied, and what would change it. No value of a
variable is in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.diagnostics.diagnostic import Span, did_you_mean
from claw_compile.grammar.pod import AllTools, Grant, PodSpec, Spread
from claw_compile.parsing.node import child, items_of, span_at
from claw_compile.policy.agent import Agent
from claw_compile.policy.project import ProjectedAgent, ProjectedPod
from claw_contract.descriptor import DescriptorTool
from claw_contract.manifest import BasicAuth, BearerAuth, HeaderAuth, NoAuth, Tool
from claw_contract.names import assign_aliases, canonical_name
from claw_contract.secret import SecretRef


@dataclass(frozen=True)
class Reason:
    """A grant that allows a tool, or denies it. ``origin`` is the list that it stands in."""

    grant: Grant
    verdict: Literal["allow", "deny"]
    origin: Literal["tools", "tools-defaults"]


def reasons(pod: PodSpec, agent: Agent, service: str, tool: str) -> tuple[Reason, ...]:
    """Return every grant of the agent that allows the tool or denies it; a denial wins."""
    defaults = (
        {id(entry) for entry in pod.tools.entries if not isinstance(entry, Spread)}
        if pod.tools
        else set()
    )
    matching_grants: list[Reason] = []
    for grant in agent.grants:
        if grant.service.text != service:
            continue
        origin: Literal["tools", "tools-defaults"] = (
            "tools-defaults" if id(grant) in defaults else "tools"
        )
        if isinstance(grant.allow, AllTools) or any(name.text == tool for name in grant.allow):
            matching_grants.append(Reason(grant, "allow", origin))
        if any(name.text == tool for name in grant.deny):
            matching_grants.append(Reason(grant, "deny", origin))
    return tuple(matching_grants)


@dataclass(frozen=True)
class Step:
    """One reason. ``at`` is None where it is no place in a file."""

    text: str
    at: Span | None = None


@dataclass(frozen=True)
class Explanation:
    """The answer for one agent and tool (canonical name), with its reasons."""

    agent: str
    tool: str
    allowed: bool
    effect: str | None
    why: tuple[Step, ...]
    change: str  # An edit of the pod file that would change the verdict


@dataclass(frozen=True)
class UnknownName:
    message: str
    hint: str | None


def explain(
    pod: ProjectedPod, agent_id: str, word: str | None = None
) -> tuple[Explanation, ...] | UnknownName:
    """Explain one tool, by canonical name, alias or unambiguous base name; without
    ``word``, every tool of the pod.
    """
    agents = {each.agent.id: each.agent for each in pod.agents}
    agent = agents.get(agent_id)
    if agent is None:
        return UnknownName(f"the pod has no agent '{agent_id}'", did_you_mean(agent_id, agents))
    all_tools = dict(_all_tools(pod))
    if word is None:
        return tuple(_verdict(pod, agent, name) for name in sorted(all_tools))
    alias_of = assign_aliases(sorted(all_tools))
    named = [name for name, (_, base) in all_tools.items() if word in {name, base, alias_of[name]}]
    if not named:
        known = [*all_tools, *(base for _, base in all_tools.values()), *alias_of.values()]
        return UnknownName(
            f"no service of the pod declares a tool '{word}'", did_you_mean(word, known)
        )
    if len(named) > 1:
        return UnknownName(
            f"several services declare a tool '{word}'", f"name one of {', '.join(sorted(named))}"
        )
    return (_verdict(pod, agent, named[0]),)


def _all_tools(pod: ProjectedPod) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield every tool that a service of the pod declares: canonical name → service
    and base name.
    """
    for service, service_descriptor in pod.descriptors.items():
        for tool in service_descriptor.tools if service_descriptor is not None else ():
            yield canonical_name(service, tool.name), (service, tool.name)


def _verdict(pod: ProjectedPod, agent: Agent, name: str) -> Explanation:
    service, base = dict(_all_tools(pod))[name]
    service_descriptor = pod.descriptors[service]
    assert service_descriptor is not None
    declared = next(tool for tool in service_descriptor.tools if tool.name == base)
    matching_grants = reasons(pod.spec, agent, service, base)
    granted = next((tool for tool in _granted_tools(pod, agent) if tool.name == name), None)
    why = [*_inheritance(pod, agent, matching_grants), *map(_grant, matching_grants)]
    if not matching_grants:
        why.append(_nothing_grants(agent, service, name))
    why.append(_declared(service_descriptor, base))
    if granted is not None:
        why += _runs(pod, agent, granted)
    change = _change(agent, matching_grants, service, declared)
    return Explanation(agent.id, name, granted is not None, declared.effect, tuple(why), change)


def _projected(pod: ProjectedPod, agent: Agent) -> ProjectedAgent:
    return next(each for each in pod.agents if each.agent is agent)


def _granted_tools(pod: ProjectedPod, agent: Agent) -> tuple[Tool, ...]:
    manifest = _projected(pod, agent).manifest
    return manifest.tools if manifest is not None else ()


def _inheritance(
    pod: ProjectedPod, agent: Agent, matching_grants: tuple[Reason, ...]
) -> Iterator[Step]:
    own, defaults = agent.spec.tools, pod.spec.tools
    if any(reason.origin == "tools-defaults" for reason in matching_grants):
        if own is None:
            yield Step(
                f"{agent.spec.name.text} has no 'tools', and so inherits the pod's",
                agent.spec.name.span,
            )
        else:
            yield Step("'...' splices the pod's defaults", own.spread.span if own.spread else None)
    elif own is not None and defaults is not None and own.spread is None:
        word = "replaces" if own.entries else "suppresses"
        yield Step(f"'tools' of {agent.spec.name.text} {word} the pod's defaults", own.key)


def _grant(reason: Reason) -> Step:
    grant, service = reason.grant, reason.grant.service.shown
    if reason.verdict == "deny":
        return Step(
            f"'deny' of a grant in '{reason.origin}' names it; deny beats allow", grant.span
        )
    if isinstance(grant.allow, AllTools):
        return Step(f"'allow: all' of {service} in '{reason.origin}'", grant.allow.span)
    return Step(f"a grant of {service} in '{reason.origin}' names it", grant.span)


def _nothing_grants(agent: Agent, service: str, name: str) -> Step:
    others = [grant for grant in agent.grants if grant.service.text == service]
    if others:
        return Step(f"the grant of {service} does not name {name}", others[0].span)
    if agent.spec.tools is not None:
        return Step(f"{agent.spec.name.text} has no grant of {service}", agent.spec.tools.key)
    return Step(
        f"{agent.spec.name.text} has no grant of {service}: deny by default", agent.spec.name.span
    )


def _declared(service_descriptor: ServiceDescriptor, base: str) -> Step:
    root = service_descriptor.root
    number = next(
        (index for index, tool in enumerate(service_descriptor.tools) if tool.name == base), 0
    )
    at = (
        span_at(root, ("tools", number))
        if number < len(items_of(child(root, "tools")))
        else root.span
    )
    return Step(f"declared as tool {number + 1} of {len(service_descriptor.tools)}", at)


def _runs(pod: ProjectedPod, agent: Agent, tool: Tool) -> Iterator[Step]:
    alias_of = assign_aliases(each.name for each in _granted_tools(pod, agent))[tool.name]
    yield Step(f"presented to the model as '{alias_of}'")
    execution = tool.execution
    service = pod.spec.service(execution.service)
    at = service.name.span if service is not None else None
    own = any(each.service == execution.service for each in _projected(pod, agent).principals)
    match execution.auth:
        case NoAuth():
            yield Step(f"called over {execution.transport}, without a credential", at)
        case BearerAuth(token=token) | HeaderAuth(token=token) | BasicAuth(password=token):
            kept = (
                f"the secret {token.secret}"
                if isinstance(token, SecretRef)
                else "the environment of the service"
            )
            owner = (
                "the agent's own credential" if own else f"the credential of {execution.service}"
            )
            yield Step(f"called over {execution.transport} with {owner}, from {kept}", at)


def _change(
    agent: Agent, matching_grants: tuple[Reason, ...], service: str, tool: DescriptorTool
) -> str:
    owner = agent.spec.name.text
    if any(reason.verdict == "deny" for reason in matching_grants):
        return f"take {tool.name} out of 'deny'"
    if matching_grants:
        return (
            f"add 'deny: [{tool.name}]' to a grant of {service} in the 'tools' of {owner}, or "
            "name other tools"
        )
    return f"add '- service: {service}' with 'allow: [{tool.name}]' to the 'tools' of {owner}"
