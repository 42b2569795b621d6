"""Project: an agent's policy → the data that is written for it, with the base URL
and credential of each provider.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.grammar.pod import PodSpec, ServiceSpec
from claw_compile.loading.load import LoadedPod
from claw_compile.policy.agent import Agent, GrantedTool, ResolvedPod
from claw_compile.policy.connect import Connections, base_url
from claw_contract.context_files import Feed, Memory, ServiceAuth
from claw_contract.descriptor import DescriptorEndpoint
from claw_contract.manifest import Execution, HttpExecution, Manifest, McpExecution, Tool
from claw_contract.names import canonical_name
from claw_contract.providers import Providers


@dataclass(frozen=True)
class ReachableService:
    """A service that the agent itself reaches.

    For one that declares tools, only its name is given.
    """

    service: str
    address: str | None = None
    description: str = ""
    endpoints: tuple[DescriptorEndpoint, ...] = ()


@dataclass(frozen=True)
class ProjectedAgent:
    """One agent, ready to be written.

    ``manifest`` is None for an agent without tools; ``epoch`` is of its token.
    """

    agent: Agent
    pod: str
    contract: bytes
    manifest: Manifest | None
    feeds: tuple[Feed, ...] = ()
    memory: Memory | None = None
    principals: tuple[ServiceAuth, ...] = ()
    reached: tuple[ReachableService, ...] = ()
    epoch: int = 0


@dataclass(frozen=True)
class ProjectedPod:
    """All that is written, but the tokens.

    ``sources``: the files that it was made from, by their path beside the pod file.
    """

    spec: PodSpec
    agents: tuple[ProjectedAgent, ...]
    descriptors: Mapping[str, ServiceDescriptor | None]
    providers: Providers | None = None
    sources: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def project(loaded: LoadedPod, resolved: ResolvedPod, connections: Connections) -> ProjectedPod:
    agents = tuple(_agents(loaded, resolved, connections))
    return ProjectedPod(
        loaded.pod, agents, loaded.descriptors, connections.model_providers, loaded.sources
    )


def _agents(
    loaded: LoadedPod, resolved: ResolvedPod, connections: Connections
) -> Iterator[ProjectedAgent]:
    assert loaded.pod.name is not None
    name = loaded.pod.name.text
    epochs = loaded.lock.content.epochs if loaded.lock else {}
    return (
        ProjectedAgent(
            agent=agent,
            pod=name,
            contract=loaded.contracts[agent.spec.name.text],
            manifest=_manifest(agent, connections),
            feeds=connections.feeds.get(agent.id, ()),
            memory=connections.memories.get(agent.id),
            principals=tuple(_principals(agent, connections)),
            reached=tuple(
                _reached(loaded, service) for service in _surface_services(agent, loaded)
            ),
            epoch=epochs.get(agent.id, 0),
        )
        for agent in resolved.agents
    )


def _manifest(agent: Agent, connections: Connections) -> Manifest | None:
    tools = tuple(_tool(agent, granted, connections) for granted in agent.tools)
    return Manifest(version=1, tools=tools, policy=agent.policy) if tools else None


def _tool(agent: Agent, granted: GrantedTool, connections: Connections) -> Tool:
    declared = granted.tool
    tool = Tool(
        name=canonical_name(granted.service, declared.name),
        description=declared.description,
        input_schema=declared.input_schema,
        annotations=declared.annotations,
        execution=_execution(agent, granted, connections),
    )
    return (
        tool
        if agent.delivery == "mediated"
        else tool.model_copy(update={"delivery": agent.delivery})
    )


def _execution(agent: Agent, granted: GrantedTool, connections: Connections) -> Execution:
    http, provider = granted.tool.http, connections.providers[granted.service]
    auth = connections.auth(agent, granted.service)
    if http is None:
        assert provider.mcp_path is not None
        return McpExecution(
            transport="mcp",
            service=provider.name,
            base_url=provider.base_url,
            path=provider.mcp_path,
            tool_name=granted.tool.name,
            auth=auth,
        )
    return HttpExecution(
        transport="http",
        service=provider.name,
        base_url=provider.base_url,
        method=http.method,
        path=http.path,
        **http.model_dump(include={"body", "body_key"}, exclude_none=True),
        auth=auth,
    )


def _principals(agent: Agent, connections: Connections) -> Iterable[ServiceAuth]:
    for service, held in sorted(connections.principals.get(agent.id, {}).items()):
        yield ServiceAuth(
            service=service, auth_type="bearer", token=held.auth.token, principal=held.principal
        )


def _surface_services(agent: Agent, loaded: LoadedPod) -> Iterable[ServiceSpec]:
    for name in sorted(
        {surface.target for surface in agent.surfaces if surface.scheme == "service"}
    ):
        if (service := loaded.pod.service(name)) is not None:
            yield service


def _reached(loaded: LoadedPod, service: ServiceSpec) -> ReachableService:
    name = service.name.text
    service_descriptor = loaded.descriptors.get(name)
    if service_descriptor is not None and service_descriptor.tools:
        return ReachableService(name, description=service_descriptor.descriptor.description)
    listens = (
        service.base_url is not None or service.expose is not None or service.ports is not None
    )
    # What is wrong with its ports is reported where the proxy needs them.
    address = base_url(service, loaded.variables.lookup, []) if listens else None
    if service_descriptor is None:
        return ReachableService(name, address)
    descriptor = service_descriptor.descriptor
    return ReachableService(name, address, descriptor.description, descriptor.endpoints)
