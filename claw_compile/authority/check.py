"""Check: what does not go together (spec/compile.md "Tools", "Diagnostics"). One function a rule; none reads a file."""

from __future__ import annotations

from collections.abc import Iterator

from claw_compile import codes
from claw_compile.authority.agent import Agent, Resolved
from claw_compile.authority.resolve import inherited_note
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, did_you_mean, quoted
from claw_compile.grammar.pod import All, Grant, Spread
from claw_compile.loading.describing import is_stdio
from claw_compile.loading.load import Loaded
from claw_compile.reading.node import ScalarNode
from claw_contract.descriptor import DescriptorTool
from claw_contract.manifest import Effect
from claw_contract.names import SERVICE_NAME

LONGEST_HOST = 63


def check(loaded: Loaded, resolved: Resolved) -> tuple[Diagnostic, ...]:
    """Everything that is wrong with a pod whose parts are each well-formed."""
    found: list[Diagnostic] = []
    for grant in _written_grants(loaded):
        found.extend(_known(grant, loaded))
    for agent in resolved.agents:
        found.extend(_proxied(agent, loaded))
        found.extend(_beside_surfaces(agent, loaded))
    found.extend(_used_defaults(loaded, resolved))
    return tuple(found)


def _written_grants(loaded: Loaded) -> Iterator[Grant]:
    """Every grant of the file once, the defaults too, used or not."""
    for listed in (loaded.pod.tools, *(service.tools for service in loaded.pod.services)):
        for entry in listed.entries if listed is not None else ():
            if not isinstance(entry, Spread):
                yield entry


def _known(grant: Grant, loaded: Loaded) -> Iterator[Diagnostic]:
    """The service exists, offers tools, and among them those named."""
    name = grant.service.text
    service = loaded.pod.service(name)
    if service is None:
        others = [other.name.text for other in loaded.pod.services]
        hint = did_you_mean(name, others)
        yield codes.UNKNOWN_SERVICE.at(grant.service.span, f"no service {quoted(grant.service.shown)}", hint=hint)
        return
    if not SERVICE_NAME.fullmatch(name) or len(name) > LONGEST_HOST:
        yield codes.BAD_SERVICE_NAME.at(service.name.span, f"{quoted(name)} can't provide tools")
    if name not in loaded.described and not is_stdio(service):
        help_text = "name one with 'x-claw.describe-file'"
        yield codes.NO_DESCRIPTOR.at(grant.service.span, f"{name} has no descriptor", help_text=help_text)
    described = loaded.described.get(name)
    if described is None:
        return
    if not described.tools:
        yield codes.NO_TOOLS.at(grant.service.span, f"{name} declares no tools in {described.file}")
        return
    names = (*(() if isinstance(grant.allow, All) else grant.allow), *grant.deny)
    for word in names:
        yield from _known_tool(word, name, described.tools)
    if isinstance(grant.allow, All):
        yield from _writes(grant.allow, grant, described.tools)


def _known_tool(word: ScalarNode, service: str, tools: tuple[DescriptorTool, ...]) -> Iterator[Diagnostic]:
    known = [tool.name for tool in tools]
    if word.text not in known:
        message = f"{service} declares no tool {quoted(word.shown)}"
        help_text = f"{service} declares {', '.join(known)}"
        yield codes.UNKNOWN_TOOL.at(word.span, message, hint=did_you_mean(word.text, known), help_text=help_text)


def _writes(allow: All, grant: Grant, tools: tuple[DescriptorTool, ...]) -> Iterator[Diagnostic]:
    denied = {name.text for name in grant.deny}
    writes = [tool.name for tool in tools if effect(tool) != "read" and tool.name not in denied]
    if writes:
        message = f"'all' grants tools of {grant.service.shown} that write: {', '.join(writes)}"
        yield codes.WRITE_GRANTED_BY_ALL.at(allow.span, message)


def effect(tool: DescriptorTool) -> Effect:
    """What the tool does to the world; a DELETE is never a read."""
    if tool.http is not None and tool.http.method == "DELETE":
        return "write"
    return tool.annotations.effect


def _proxied(agent: Agent, loaded: Loaded) -> Iterator[Diagnostic]:
    if agent.grants and not agent.has_proxy:
        at, notes = inherited_note(agent, loaded.pod)
        message = f"{agent.id} has tools, but no 'cllama' to run them"
        help_text = "add 'cllama: passthrough', or suppress the tools with 'tools: []'"
        yield codes.TOOLS_WITHOUT_CLLAMA.at(at, message, notes=notes, help_text=help_text)


def _beside_surfaces(agent: Agent, loaded: Loaded) -> Iterator[Diagnostic]:
    surfaces = {surface.target: surface for surface in agent.surfaces if surface.scheme == "service"}
    granted: dict[str, Grant] = {}
    for grant in agent.grants:
        granted.setdefault(grant.service.text, grant)
    for name, grant in granted.items():
        surface = surfaces.get(name)
        if surface is not None and not loaded.pod.strict_surfaces:
            message = f"{agent.id} reaches {grant.service.shown} directly, beside its grant"
            notes = [Note(grant.span, "the grant is here")]
            help_text = "the grant works without the surface"
            yield codes.GRANT_BESIDE_SURFACE.at(surface.span, message, notes=notes, help_text=help_text)
        elif surface is None and loaded.pod.strict_surfaces:
            message = f"{agent.id} has no surface 'service://{grant.service.shown}'"
            yield codes.GRANT_WITHOUT_SURFACE.at(grant.span, message)


def _used_defaults(loaded: Loaded, resolved: Resolved) -> Iterator[Diagnostic]:
    tools = loaded.pod.tools
    taken = any(agent.takes_defaults for agent in resolved.agents)
    if tools is not None and tools.entries and resolved.agents and not taken:
        yield codes.UNUSED_DEFAULT.at(tools.key, "no agent takes the pod's 'tools-defaults'")
