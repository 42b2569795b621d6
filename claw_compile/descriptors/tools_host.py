"""The tools of a tools host, known without asking it (docs/spec/tools-host.md "In a pod").

Rules. Its own tools are those of ``claw_contract/tool_host_descriptor.json`` that its settings
register. Tools of servers behind it, and of third parties, have ``__`` in their names, and come
from a source of the service: a snapshot, a descriptor, or a list. A tool that can't be granted
keeps the reason.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
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
from claw_compile.parsing.node import Entry, ListNode, MapNode, Node, Source, child, items_of
from claw_contract.descriptor import DescriptorTool, DescriptorV2
from claw_contract.toolhost_file import McpServerSection

TOOLS_HOST_PATH: Final = "/mcp"
_REGISTRY: Final = "tool_host_descriptor.json"
_SEPARATOR: Final = "__"  # Between a server and its tool
_COMMANDS: Final = ("exec_shell", "spawn")
_NO_NETWORK: Final = "There is no network."
_NETWORK: Final = "The network can be reached."
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

    ``listed`` is what a source says of the servers behind it.
    """
    settings = service.tools_host
    assert settings is not None
    held_back = dict(_unregistered(settings))
    grantable: list[tuple[DescriptorTool, Node]] = []

    own = built_in_tools()
    for tool, node in _tools_with_nodes(own):
        if tool.name not in held_back:
            grantable.append((_configured(tool, settings), node))

    servers = _servers(settings)
    listed_tools = () if listed is None else _tools_with_nodes(listed)
    for tool, node in listed_tools:
        # A name without a server is that of a built-in tool. Those are taken from the registry, and
        # not from a list.
        server, separator, _ = tool.name.partition(_SEPARATOR)
        if not separator:
            continue

        if server in servers and _is_internal(servers[server]):
            held_back[tool.name] = _INTERNAL
        else:
            grantable.append((tool, node))

    described = _describe(own, listed, grantable, held_back)
    names = {tool.name for tool, _ in grantable}
    return Result(described, tuple(_unlisted(service, settings, names)))


def _describe(
    own: ServiceDescriptor,
    listed: ServiceDescriptor | None,
    grantable: Sequence[tuple[DescriptorTool, Node]],
    held_back: Mapping[str, str],
) -> ServiceDescriptor:
    """Return the descriptor of the host's own tools with the tools that can be granted instead.

    ``held_back``: the others, each with the reason.
    """
    assert isinstance(own.descriptor, DescriptorV2)
    reasons = [{"name": name, "reason": reason} for name, reason in sorted(held_back.items())]
    tools = tuple(tool for tool, _ in grantable)
    update = {"tools": tools, "discovery": {"ungrantable": reasons}}

    root = own.root
    assert isinstance(root, MapNode)
    nodes = ListNode(tuple(node for _, node in grantable), root.span)
    entries = tuple(
        Entry(entry.key, nodes) if entry.key.text == "tools" else entry for entry in root.entries
    )

    digest = own.digest
    if listed is not None:
        digest = sha256(f"{own.digest} {listed.digest}".encode())
    return replace(
        own,
        descriptor=own.descriptor.model_copy(update=update),
        digest=digest,
        root=MapNode(entries, root.span),
    )


def _tools_with_nodes(described: ServiceDescriptor) -> Iterator[tuple[DescriptorTool, Node]]:
    """Yield each tool with its place in the file."""
    nodes = items_of(child(described.root, "tools"))
    yield from zip(described.tools, nodes, strict=True)


def _configured(tool: DescriptorTool, settings: ToolsHost) -> DescriptorTool:
    """Return a tool as the host describes it with these settings.

    The registry has it with the default ones.
    """
    # A copy at every depth, because the original belongs to the registry.
    schema = json.loads(json.dumps(tool.input_schema))
    description = tool.description
    if tool.name == "message":
        channel = schema["properties"]["channel"]
        names = sorted(settings.tools.get("message", {}).get("channels", {}))
        channel["description"] = channel["description"].format(channels=", ".join(names))
    elif tool.name in _COMMANDS:
        timeout = schema["properties"]["timeout"]
        _set_times(timeout, settings, has_own_default=tool.name == "exec_shell")
        description = _command_description(description, settings)
    return tool.model_copy(update={"input_schema": schema, "description": description})


def _set_times(timeout: dict[str, Any], settings: ToolsHost, *, has_own_default: bool) -> None:
    """Set the limits of a command's ``timeout``; ``default_timeout_s`` is of one tool only."""
    own = settings.tools.get("exec", {})
    timeout["maximum"] = own.get("max_timeout_s", timeout["maximum"])
    if has_own_default:
        timeout["default"] = own.get("default_timeout_s", timeout["default"])
    timeout["default"] = min(timeout["default"], timeout["maximum"])


def _command_description(description: str, settings: ToolsHost) -> str:
    own = settings.tools.get("exec", {})
    max_running = settings.tools.get("spawn", {}).get("max_concurrent")
    if max_running is not None:
        description = _AT_ONCE.sub(f"At most {max_running} ", description)
    if own.get("network") is True:
        description = description.replace(_NO_NETWORK, _NETWORK)
    if own.get("allow"):
        description += f" Allowed programs: {', '.join(own['allow'])}."
    return description


def _servers(settings: ToolsHost) -> Mapping[str, Mapping[str, Any]]:
    servers: Mapping[str, Mapping[str, Any]] = settings.tools.get("mcp_servers", {})
    return servers


def _is_internal(server: Mapping[str, Any]) -> bool:
    default = McpServerSection.model_fields["internal_only"].default
    return bool(server.get("internal_only", default))


def _unregistered(settings: ToolsHost) -> Iterator[tuple[str, str]]:
    """Yield the built-in tools that the settings leave out, each with the reason."""
    if settings.tools.get("exec", {}).get("enabled") is not True:
        for name in _COMMANDS:
            yield name, _NEEDS.format("'exec: {enabled: true}'")
    if "web_search" not in settings.tools:
        yield "web_search", _NEEDS.format("'web_search: {endpoint: URL}'")
    if not settings.tools.get("message", {}).get("channels"):
        yield "message", _NEEDS.format("a channel under 'message'")


def _unlisted(service: ServiceSpec, settings: ToolsHost, names: set[str]) -> Iterator[Diagnostic]:
    """Yield a warning for each server that is open to grants, and has no tool in ``names``."""
    for server, section in sorted(_servers(settings).items()):
        prefix = f"{server}{_SEPARATOR}"
        is_listed = any(name.startswith(prefix) for name in names)
        if _is_internal(section) or is_listed:
            continue

        name = service.name.text
        message = (
            f"nothing says which tools {quote(server)} behind {quote(name)} has, so that "
            "none can be granted"
        )
        file = f".claw-discovered/{name}.claw-describe.json"
        help_text = (
            f"run: mkdir -p .claw-discovered && claw tools describe --config toolhost.yml > {file}"
        )
        yield codes.UNLISTED_SERVER.at(service.name.span, message, help_text=help_text)
