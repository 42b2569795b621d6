"""The tools of a tools host, known without asking it (docs/spec/tools-host.md "In a pod").

Rules. Its own tools are those of ``claw_contract/tool_host_descriptor.json``, as far as its
settings register them. Tools of servers behind it, and of third parties, have ``__`` in their
names, and come from a source of the service: a snapshot, a descriptor, or a list. What can't be
granted keeps its reason.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any, Final

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor, read_descriptor
from claw_compile.descriptors.lock import sha256
from claw_compile.diagnostics.diagnostic import Diagnostic, Result, quote
from claw_compile.grammar.pod import ServiceSpec, ToolsHost
from claw_compile.parsing.json_reader import read_json
from claw_compile.parsing.node import Entry, ListNode, MapNode, Source, child, items_of
from claw_contract.descriptor import DescriptorTool, DescriptorV2

TOOLS_HOST_PATH: Final = "/mcp"
_REGISTRY: Final = "tool_host_descriptor.json"
_BEHIND: Final = "__"  # Between a server and its tool
_COMMANDS: Final = ("exec_shell", "spawn")
_NO_NETWORK, _NETWORK = "There is no network.", "The network can be reached."
_AT_ONCE: Final = re.compile(r"At most [0-9]+ ")
_NEEDS: Final = "it needs {} in the settings of the tools host"
_INTERNAL: Final = "its server is internal; 'internal_only: false' opens it to grants"


@cache
def built_in_tools() -> ServiceDescriptor:
    """Return all tools that a tools host can have by itself."""
    text = resources.files("claw_contract").joinpath(_REGISTRY).read_text(encoding="utf-8")
    file = f"claw_contract/{_REGISTRY}"
    described = read_json(Source(file, text)).then(lambda root: read_descriptor(file, root)).value
    assert described is not None
    return replace(described, source="tools-host", digest=sha256(text.encode()))


def describe_tools_host(
    service: ServiceSpec, listed: ServiceDescriptor | None
) -> Result[ServiceDescriptor]:
    """Return the tools that can be granted of a tools host.

    ``listed``: what a source says of the servers behind it.
    """
    settings = service.tools_host
    assert settings is not None
    held_back = dict(_unregistered(settings))
    own = built_in_tools()
    tools = (_configured(tool, settings) for tool in own.tools)
    kept = [pair for pair in zip(tools, _nodes(own), strict=True) if pair[0].name not in held_back]
    internal = {
        name for name, each in _servers(settings).items() if each.get("internal_only", True)
    }
    for tool, node in zip(listed.tools, _nodes(listed), strict=True) if listed is not None else ():
        namespace, behind, _ = tool.name.partition(_BEHIND)
        if behind and namespace in internal:
            held_back[tool.name] = _INTERNAL
        elif behind:
            kept.append((tool, node))
    assert isinstance(own.descriptor, DescriptorV2)
    reasons = [{"name": name, "reason": reason} for name, reason in sorted(held_back.items())]
    update = {"tools": tuple(tool for tool, _ in kept), "discovery": {"ungrantable": reasons}}
    root = own.root
    assert isinstance(root, MapNode)
    nodes = ListNode(tuple(node for _, node in kept), root.span)
    entries = tuple(
        Entry(each.key, nodes) if each.key.text == "tools" else each for each in root.entries
    )
    digest = own.digest if listed is None else sha256(f"{own.digest} {listed.digest}".encode())
    described = replace(
        own,
        descriptor=own.descriptor.model_copy(update=update),
        digest=digest,
        root=MapNode(entries, root.span),
    )
    return Result(described, tuple(_unlisted(service, settings, {tool.name for tool, _ in kept})))


def _nodes(described: ServiceDescriptor) -> tuple[Any, ...]:
    return items_of(child(described.root, "tools"))


def _configured(tool: DescriptorTool, settings: ToolsHost) -> DescriptorTool:
    """Return a tool as the host describes it with these settings; the registry has
    it with the default ones.
    """
    schema, description = json.loads(json.dumps(tool.input_schema)), tool.description
    if tool.name == "message":
        channel = schema["properties"]["channel"]
        names = sorted(settings.tools.get("message", {}).get("channels", {}))
        channel["description"] = channel["description"].format(channels=", ".join(names))
    elif tool.name in _COMMANDS:
        said = settings.tools.get("exec", {})
        timeout = schema["properties"]["timeout"]
        timeout["maximum"] = said.get("max_timeout_s", timeout["maximum"])
        if tool.name == "exec_shell":
            timeout["default"] = said.get("default_timeout_s", timeout["default"])
        timeout["default"] = min(timeout["default"], timeout["maximum"])
        most = settings.tools.get("spawn", {}).get("max_concurrent")
        description = description if most is None else _AT_ONCE.sub(f"At most {most} ", description)
        if said.get("network") is True:
            description = description.replace(_NO_NETWORK, _NETWORK)
        if said.get("allow"):
            description += f" Allowed programs: {', '.join(said['allow'])}."
    return tool.model_copy(update={"input_schema": schema, "description": description})


def _servers(settings: ToolsHost) -> Mapping[str, Mapping[str, Any]]:
    servers: Mapping[str, Mapping[str, Any]] = settings.tools.get("mcp_servers", {})
    return servers


def _unregistered(settings: ToolsHost) -> Iterator[tuple[str, str]]:
    """Yield the built-in tools that the settings leave out, each with the reason."""
    if settings.tools.get("exec", {}).get("enabled") is not True:
        yield from dict.fromkeys(_COMMANDS, _NEEDS.format("'exec: {enabled: true}'")).items()
    if "web_search" not in settings.tools:
        yield "web_search", _NEEDS.format("'web_search: {endpoint: URL}'")
    if not settings.tools.get("message", {}).get("channels"):
        yield "message", _NEEDS.format("a channel under 'message'")


def _unlisted(service: ServiceSpec, settings: ToolsHost, names: set[str]) -> Iterator[Diagnostic]:
    for server, said in sorted(_servers(settings).items()):
        if not said.get("internal_only", True) and not any(
            name.startswith(f"{server}{_BEHIND}") for name in names
        ):
            name = service.name.text
            message = (
                f"nothing says which tools {quote(server)} behind {quote(name)} has, so that "
                "none can be granted"
            )
            file = f".claw-discovered/{name}.claw-describe.json"
            help_text = (
                "run: mkdir -p .claw-discovered && claw tools describe --config toolhost.yml "
                f"> {file}"
            )
            yield codes.UNLISTED_SERVER.at(service.name.span, message, help_text=help_text)
