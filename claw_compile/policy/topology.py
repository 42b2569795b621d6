"""The networks of a pod, derived from grants and surfaces.

Specification: docs/spec/compile.md, "Output"; decision 0018.

    claw-agent-<id>   the agent, its proxy, and the services that it has a surface on;
                      internal unless the agent has egress://
    claw-tool-<name>  the proxy, and one service that it calls for any agent: tools, feeds, memory,
                      a model server; internal
    claw-egress       the proxy alone, and the world

No agent is on another agent's network. No service is on a network that is another service's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from claw_compile.grammar.pod import PodSpec
from claw_compile.policy.agent import Agent, ResolvedPod

PROXY = "cllama"
EGRESS = "claw-egress"
AGENT_NETWORK = "claw-agent-"
TOOL_NETWORK = "claw-tool-"


@dataclass(frozen=True)
class Network:
    """One derived network. From an ``internal`` one nothing reaches the world.

    ``members`` are the names of future containers, ``cllama`` among them.
    """

    name: str
    internal: bool
    members: frozenset[str]


@dataclass(frozen=True)
class NetworkTopology:
    """Every derived network, by name. The pod file's own networks are not among them."""

    networks: tuple[Network, ...]

    def of(self, member: str) -> tuple[str, ...]:
        """Return the names of a container's networks."""
        return tuple(network.name for network in self.networks if member in network.members)

    def reachable_from(self, agent: str) -> frozenset[str]:
        """Return the names of the containers that an agent reaches, other than its proxy."""
        own = next(network for network in self.networks if network.name == AGENT_NETWORK + agent)
        return own.members - {agent, PROXY}


def topology(pod: PodSpec, resolved: ResolvedPod) -> NetworkTopology:
    """Derive the networks of a pod."""
    networks: list[Network] = []
    for name in called_services(pod, resolved):
        members = frozenset({name, PROXY})
        networks.append(Network(TOOL_NETWORK + name, internal=True, members=members))

    for agent in resolved.agents:
        names = {agent.id, *reachable_services(agent, pod)}
        if agent.has_proxy:
            names.add(PROXY)
        is_internal = not has_egress(agent)
        members = frozenset(names)
        networks.append(Network(AGENT_NETWORK + agent.id, internal=is_internal, members=members))

    if any(agent.has_proxy for agent in resolved.agents):
        networks.append(Network(EGRESS, internal=False, members=frozenset({PROXY})))

    return NetworkTopology(tuple(sorted(networks, key=lambda network: network.name)))


def has_egress(agent: Agent) -> bool:
    return any(surface.scheme == "egress" for surface in agent.surfaces)


def reachable_services(agent: Agent, pod: PodSpec) -> tuple[str, ...]:
    """Return the hosts that the agent reaches directly, each once; unknown ones are left out."""
    targets = {surface.target for surface in agent.surfaces if surface.scheme == "service"}
    hosts = {host for service in pod.services for host in service.hosts}
    return tuple(sorted(targets & hosts))


def called_services(pod: PodSpec, resolved: ResolvedPod) -> tuple[str, ...]:
    """Return the services of the pod that the proxy calls, for any agent or for itself."""
    names = set(hosts_in_settings(resolved))
    for agent in resolved.agents:
        if agent.has_proxy:
            names.update(agent.called_services)

    return tuple(sorted(name for name in names if pod.service(name) is not None))


def hosts_in_settings(resolved: ResolvedPod) -> Iterator[str]:
    """Yield hosts of URLs in the proxy's environment, such as a model server or a shared state."""
    for variable in resolved.proxy_env.values():
        try:
            host = urlsplit(variable.value).hostname
        except ValueError:
            # Any value may be here, also one that is no URL.
            continue
        if host is not None:
            yield host
