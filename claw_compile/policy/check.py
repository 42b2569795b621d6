"""Check: contradictions between parts of a pod (docs/spec/compile.md "Tools").

One function a rule; none reads a file.
"""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.descriptors.snapshot import ungrantable_reason
from claw_compile.diagnostics.diagnostic import Code, Diagnostic, Note, Span, did_you_mean, quote
from claw_compile.grammar.pod import (
    AllTools,
    BudgetSetting,
    ContextSetting,
    EntryList,
    Grant,
    MemorySetting,
    PodSpec,
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
type _Keyed = EntryList[object] | MemorySetting | ContextSetting | BudgetSetting


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
        *(_unused_defaults(pod, resolved) if resolved.agents else ()),
    ]
    for agent in resolved.agents:
        diagnostics.extend(check_proxy_only(agent, pod))
        diagnostics.extend(check_surfaces(agent, loaded))
        diagnostics.extend(check_tool_names(agent, loaded))
    return tuple(diagnostics)


def _unused_defaults(pod: PodSpec, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    defaults = {
        "tools-defaults": pod.tools if pod.tools and pod.tools.entries else None,
        "surfaces-defaults": pod.surfaces if pod.surfaces and pod.surfaces.entries else None,
        "feeds-defaults": pod.feeds if pod.feeds and pod.feeds.entries else None,
        "skills-defaults": pod.skills if pod.skills and pod.skills.entries else None,
        "tool-policy-defaults": pod.tool_policy,
        "models-defaults": pod.models if pod.models and not pod.models.is_empty else None,
        "budget-defaults": pod.spending if pod.spending and pod.spending.budget else None,
        "memory-defaults": pod.memory if pod.memory and pod.memory.service else None,
        "cllama-defaults": pod.cllama if pod.cllama and pod.cllama.proxies else None,
        "context": pod.context if pod.context and pod.context.blocks else None,
    }
    inherited_defaults = {name for agent in resolved.agents for name in agent.takes}
    for name, default in defaults.items():
        if default is not None and name not in inherited_defaults:
            yield codes.UNUSED_DEFAULT.at(default.key, f"no agent takes the pod's {quote(name)}")


def check_proxy_only(agent: Agent, pod: PodSpec) -> Iterator[Diagnostic]:
    """Report what only a proxy can do, for an agent without one: tools and memory
    are errors, inherited or not.
    """
    if agent.has_proxy:
        return
    spec = agent.spec
    memory = spec.memory or pod.memory
    remembers = memory is not None and memory.service is not None
    parts: tuple[tuple[Code, str, bool, _Keyed | None, _Keyed | None], ...] = (
        (codes.TOOLS_WITHOUT_CLLAMA, "tools", bool(agent.grants), spec.tools, pod.tools),
        (codes.MEMORY_WITHOUT_CLLAMA, "memory", remembers, spec.memory, pod.memory),
        (codes.NEEDS_CLLAMA, "feeds", bool(agent.feeds), spec.feeds, pod.feeds),
        (codes.NEEDS_CLLAMA, "context", bool(agent.blocks), spec.context, pod.context),
        (codes.NEEDS_CLLAMA, "budget", agent.budget is not None, spec.spending, pod.spending),
    )
    for code, what, _, own, inherited in (part for part in parts if part[2]):
        is_inherited = own is None and inherited is not None
        notes = (
            [Note(inherited.key, "it is inherited from here")] if is_inherited and inherited else []
        )
        message = f"{spec.name.text} has {quote(what)}, but no 'cllama' to act on it"
        help_text = f"add 'cllama: passthrough', or suppress it with '{what}: null'"
        yield code.at(own.key if own else spec.name.span, message, notes=notes, help_text=help_text)


def check_memories(loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Check every memory of the file, the pod's too: its service exists, and declares one."""
    for wanted in (
        owner.memory.service for owner in loaded.pod.owners if owner.memory and owner.memory.service
    ):
        service = loaded.pod.service(wanted.text)
        if service is None:
            yield unknown_service(wanted, loaded)
        elif wanted.text not in loaded.descriptors and not service.wraps_stdio:
            yield no_descriptor(wanted)
        elif (service_descriptor := loaded.descriptors.get(wanted.text)) is not None:
            descriptor = service_descriptor.descriptor
            memory = descriptor.memory if isinstance(descriptor, DescriptorV2) else None
            if memory is None or (memory.recall is None and memory.retain is None):
                message = f"{wanted.text} declares no memory in {service_descriptor.file}"
                yield codes.NO_MEMORY.at(wanted.span, message)


def check_skills(pod: PodSpec) -> Iterator[Diagnostic]:
    """Check that no two skills of an agent have one base name, by which it knows them."""
    for agent in pod.agents:
        first: dict[str, ScalarNode] = {}
        for skill in expand_list(agent.skills, pod.skills, "skills-defaults", []):
            other = first.setdefault(PurePosixPath(skill.text).name, skill)
            if other.text != skill.text:
                at, note = sorted((skill.span, other.span), reverse=True)
                message = f"two skills are called {quote(PurePosixPath(skill.shown).name)}"
                yield codes.SKILL_TWICE.at(at, message, notes=[Note(note, "the other one is here")])


def check_secrets(pod: PodSpec) -> Iterator[Diagnostic]:
    """Check that every secret that is named is one of the pod's."""
    known = {secret.name.text for secret in pod.secrets}
    own = [
        service.auth.secret
        for service in pod.services
        if service.auth is not None and service.auth.secret is not None
    ]
    principals = (each for service in pod.services for each in service.principals)
    for name in (*own, *(each.reference for each in principals if each.source == "secret")):
        if name.text not in known:
            hint = did_you_mean(name.text, known)
            yield codes.UNKNOWN_SECRET.at(
                name.span, f"the pod has no secret {quote(name.shown)}", hint=hint
            )


def check_principals(loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Check that a credential of an agent is for a service of the pod."""
    for service in loaded.pod.services:
        for principal in service.principals:
            called = loaded.pod.service(principal.service.text)
            if called is None:
                yield unknown_service(principal.service, loaded)
            elif called.tools_host is not None:
                message = (
                    f"{service.name.text} has a token of its own at the tools host "
                    f"{quote(called.name.text)} already"
                )
                yield codes.TOOLS_HOST_CONFLICT.at(principal.span, message)


def check_tools_hosts(pod: PodSpec, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Check that somebody uses each tools host, and that no secret of the pod has
    the name of a token there.
    """
    secrets = {secret.name.text: secret.name for secret in pod.secrets}
    for service in (
        each for each in pod.services if each.tools_host is not None and each.agent is None
    ):
        name = service.name.text
        principals = [agent.id for agent in resolved.agents if name in agent.tool_services]
        if not any(
            grant.service.text == name for agent in resolved.agents for grant in agent.grants
        ):
            yield codes.UNUSED_TOOLS_HOST.at(
                service.name.span, f"no agent may call a tool of {quote(name)}"
            )
        for taken in filter(None, (secrets.get(host_secret(name, agent)) for agent in principals)):
            message = (
                f"the secret {quote(taken.shown)} has the name of an agent's token at {quote(name)}"
            )
            yield codes.TOOLS_HOST_CONFLICT.at(taken.span, message)


def check_proxy_types(agents: Iterable[Agent]) -> Iterator[Diagnostic]:
    """Check that the pod has one proxy, of one type."""
    first: ScalarNode | None = None
    places: dict[Span, ScalarNode] = {}
    for agent in agents:
        places |= {
            proxy.span: proxy
            for proxy in (agent.cllama.proxies if agent.cllama is not None else ())
        }
    for span in sorted(places):
        first = first or places[span]
        if places[span].text != first.text:
            notes = [Note(first.span, "the first one is here")]
            message = (
                f"{quote(places[span].shown)} beside {quote(first.shown)}: a pod has one type "
                "of proxy"
            )
            yield codes.SEVERAL_PROXIES.at(span, message, notes=notes)


def check_written_grants(loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Check every grant of the file once, the defaults too, used or not."""
    for owner in loaded.pod.owners:
        for grant in own_entries(owner.tools):
            yield from _check_service(grant, loaded)


def _check_service(grant: Grant, loaded: LoadedPod) -> Iterator[Diagnostic]:
    name = grant.service.text
    service = loaded.pod.service(name)
    if service is None:
        yield unknown_service(grant.service, loaded)
        return
    if not SERVICE_NAME.fullmatch(name) or len(name) > MAX_HOST_LENGTH:
        yield codes.BAD_SERVICE_NAME.at(service.name.span, f"{quote(name)} can't provide tools")
    if name not in loaded.descriptors and not service.wraps_stdio:
        yield no_descriptor(grant.service)
    service_descriptor = loaded.descriptors.get(name)
    if service_descriptor is None:
        return
    if not service_descriptor.tools:
        yield codes.NO_TOOLS.at(
            grant.service.span, f"{name} declares no tools in {service_descriptor.file}"
        )
        return
    names = (*(() if isinstance(grant.allow, AllTools) else grant.allow), *grant.deny)
    for word in names:
        yield from _check_tool(word, name, service_descriptor)
    if isinstance(grant.allow, AllTools):
        yield from _writes(grant.allow, grant, service_descriptor.tools)


def unknown_service(name: ScalarNode, loaded: LoadedPod) -> Diagnostic:
    hint = did_you_mean(name.text, [other.name.text for other in loaded.pod.services])
    return codes.UNKNOWN_SERVICE.at(name.span, f"no service {quote(name.shown)}", hint=hint)


def no_descriptor(name: ScalarNode) -> Diagnostic:
    help_text = "name one with 'x-claw.describe-file'"
    return codes.NO_DESCRIPTOR.at(name.span, f"{name.text} has no descriptor", help_text=help_text)


def _check_tool(
    word: ScalarNode, service: str, described: ServiceDescriptor
) -> Iterator[Diagnostic]:
    known = [tool.name for tool in described.tools]
    if word.text not in known:
        message = f"{service} declares no tool {quote(word.shown)}"
        reason = ungrantable_reason(described.descriptor.discovery, word.text)
        held_back = f"the tool is there, and can't be granted: {reason}"
        help_text = f"{service} declares {', '.join(known)}" if reason is None else held_back
        yield codes.UNKNOWN_TOOL.at(
            word.span, message, hint=did_you_mean(word.text, known), help_text=help_text
        )


def _writes(
    allow: AllTools, grant: Grant, tools: tuple[DescriptorTool, ...]
) -> Iterator[Diagnostic]:
    denied = {name.text for name in grant.deny}
    writes = [tool.name for tool in tools if tool.effect != "read" and tool.name not in denied]
    if writes:
        message = f"'all' grants tools of {grant.service.shown} that write: {', '.join(writes)}"
        yield codes.WRITE_GRANTED_BY_ALL.at(allow.span, message)


def check_surfaces(agent: Agent, loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Check that surfaces lead to services that exist, and not round the proxy."""
    hosts = {host for service in loaded.pod.services for host in service.hosts}
    surfaces = {each.target: each for each in agent.surfaces if each.scheme == "service"}
    for name, reached in surfaces.items():
        if name not in hosts and loaded.pod.service(name) is None:
            message = f"no service of the pod is behind {quote(reached.shown)}"
            yield codes.UNKNOWN_SERVICE.at(reached.span, message, hint=did_you_mean(name, hosts))
    yield from _speakers(agent, loaded)
    granted: dict[str, Grant] = {}
    for grant in agent.grants:
        granted.setdefault(grant.service.text, grant)
    for name, grant in granted.items():
        surface = surfaces.get(name)
        if surface is not None and not loaded.pod.strict_surfaces:
            message = (
                f"{agent.spec.name.text} reaches {grant.service.shown} directly, beside its grant"
            )
            notes = [Note(grant.span, "the grant is here")]
            help_text = "the grant works without the surface"
            yield codes.GRANT_BESIDE_SURFACE.at(
                surface.span, message, notes=notes, help_text=help_text
            )
        elif surface is None and loaded.pod.strict_surfaces:
            message = f"{agent.spec.name.text} has no surface 'service://{grant.service.shown}'"
            yield codes.GRANT_WITHOUT_SURFACE.at(grant.span, message)


def _speakers(agent: Agent, loaded: LoadedPod) -> Iterator[Diagnostic]:
    for surface in agent.surfaces:
        named = child(surface.channel, "allow_from_services")
        for name in items_of(named):
            if (
                isinstance(name, ScalarNode)
                and "$" not in name.text
                and loaded.pod.service(name.text) is None
            ):
                yield unknown_service(name, loaded)


def check_tool_names(agent: Agent, loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Report tools that models do not see under their plain names, each where its
    descriptor names it.
    """
    granted = {canonical_name(each.service, each.tool.name): each for each in agent.tools}
    plain: dict[str, list[str]] = {}
    for name in granted:
        plain.setdefault(plain_alias(name), []).append(name)
    odd = {
        alias: names for alias, names in plain.items() if len(names) > 1 or len(alias) > ALIAS_LIMIT
    }
    presented = assign_aliases(granted) if odd else {}
    for alias, names in odd.items():
        for name in names:
            others = [other for other in names if other != name]
            why = f"like {', '.join(others)}" if others else f"which has {len(alias)} characters"
            message = (
                f"{name} would be {quote(alias)}, {why}; models see it as {quote(presented[name])}"
            )
            notes = [
                Note(_place(granted[other], loaded), "the other one is here") for other in others
            ]
            yield codes.PRESENTED_NAME.at(_place(granted[name], loaded), message, notes=notes)


def _place(granted: GrantedTool, loaded: LoadedPod) -> Span:
    service_descriptor = loaded.descriptors[granted.service]
    assert isinstance(service_descriptor, ServiceDescriptor)
    index = next(
        at for at, tool in enumerate(service_descriptor.tools) if tool.name == granted.tool.name
    )
    return span_at(service_descriptor.root, ("tools", index, "name"))
