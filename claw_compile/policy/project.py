"""Project: from each agent's permissions to the data that is written for it."""

from collections.abc import Iterable, Mapping
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

    Of a service with tools the agent is told no address: it calls them through the proxy.
    """

    service: str
    address: str | None = None
    description: str = ""
    endpoints: tuple[DescriptorEndpoint, ...] = ()


@dataclass(frozen=True)
class ProjectedAgent:
    """One agent, ready to be written.

    ``manifest`` is None for an agent without tools. ``epoch`` counts the rotations of its token.
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
    """Everything that is written, except the tokens.

    ``sources`` are the files that it was made from, by their path relative to the pod file.
    """

    spec: PodSpec
    agents: tuple[ProjectedAgent, ...]
    descriptors: Mapping[str, ServiceDescriptor | None]
    providers: Providers | None = None
    sources: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def project(loaded: LoadedPod, resolved: ResolvedPod, connections: Connections) -> ProjectedPod:
    """Return everything that is written for the pod. Its name was read without an error."""
    assert loaded.pod.name is not None
    pod_name = loaded.pod.name.text
    agents = tuple(_agent(pod_name, agent, loaded, connections) for agent in resolved.agents)
    return ProjectedPod(
        spec=loaded.pod,
        agents=agents,
        descriptors=loaded.descriptors,
        providers=connections.model_providers,
        sources=loaded.sources,
    )


def _agent(
    pod_name: str, agent: Agent, loaded: LoadedPod, connections: Connections
) -> ProjectedAgent:
    epochs = loaded.lock.content.epochs if loaded.lock else {}
    reached = [_reached(loaded, service) for service in _surface_services(agent, loaded)]
    return ProjectedAgent(
        agent=agent,
        pod=pod_name,
        contract=loaded.contracts[agent.spec.name.text],
        manifest=_manifest(agent, connections),
        feeds=connections.feeds.get(agent.id, ()),
        memory=connections.memories.get(agent.id),
        principals=tuple(_principals(agent, connections)),
        reached=tuple(reached),
        epoch=epochs.get(agent.id, 0),
    )


def _manifest(agent: Agent, connections: Connections) -> Manifest | None:
    tools = tuple(_tool(agent, granted, connections) for granted in agent.tools)
    if not tools:
        return None
    return Manifest(version=1, tools=tools, policy=agent.policy)


def _tool(agent: Agent, granted: GrantedTool, connections: Connections) -> Tool:
    declared = granted.tool
    tool = Tool(
        name=canonical_name(granted.service, declared.name),
        description=declared.description,
        input_schema=declared.input_schema,
        annotations=declared.annotations,
        execution=_execution(agent, granted, connections),
    )

    # Only fields that are set are written, so that the default adds no line to the file.
    if agent.delivery == "mediated":
        return tool
    return tool.model_copy(update={"delivery": agent.delivery})


def _execution(agent: Agent, granted: GrantedTool, connections: Connections) -> Execution:
    service = connections.services[granted.service]
    auth = connections.auth(agent, granted.service)
    http = granted.tool.http

    if http is None:
        # A descriptor whose tools have no ``http`` declares ``mcp``.
        assert service.mcp_path is not None
        return McpExecution(
            transport="mcp",
            service=service.name,
            base_url=service.base_url,
            path=service.mcp_path,
            tool_name=granted.tool.name,
            auth=auth,
        )

    return HttpExecution(
        transport="http",
        service=service.name,
        base_url=service.base_url,
        method=http.method,
        path=http.path,
        **http.model_dump(include={"body", "body_key"}, exclude_none=True),
        auth=auth,
    )


def _principals(agent: Agent, connections: Connections) -> Iterable[ServiceAuth]:
    own = connections.principals.get(agent.id, {})
    for service, credential in sorted(own.items()):
        yield ServiceAuth(
            service=service,
            auth_type="bearer",
            token=credential.auth.token,
            principal=credential.principal,
        )


def _surface_services(agent: Agent, loaded: LoadedPod) -> Iterable[ServiceSpec]:
    names = {surface.target for surface in agent.surfaces if surface.scheme == "service"}
    for name in sorted(names):
        service = loaded.pod.service(name)
        if service is not None:
            yield service


def _reached(loaded: LoadedPod, service: ServiceSpec) -> ReachableService:
    name = service.name.text
    service_descriptor = loaded.descriptors.get(name)
    if service_descriptor is not None and service_descriptor.tools:
        return ReachableService(name, description=service_descriptor.descriptor.description)

    # What is wrong with its ports is reported where the proxy needs them.
    has_address = any(
        each is not None for each in (service.base_url, service.expose, service.ports)
    )
    address = base_url(service, loaded.variables.lookup, []) if has_address else None
    if service_descriptor is None:
        return ReachableService(name, address)

    descriptor = service_descriptor.descriptor
    return ReachableService(name, address, descriptor.description, descriptor.endpoints)
