"""Explanations why an agent may or may not call a tool: reasons with places.

The whole chain is shown, also for a tool that is denied, and what would change it
(docs/spec/compile.md, "Verbs", explain). No value of a variable is in it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.diagnostics.diagnostic import Span, did_you_mean
from claw_compile.grammar.pod import AllTools, Grant, PodSpec, own_entries
from claw_compile.parsing.node import child, items_of, span_at
from claw_compile.policy.agent import Agent
from claw_compile.policy.project import ProjectedAgent, ProjectedPod
from claw_contract.descriptor import DescriptorTool
from claw_contract.manifest import BasicAuth, BearerAuth, HeaderAuth, NoAuth, Tool
from claw_contract.names import assign_aliases, canonical_name
from claw_contract.secret import SecretRef

type Origin = Literal["tools", "tools-defaults"]


@dataclass(frozen=True)
class Reason:
    """A grant that allows or denies a tool. ``origin`` is the list that it comes from."""

    grant: Grant
    verdict: Literal["allow", "deny"]
    origin: Origin


def reasons(pod: PodSpec, agent: Agent, service: str, tool: str) -> tuple[Reason, ...]:
    """Return every grant of the agent that allows or denies the tool; a denial wins."""
    # An inherited grant is the same object as in the defaults.
    defaults = {id(grant) for grant in own_entries(pod.tools)}

    matching: list[Reason] = []
    for grant in agent.grants:
        if grant.service.text != service:
            continue

        origin: Origin = "tools-defaults" if id(grant) in defaults else "tools"
        if isinstance(grant.allow, AllTools) or any(name.text == tool for name in grant.allow):
            matching.append(Reason(grant, "allow", origin))
        if any(name.text == tool for name in grant.deny):
            matching.append(Reason(grant, "deny", origin))

    return tuple(matching)


@dataclass(frozen=True)
class Step:
    """One step of an explanation. ``at`` is None where it has no place in a file."""

    text: str
    at: Span | None = None


@dataclass(frozen=True)
class Explanation:
    """The answer whether an agent may call a tool (canonical name), with the reasons.

    ``effect`` is the tool's, and ``change`` an edit of the pod file that would change the answer.
    """

    agent: str
    tool: str
    allowed: bool
    effect: str | None
    why: tuple[Step, ...]
    change: str


@dataclass(frozen=True)
class UnknownName:
    """The answer for a name that no agent or tool has, or several."""

    message: str
    hint: str | None


def explain(
    pod: ProjectedPod, agent_id: str, word: str | None = None
) -> tuple[Explanation, ...] | UnknownName:
    """Explain one tool; without ``word``, every tool of the pod.

    ``word`` is a tool's canonical name, its alias, or its base name where only one tool has it.
    """
    agents = {each.agent.id: each.agent for each in pod.agents}
    agent = agents.get(agent_id)
    if agent is None:
        return UnknownName(f"the pod has no agent '{agent_id}'", did_you_mean(agent_id, agents))

    tools = _declared_tools(pod)
    if word is None:
        return tuple(_explain_tool(pod, agent, tools[name]) for name in sorted(tools))

    alias_of = assign_aliases(sorted(tools))
    names = [
        name for name, tool in tools.items() if word in {name, tool.descriptor.name, alias_of[name]}
    ]
    if not names:
        base_names = [tool.descriptor.name for tool in tools.values()]
        hint = did_you_mean(word, [*tools, *base_names, *alias_of.values()])
        return UnknownName(f"no service of the pod declares a tool '{word}'", hint)
    if len(names) > 1:
        hint = f"name one of {', '.join(sorted(names))}"
        return UnknownName(f"several services declare a tool '{word}'", hint)

    return (_explain_tool(pod, agent, tools[names[0]]),)


@dataclass(frozen=True)
class _DeclaredTool:
    """A tool, the service that declares it, and its 0-based index in the descriptor."""

    service: str
    service_descriptor: ServiceDescriptor
    descriptor: DescriptorTool
    index: int

    @property
    def name(self) -> str:
        return canonical_name(self.service, self.descriptor.name)


def _declared_tools(pod: ProjectedPod) -> Mapping[str, _DeclaredTool]:
    """Return every tool that a service of the pod declares, by canonical name."""
    tools: dict[str, _DeclaredTool] = {}
    for service, service_descriptor in pod.descriptors.items():
        if service_descriptor is None:
            continue
        for index, descriptor in enumerate(service_descriptor.tools):
            tool = _DeclaredTool(service, service_descriptor, descriptor, index)
            tools[tool.name] = tool

    return tools


def _explain_tool(pod: ProjectedPod, agent: Agent, tool: _DeclaredTool) -> Explanation:
    matching = reasons(pod.spec, agent, tool.service, tool.descriptor.name)
    granted = _granted_tool(pod, agent, tool.name)

    why = list(_inheritance(pod, agent, matching))
    why += [_grant_step(reason) for reason in matching]
    if not matching:
        why.append(_nothing_grants(agent, tool))
    why.append(_declaration(tool))
    if granted is not None:
        why += _execution(pod, agent, granted)

    return Explanation(
        agent=agent.id,
        tool=tool.name,
        allowed=granted is not None,
        effect=tool.descriptor.effect,
        why=tuple(why),
        change=_change(agent, matching, tool),
    )


def _projected(pod: ProjectedPod, agent: Agent) -> ProjectedAgent:
    return next(each for each in pod.agents if each.agent is agent)


def _granted_tools(pod: ProjectedPod, agent: Agent) -> tuple[Tool, ...]:
    manifest = _projected(pod, agent).manifest
    return manifest.tools if manifest is not None else ()


def _granted_tool(pod: ProjectedPod, agent: Agent, name: str) -> Tool | None:
    for tool in _granted_tools(pod, agent):
        if tool.name == name:
            return tool
    return None


def _inheritance(pod: ProjectedPod, agent: Agent, matching: tuple[Reason, ...]) -> Iterator[Step]:
    """Yield how the agent's ``tools`` and the pod's defaults relate, where that matters."""
    spec = agent.spec
    own = spec.tools
    defaults = pod.spec.tools
    is_inherited = any(reason.origin == "tools-defaults" for reason in matching)

    if is_inherited and own is None:
        yield Step(f"{spec.name.text} has no 'tools', and so inherits the pod's", spec.name.span)
    elif is_inherited:
        spread = own.spread if own is not None else None
        yield Step("'...' splices the pod's defaults", spread.span if spread else None)
    elif own is not None and defaults is not None and own.spread is None:
        word = "replaces" if own.entries else "suppresses"
        yield Step(f"'tools' of {spec.name.text} {word} the pod's defaults", own.key)


def _grant_step(reason: Reason) -> Step:
    grant = reason.grant
    service = grant.service.shown
    if reason.verdict == "deny":
        text = f"'deny' of a grant in '{reason.origin}' names it; deny beats allow"
        return Step(text, grant.span)
    if isinstance(grant.allow, AllTools):
        return Step(f"'allow: all' of {service} in '{reason.origin}'", grant.allow.span)
    return Step(f"a grant of {service} in '{reason.origin}' names it", grant.span)


def _nothing_grants(agent: Agent, tool: _DeclaredTool) -> Step:
    for grant in agent.grants:
        if grant.service.text == tool.service:
            return Step(f"the grant of {tool.service} does not name {tool.name}", grant.span)

    spec = agent.spec
    text = f"{spec.name.text} has no grant of {tool.service}"
    if spec.tools is not None:
        return Step(text, spec.tools.key)
    return Step(f"{text}: deny by default", spec.name.span)


def _declaration(tool: _DeclaredTool) -> Step:
    root = tool.service_descriptor.root

    # Where the tools are no list of the descriptor's file, the file itself is the place.
    at = root.span
    if tool.index < len(items_of(child(root, "tools"))):
        at = span_at(root, ("tools", tool.index))
    return Step(f"declared as tool {tool.index + 1} of {len(tool.service_descriptor.tools)}", at)


def _execution(pod: ProjectedPod, agent: Agent, tool: Tool) -> Iterator[Step]:
    """Yield the name that the model sees, and how the proxy calls the tool."""
    aliases = assign_aliases(each.name for each in _granted_tools(pod, agent))
    yield Step(f"presented to the model as '{aliases[tool.name]}'")

    execution = tool.execution
    service = pod.spec.service(execution.service)
    at = service.name.span if service is not None else None

    principals = _projected(pod, agent).principals
    is_own = any(each.service == execution.service for each in principals)
    owner = "the agent's own credential" if is_own else f"the credential of {execution.service}"

    match execution.auth:
        case NoAuth():
            yield Step(f"called over {execution.transport}, without a credential", at)
        case BearerAuth(token=token) | HeaderAuth(token=token) | BasicAuth(password=token):
            source = "the environment of the service"
            if isinstance(token, SecretRef):
                source = f"the secret {token.secret}"
            yield Step(f"called over {execution.transport} with {owner}, from {source}", at)


def _change(agent: Agent, matching: tuple[Reason, ...], tool: _DeclaredTool) -> str:
    """Return the edit of the pod file that would change the answer."""
    owner = agent.spec.name.text
    name = tool.descriptor.name
    if any(reason.verdict == "deny" for reason in matching):
        return f"take {name} out of 'deny'"
    if matching:
        return (
            f"add 'deny: [{name}]' to a grant of {tool.service} in the 'tools' of {owner}, or "
            "name other tools"
        )
    return f"add '- service: {tool.service}' with 'allow: [{name}]' to the 'tools' of {owner}"
