"""Check: grants against what services declare, against surfaces, and as models see them (docs/spec/compile.md "Tools")."""

from __future__ import annotations

from collections.abc import Iterator

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Span, did_you_mean, quote
from claw_compile.grammar.pod import AllTools, Grant, own_entries
from claw_compile.loading.load import LoadedPod
from claw_compile.parsing.node import ScalarNode, child, items_of, span_at
from claw_compile.policy.agent import Agent, GrantedTool
from claw_contract.descriptor import DescriptorTool
from claw_contract.names import ALIAS_LIMIT, SERVICE_NAME, aliases, canonical_name, plain_alias

MAX_HOST_LENGTH = 63


def check_written_grants(loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Check every grant of the file once, the defaults too, used or not."""
    for owner in loaded.pod.owners:
        for grant in own_entries(owner.tools):
            yield from _check_service(grant, loaded)


def _check_service(grant: Grant, loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Check that the service exists, offers tools, and among them those named."""
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
        yield codes.NO_TOOLS.at(grant.service.span, f"{name} declares no tools in {service_descriptor.file}")
        return
    names = (*(() if isinstance(grant.allow, AllTools) else grant.allow), *grant.deny)
    for word in names:
        yield from _check_tool(word, name, service_descriptor.tools)
    if isinstance(grant.allow, AllTools):
        yield from _writes(grant.allow, grant, service_descriptor.tools)


def unknown_service(name: ScalarNode, loaded: LoadedPod) -> Diagnostic:
    hint = did_you_mean(name.text, [other.name.text for other in loaded.pod.services])
    return codes.UNKNOWN_SERVICE.at(name.span, f"no service {quote(name.shown)}", hint=hint)


def no_descriptor(name: ScalarNode) -> Diagnostic:
    help_text = "name one with 'x-claw.describe-file'"
    return codes.NO_DESCRIPTOR.at(name.span, f"{name.text} has no descriptor", help_text=help_text)


def _check_tool(word: ScalarNode, service: str, tools: tuple[DescriptorTool, ...]) -> Iterator[Diagnostic]:
    known = [tool.name for tool in tools]
    if word.text not in known:
        message = f"{service} declares no tool {quote(word.shown)}"
        help_text = f"{service} declares {', '.join(known)}"
        yield codes.UNKNOWN_TOOL.at(word.span, message, hint=did_you_mean(word.text, known), help_text=help_text)


def _writes(allow: AllTools, grant: Grant, tools: tuple[DescriptorTool, ...]) -> Iterator[Diagnostic]:
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
            message = f"{agent.spec.name.text} reaches {grant.service.shown} directly, beside its grant"
            notes = [Note(grant.span, "the grant is here")]
            help_text = "the grant works without the surface"
            yield codes.GRANT_BESIDE_SURFACE.at(surface.span, message, notes=notes, help_text=help_text)
        elif surface is None and loaded.pod.strict_surfaces:
            message = f"{agent.spec.name.text} has no surface 'service://{grant.service.shown}'"
            yield codes.GRANT_WITHOUT_SURFACE.at(grant.span, message)


def _speakers(agent: Agent, loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Check that who may speak to the agent on a channel is a service of the pod."""
    for surface in agent.surfaces:
        named = child(surface.channel, "allow_from_services")
        for name in items_of(named):
            if isinstance(name, ScalarNode) and "$" not in name.text and loaded.pod.service(name.text) is None:
                yield unknown_service(name, loaded)


def check_tool_names(agent: Agent, loaded: LoadedPod) -> Iterator[Diagnostic]:
    """Report tools that models do not see under their plain names, each where its descriptor names it."""
    granted = {canonical_name(each.service, each.tool.name): each for each in agent.tools}
    plain: dict[str, list[str]] = {}
    for name in granted:
        plain.setdefault(plain_alias(name), []).append(name)
    odd = {alias: names for alias, names in plain.items() if len(names) > 1 or len(alias) > ALIAS_LIMIT}
    presented = aliases(granted) if odd else {}
    for alias, names in odd.items():
        for name in names:
            others = [other for other in names if other != name]
            why = f"like {', '.join(others)}" if others else f"which has {len(alias)} characters"
            message = f"{name} would be {quote(alias)}, {why}; models see it as {quote(presented[name])}"
            notes = [Note(_place(granted[other], loaded), "the other one is here") for other in others]
            yield codes.PRESENTED_NAME.at(_place(granted[name], loaded), message, notes=notes)


def _place(granted: GrantedTool, loaded: LoadedPod) -> Span:
    service_descriptor = loaded.descriptors[granted.service]
    assert isinstance(service_descriptor, ServiceDescriptor)
    index = next(at for at, tool in enumerate(service_descriptor.tools) if tool.name == granted.tool.name)
    return span_at(service_descriptor.root, ("tools", index, "name"))
