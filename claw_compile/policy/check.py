"""Check: contradictions between parts of a pod (docs/spec/compile.md, "Tools").

Each rule is one function, and none of them reads a file.
"""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple, assert_never

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.descriptors.snapshot import ungrantable_reason
from claw_compile.diagnostics.diagnostic import Code, Diagnostic, Note, Span, did_you_mean, quote
from claw_compile.grammar.pod import (
    AllTools,
    BudgetSetting,
    CllamaSetting,
    ContextSetting,
    EntryList,
    Grant,
    MemorySetting,
    Models,
    PodSpec,
    Surface,
    ToolPolicySetting,
    own_entries,
)
from claw_compile.identity import host_secret
from claw_compile.loading.load import LoadedPod
from claw_compile.parsing.node import ScalarNode, child, items_of, span_at
from claw_compile.policy.agent import Agent, GrantedTool, ResolvedPod
from claw_compile.policy.check_services import (
    check_counted_services,
    check_host,
    check_images,
    check_names,
    check_reach,
)
from claw_compile.policy.resolve import expand_list
from claw_contract.descriptor import DescriptorTool, DescriptorV2
from claw_contract.names import (
    ALIAS_LIMIT,
    SERVICE_NAME,
    assign_aliases,
    canonical_name,
    plain_alias,
)

MAX_HOST_LENGTH = 63
type _WithKey = EntryList[object] | MemorySetting | ContextSetting | BudgetSetting
type _Default = _WithKey | ToolPolicySetting | Models | CllamaSetting


def check(loaded: LoadedPod, resolved: ResolvedPod) -> tuple[Diagnostic, ...]:
    """Return everything that is wrong with a pod whose parts are each well-formed."""
    pod = loaded.pod
    diagnostics = [
        *check_names(pod),
        *check_reach(pod, resolved),
        *check_host(loaded, resolved),
        *check_counted_services(loaded, resolved),
        *check_written_grants(loaded),
        *check_images(loaded, resolved),
        *check_memories(loaded),
        *check_principals(loaded),
        *check_tools_hosts(pod, resolved),
        *check_secrets(pod),
        *check_skills(pod),
        *check_proxy_types(resolved.agents),
    ]

    # Without agents nobody could use a default, and that is reported already.
    if resolved.agents:
        diagnostics.extend(_unused_defaults(pod, resolved))

    for agent in resolved.agents:
        diagnostics.extend(check_proxy_only(agent, pod))
        diagnostics.extend(check_surfaces(agent, loaded))
        diagnostics.extend(check_tool_names(agent, loaded))

    return tuple(diagnostics)


