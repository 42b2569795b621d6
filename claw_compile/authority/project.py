"""Project: an agent's authority → its manifest, with the base URL and the credential of each provider filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from claw_compile.authority.agent import Agent, GrantedTool, Resolved
from claw_compile.authority.credentials import project_auth, visible_tokens
from claw_compile.authority.ports import base_url
from claw_compile.diagnostics.diagnostic import Checked, Diagnostic
from claw_compile.loading.load import Loaded
from claw_contract.descriptor import DescriptorV2
from claw_contract.manifest import Auth, Execution, HttpExecution, Manifest, McpExecution, Tool
from claw_contract.names import canonical_name


@dataclass(frozen=True)
class Provider:
    """A service as the proxy reaches it. ``mcp_path`` is None for plain HTTP."""

    name: str
    base_url: str
    mcp_path: str | None
    auth: Auth


@dataclass(frozen=True)
class Projected:
    """One agent, ready to be written. ``manifest`` is None for an agent without tools; ``epoch`` is of its token."""

    agent: Agent
    pod: str
    contract: bytes
    manifest: Manifest | None
    epoch: int = 0


def connect(loaded: Loaded, resolved: Resolved) -> Checked[Mapping[str, Provider]]:
    """Every provider of an agent's tools, feeds or memory; what is missing (a port, a token) is reported."""
    found: list[Diagnostic] = []
    lookup = loaded.variables.lookup
    providers: dict[str, Provider] = {}
    for name in sorted({name for agent in resolved.agents for name in agent.providers}):
        service, described = loaded.pod.service(name), loaded.described.get(name)
        if service is None or (described is None and name in loaded.described):
            continue
        url = base_url(service, lookup, found)
        auth = project_auth(service, described, lookup, found)
        descriptor = described.descriptor if described is not None else None
        mcp = descriptor.mcp if isinstance(descriptor, DescriptorV2) else None
        if url is not None and auth is not None:
            providers[name] = Provider(name, url, mcp.path if mcp else None, auth)
    auths = {name: provider.auth for name, provider in providers.items()}
    found.extend(visible_tokens(loaded.pod, auths, loaded.master, lookup))
    return Checked(providers, tuple(found))


def project(loaded: Loaded, resolved: Resolved, providers: Mapping[str, Provider]) -> tuple[Projected, ...]:
    """Every agent with its manifest, of a pod without errors."""
    assert loaded.pod.name is not None
    name = loaded.pod.name.text
    epochs = loaded.lock.content.epochs if loaded.lock else {}
    return tuple(
        Projected(
            agent, name, loaded.contracts[agent.spec.name.text], _manifest(agent, providers), epochs.get(agent.id, 0)
        )
        for agent in resolved.agents
    )


def _manifest(agent: Agent, providers: Mapping[str, Provider]) -> Manifest | None:
    tools = tuple(_tool(granted, providers[granted.service]) for granted in agent.tools)
    return Manifest(version=1, tools=tools, policy=agent.policy) if tools else None


def _tool(granted: GrantedTool, provider: Provider) -> Tool:
    declared = granted.tool
    return Tool(
        name=canonical_name(granted.service, declared.name),
        description=declared.description,
        input_schema=declared.input_schema,
        annotations=declared.annotations,
        execution=_execution(granted, provider),
    )


def _execution(granted: GrantedTool, provider: Provider) -> Execution:
    http = granted.tool.http
    if http is None:
        assert provider.mcp_path is not None
        return McpExecution(
            transport="mcp",
            service=provider.name,
            base_url=provider.base_url,
            path=provider.mcp_path,
            tool_name=granted.tool.name,
            auth=provider.auth,
        )
    return HttpExecution(
        transport="http",
        service=provider.name,
        base_url=provider.base_url,
        method=http.method,
        path=http.path,
        **http.model_dump(include={"body", "body_key"}, exclude_none=True),
        auth=provider.auth,
    )
