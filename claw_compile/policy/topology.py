"""The networks of a pod, derived from grants and surfaces (docs/spec/compile.md
"Output"; decision 0018).

    claw-agent-<id>   the agent, its proxy, and the services that it has a surface on; internal unless it has egress://
    claw-tool-<name>  the proxy and one service that it calls for somebody: tools, feeds, memory, a model server
    claw-egress       the proxy alone, and the world

No agent is on a network of another one, and no service on one for the sake of another service.
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
    """``internal``: nothing on it reaches the world.

    ``members`` are names of containers to be, ``cllama`` among them.
    """

    name: str
    internal: bool
    members: frozenset[str]


@dataclass(frozen=True)
class Topology:
    """Every derived network, by name; a service's own networks are not among them."""

    networks: tuple[Network, ...]

    def of(self, member: str) -> tuple[str, ...]:
        return tuple(network.name for network in self.networks if member in network.members)

    def reachable_from(self, agent: str) -> frozenset[str]:
        """Return what an agent reaches beside its proxy."""
        own = next(network for network in self.networks if network.name == AGENT_NETWORK + agent)
        return own.members - {agent, PROXY}


def topology(pod: PodSpec, resolved: ResolvedPod) -> Topology:
    tools = called_services(pod, resolved)
    networks = [
        Network(TOOL_NETWORK + name, internal=True, members=frozenset({name, PROXY}))
        for name in tools
    ]
    for agent in resolved.agents:
        members = {agent.id, *reachable_services(agent, pod)} | (
            {PROXY} if agent.has_proxy else set()
        )
        networks.append(
            Network(
                AGENT_NETWORK + agent.id, internal=not has_egress(agent), members=frozenset(members)
            )
        )
    if any(agent.has_proxy for agent in resolved.agents):
        networks.append(Network(EGRESS, internal=False, members=frozenset({PROXY})))
    return Topology(tuple(sorted(networks, key=lambda network: network.name)))


def has_egress(agent: Agent) -> bool:
    return any(surface.scheme == "egress" for surface in agent.surfaces)


def reachable_services(agent: Agent, pod: PodSpec) -> tuple[str, ...]:
    """Return the services that the agent reaches directly, each once; unknown ones
    are reported elsewhere.
    """
    targets = {surface.target for surface in agent.surfaces if surface.scheme == "service"}
    return tuple(sorted(targets & {host for service in pod.services for host in service.hosts}))


def called_services(pod: PodSpec, resolved: ResolvedPod) -> tuple[str, ...]:
    """Return the services of the pod that the proxy calls, for any agent."""
    names = {name for agent in resolved.agents if agent.has_proxy for name in agent.called_services}
    names |= set(hosts_in_settings(resolved))
    return tuple(sorted(name for name in names if pod.service(name) is not None))


def hosts_in_settings(resolved: ResolvedPod) -> Iterator[str]:
    """Yield hosts of URLs in the proxy's environment: a model server, a shared state."""
    for setting in resolved.proxy_env.values():
        try:
            host = urlsplit(setting.value).hostname
        except ValueError:
            continue
        if host is not None:
            yield host