def _unused_defaults(pod: PodSpec, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    defaults: dict[str, _Default | None] = {
        "tools-defaults": pod.tools,
        "surfaces-defaults": pod.surfaces,
        "feeds-defaults": pod.feeds,
        "skills-defaults": pod.skills,
        "tool-policy-defaults": pod.tool_policy,
        "models-defaults": pod.models,
        "budget-defaults": pod.spending,
        "memory-defaults": pod.memory,
        "cllama-defaults": pod.cllama,
        "context": pod.context,
    }

    inherited = {name for agent in resolved.agents for name in agent.inherits}
    for name, default in defaults.items():
        if default is None or name in inherited:
            continue

        # An empty default says that there is nothing to inherit, and so is never unused.
        if not _is_empty(default):
            yield codes.UNUSED_DEFAULT.at(default.key, f"no agent takes the pod's {quote(name)}")


def _is_empty(default: _Default) -> bool:
    match default:
        case EntryList():
            return not default.entries
        case Models():
            return default.is_empty
        case BudgetSetting():
            return default.budget is None
        case MemorySetting():
            return default.service is None
        case CllamaSetting():
            return not default.proxies
        case ContextSetting():
            return not default.blocks
        case ToolPolicySetting():
            return False
    assert_never(default)


class _ProxyKey(NamedTuple):
    """A key that only a proxy can act on: whether an agent has it, its own, and the pod's."""

    code: Code
    name: str
    is_used: bool
    own: _WithKey | None
    default: _WithKey | None


def check_proxy_only(agent: Agent, pod: PodSpec) -> Iterator[Diagnostic]:
    """Report keys that need a proxy, for an agent without one, inherited or not."""
    if agent.has_proxy:
        return

    spec = agent.spec
    memory = spec.memory or pod.memory
    has_memory = memory is not None and memory.service is not None
    has_budget = agent.budget is not None
    keys = (
        _ProxyKey(codes.TOOLS_WITHOUT_CLLAMA, "tools", bool(agent.grants), spec.tools, pod.tools),
        _ProxyKey(codes.MEMORY_WITHOUT_CLLAMA, "memory", has_memory, spec.memory, pod.memory),
        _ProxyKey(codes.NEEDS_CLLAMA, "feeds", bool(agent.feeds), spec.feeds, pod.feeds),
        _ProxyKey(codes.NEEDS_CLLAMA, "context", bool(agent.blocks), spec.context, pod.context),
        _ProxyKey(codes.NEEDS_CLLAMA, "budget", has_budget, spec.spending, pod.spending),
    )
    for key in keys:
        if not key.is_used:
            continue

        notes = []
        if key.own is None and key.default is not None:
            notes = [Note(key.default.key, "it is inherited from here")]
        message = f"{spec.name.text} has {quote(key.name)}, but no 'cllama' to act on it"
        help_text = f"add 'cllama: passthrough', or suppress it with '{key.name}: null'"
        at = key.own.key if key.own else spec.name.span
        yield key.code.at(at, message, notes=notes, help_text=help_text)


def check_memories(loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Check every memory of the file, also the pod's: its service exists, and declares one."""
    for owner in loaded.pod.owners:
        if owner.memory is not None and owner.memory.service is not None:
            yield from _check_memory(owner.memory.service, loaded)


def _check_memory(name: ScalarNode, loaded: LoadedPod) -> Iterator[Diagnostic]:
    service = loaded.pod.service(name.text)
    if service is None:
        yield unknown_service(name, loaded)
        return
    # A stdio server without a snapshot has a diagnostic of its own.
    if name.text not in loaded.descriptors and not service.wraps_stdio:
        yield no_descriptor(name)
        return

    service_descriptor = loaded.descriptors.get(name.text)
    if service_descriptor is None:
        return

    descriptor = service_descriptor.descriptor
    memory = descriptor.memory if isinstance(descriptor, DescriptorV2) else None
    if memory is None or (memory.recall is None and memory.retain is None):
        message = f"{name.text} declares no memory in {service_descriptor.file}"
        yield codes.NO_MEMORY.at(name.span, message)


def check_skills(pod: PodSpec) -> Iterator[Diagnostic]:
    """Report two skills of an agent with one base name, which is the agent's name for a skill."""
    for agent in pod.agents:
        first: dict[str, ScalarNode] = {}
        for skill in expand_list(agent.skills, pod.skills, "skills-defaults", []):
            other = first.setdefault(PurePosixPath(skill.text).name, skill)
            if other.text == skill.text:
                continue

            at, note = sorted((skill.span, other.span), reverse=True)
            message = f"two skills are called {quote(PurePosixPath(skill.shown).name)}"
            yield codes.SKILL_TWICE.at(at, message, notes=[Note(note, "the other one is here")])


def check_secrets(pod: PodSpec) -> Iterator[Diagnostic]:
    """Check that every secret that the file names is one of the pod's."""
    references: list[ScalarNode] = []
    for service in pod.services:
        if service.auth is not None and service.auth.secret is not None:
            references.append(service.auth.secret)
        references += [entry.reference for entry in service.principals if entry.source == "secret"]

    known = {secret.name.text for secret in pod.secrets}
    for name in references:
        if name.text not in known:
            message = f"the pod has no secret {quote(name.shown)}"
            hint = did_you_mean(name.text, known)
            yield codes.UNKNOWN_SECRET.at(name.span, message, hint=hint)


def check_principals(loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Check that every ``service-auth`` is for a service of the pod that is no tools host."""
    for service in loaded.pod.services:
        for entry in service.principals:
            target = loaded.pod.service(entry.service.text)
            if target is None:
                yield unknown_service(entry.service, loaded)
            elif target.tools_host is not None:
                message = (
                    f"{service.name.text} has a token of its own at the tools host "
                    f"{quote(target.name.text)} already"
                )
                yield codes.TOOLS_HOST_CONFLICT.at(entry.span, message)


def check_tools_hosts(pod: PodSpec, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Check that an agent uses each tools host, and that its tokens' names are not taken."""
    secrets = {secret.name.text: secret.name for secret in pod.secrets}
    granted_services = {grant.service.text for agent in resolved.agents for grant in agent.grants}

    for service in pod.services:
        # An agent that is a tools host is reported already.
        if service.tools_host is None or service.agent is not None:
            continue

        name = service.name.text
        if name not in granted_services:
            message = f"no agent may call a tool of {quote(name)}"
            yield codes.UNUSED_TOOLS_HOST.at(service.name.span, message)

        for agent in resolved.agents:
            if name not in agent.tool_services:
                continue
            secret = secrets.get(host_secret(name, agent.id))
            if secret is not None:
                message = (
                    f"the secret {quote(secret.shown)} has the name of an agent's token at "
                    f"{quote(name)}"
                )
                yield codes.TOOLS_HOST_CONFLICT.at(secret.span, message)


def check_proxy_types(agents: Iterable[Agent]) -> Iterator[Diagnostic]:
    """Check that the pod has one proxy, of one type."""
    # By place: a default that ten agents inherit is one entry of the file.
    proxies: dict[Span, ScalarNode] = {}
    for agent in agents:
        for proxy in agent.cllama.proxies if agent.cllama is not None else ():
            proxies[proxy.span] = proxy

    first: ScalarNode | None = None
    for span, proxy in sorted(proxies.items(), key=lambda each: each[0]):
        first = first or proxy
        if proxy.text == first.text:
            continue

        notes = [Note(first.span, "the first one is here")]
        message = f"{quote(proxy.shown)} beside {quote(first.shown)}: a pod has one type of proxy"
        yield codes.SEVERAL_PROXIES.at(span, message, notes=notes)


def check_written_grants(loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Check every grant of the file once, also the defaults, used or not."""
    for owner in loaded.pod.owners:
        for grant in own_entries(owner.tools):
            yield from _check_grant(grant, loaded)


def _check_grant(grant: Grant, loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Check that the service exists, and describes the tools that the grant names."""
    name = grant.service.text
    service = loaded.pod.service(name)
    if service is None:
        yield unknown_service(grant.service, loaded)
        return

    if not SERVICE_NAME.fullmatch(name) or len(name) > MAX_HOST_LENGTH:
        yield codes.BAD_SERVICE_NAME.at(service.name.span, f"{quote(name)} can't provide tools")

    # A stdio server without a snapshot has a diagnostic of its own.
    if name not in loaded.descriptors and not service.wraps_stdio:
        yield no_descriptor(grant.service)

    # None also for a descriptor that could not be read, which is reported already.
    service_descriptor = loaded.descriptors.get(name)
    if service_descriptor is None:
        return

    if not service_descriptor.tools:
        message = f"{name} declares no tools in {service_descriptor.file}"
        yield codes.NO_TOOLS.at(grant.service.span, message)
        return

    named_tools = [*grant.deny]
    if not isinstance(grant.allow, AllTools):
        named_tools = [*grant.allow, *grant.deny]
    for tool in named_tools:
        yield from _check_tool(tool, name, service_descriptor)

    if isinstance(grant.allow, AllTools):
        yield from _check_granted_writes(grant.allow, grant, service_descriptor.tools)


def unknown_service(name: ScalarNode, loaded: LoadedPod) -> Diagnostic:
    message = f"no service {quote(name.shown)}"
    hint = did_you_mean(name.text, [other.name.text for other in loaded.pod.services])
    return codes.UNKNOWN_SERVICE.at(name.span, message, hint=hint)


def no_descriptor(name: ScalarNode) -> Diagnostic:
    help_text = "name one with 'x-claw.describe-file'"
    return codes.NO_DESCRIPTOR.at(name.span, f"{name.text} has no descriptor", help_text=help_text)


def _check_tool(
    word: ScalarNode, service: str, service_descriptor: ServiceDescriptor
) -> Iterator[Diagnostic]:
    known = [tool.name for tool in service_descriptor.tools]
    if word.text in known:
        return

    message = f"{service} declares no tool {quote(word.shown)}"
    hint = did_you_mean(word.text, known)
    help_text = f"{service} declares {', '.join(known)}"
    reason = ungrantable_reason(service_descriptor.descriptor.discovery, word.text)
    if reason is not None:
        help_text = f"the tool is there, and can't be granted: {reason}"
    yield codes.UNKNOWN_TOOL.at(word.span, message, hint=hint, help_text=help_text)


def _check_granted_writes(
    allow: AllTools, grant: Grant, tools: tuple[DescriptorTool, ...]
) -> Iterator[Diagnostic]:
    denied = {name.text for name in grant.deny}
    # An unknown effect counts as a write.
    writes = [tool.name for tool in tools if tool.effect != "read" and tool.name not in denied]
    if writes:
        message = f"'all' grants tools of {grant.service.shown} that write: {', '.join(writes)}"
        yield codes.WRITE_GRANTED_BY_ALL.at(allow.span, message)


def check_surfaces(agent: Agent, loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Check that surfaces lead to services that exist, and do not bypass the proxy."""
    hosts = {host for service in loaded.pod.services for host in service.hosts}
    surfaces = {each.target: each for each in agent.surfaces if each.scheme == "service"}
    for name, surface in surfaces.items():
        if name not in hosts and loaded.pod.service(name) is None:
            message = f"{quote(surface.shown)} names no service of the pod"
            hint = did_you_mean(name, hosts)
            yield codes.UNKNOWN_SERVICE.at(surface.span, message, hint=hint)

    yield from _check_channels(agent, loaded)

    first_grants: dict[str, Grant] = {}
    for grant in agent.grants:
        first_grants.setdefault(grant.service.text, grant)

    # The proxy makes the calls of a grant, so the agent needs no surface to that service; with one,
    # it can call the service past its proxy. ``strict-surfaces`` demands a surface for each grant
    # nevertheless.
    for name, grant in first_grants.items():
        own_surface = surfaces.get(name)
        if own_surface is not None and not loaded.pod.strict_surfaces:
            yield _grant_beside_surface(agent, grant, own_surface)
        elif own_surface is None and loaded.pod.strict_surfaces:
            message = f"{agent.spec.name.text} has no surface 'service://{grant.service.shown}'"
            yield codes.GRANT_WITHOUT_SURFACE.at(grant.span, message)


def _grant_beside_surface(agent: Agent, grant: Grant, surface: Surface) -> Diagnostic:
    message = f"{agent.spec.name.text} reaches {grant.service.shown} directly, beside its grant"
    notes = [Note(grant.span, "the grant is here")]
    help_text = "the grant works without the surface"
    return codes.GRANT_BESIDE_SURFACE.at(surface.span, message, notes=notes, help_text=help_text)


def _check_channels(agent: Agent, loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Check that the services that may write to a channel exist."""
    for surface in agent.surfaces:
        for name in items_of(child(surface.channel, "allow_from_services")):
            # The runner gets the configuration as it is, so a variable is not filled in here.
            if not isinstance(name, ScalarNode) or "$" in name.text:
                continue
            if loaded.pod.service(name.text) is None:
                yield unknown_service(name, loaded)


def check_tool_names(agent: Agent, loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Report tools that models do not see under their plain alias, at the tool's descriptor."""
    granted = {canonical_name(each.service, each.tool.name): each for each in agent.tools}
    names_by_alias: dict[str, list[str]] = {}
    for name in granted:
        names_by_alias.setdefault(plain_alias(name), []).append(name)

    # Two tools can't share an alias, and a provider takes none that is too long.
    unusable = {
        alias: names
        for alias, names in names_by_alias.items()
        if len(names) > 1 or len(alias) > ALIAS_LIMIT
    }
    if not unusable:
        return

    final_aliases = assign_aliases(granted)
    for alias, names in unusable.items():
        for name in names:
            others = [other for other in names if other != name]
            why = f"like {', '.join(others)}" if others else f"which has {len(alias)} characters"
            final = quote(final_aliases[name])
            message = f"{name} would be {quote(alias)}, {why}; models see it as {final}"

            notes = []
            for other in others:
                at = _declaration(granted[other], loaded)
                notes.append(Note(at, "the other one is here"))

            at = _declaration(granted[name], loaded)
            yield codes.PRESENTED_NAME.at(at, message, notes=notes)


def _declaration(granted: GrantedTool, loaded: LoadedPod) -> Span:
    """Return the place of the tool's name in its descriptor."""
    service_descriptor = loaded.descriptors[granted.service]
    assert isinstance(service_descriptor, ServiceDescriptor)

    names = [tool.name for tool in service_descriptor.tools]
    return span_at(service_descriptor.root, ("tools", names.index(granted.tool.name), "name"))
