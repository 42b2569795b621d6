"""The network of a pod in Kubernetes: packet filters and NetworkPolicies (docs/spec/compile.md
"Verbs"; decisions 0018, 0024).

Rules of the filter in an agent's pod. The proxy's user goes anywhere; the agent to its own pod, and
to the ports of what its surfaces name. A rule can't know their addresses: it lets out to the
cluster's, and of those the policies allow what the pod may call. Nothing of a transparent agent is
redirected that stays in the pod, where the ports are its own.

Rules of the policies. Everything of the pod is denied both ways, and what is derived is allowed: an
agent's pod reaches what its proxy calls for it and what its surfaces name, a service those that
share a Compose network with it. Nobody but who may reach the world reaches it, and the cluster's
private addresses are no part of the world. With ``--topology gateway`` there is no filter: an agent
reaches the proxies' entrances and its surfaces' ports, and the proxies what they call for anybody.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, IPv6Address

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, quote
from claw_compile.grammar.pod import PodSpec, ServiceSpec, Surface
from claw_compile.output.compose.proxy_service import REJECTED
from claw_compile.output.deployment import Deployment
from claw_compile.output.kubernetes.container import Converter
from claw_compile.output.kubernetes.gateway import ENTRANCES, parse_ip, state_server
from claw_compile.output.kubernetes.objects import (
    PROXY_UID,
    Object,
    kubernetes_object,
    labels,
    object_name,
)
from claw_compile.output.yaml_text import Data
from claw_compile.parsing.environment import Lookup
from claw_compile.parsing.node import ScalarNode, child, entries_of, items_of
from claw_compile.policy.agent import Agent
from claw_compile.policy.topology import PROXY, has_egress, hosts_in_settings, reachable_services

_API = "networking.k8s.io/v1"
CLUSTER: list[str] = ["10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"]
CLUSTER_6: list[str] = ["fc00::/7"]  # The address ranges of pods and services
PRIVATE: list[str] = sorted([*CLUSTER, "169.254.0.0/16"])
PRIVATE_6: list[str] = [*CLUSTER_6, "fe80::/10"]
NO_WORLD: list[str] = sorted(
    [
        *PRIVATE,
        "0.0.0.0/8",
        "127.0.0.0/8",
        "168.63.129.16/32",
        "192.0.0.0/24",
        "198.18.0.0/15",
        "224.0.0.0/3",
    ]
)
"""The networks that are not part of the internet, among them services that clouds
give their own machines.
"""


def _in_nat64(net: str) -> str:
    """Return the addresses of IPv6 by which a gateway for IPv4 reaches a network (RFC 6052)."""
    network = IPv4Network(net)
    return f"{IPv6Address(int(_NAT64) + int(network.network_address))}/{96 + network.prefixlen}"


_NAT64 = IPv6Address("64:ff9b::")
NO_WORLD_6: list[str] = sorted(
    [
        *PRIVATE_6,
        "::ffff:0:0/96",
        "64:ff9b:1::/48",
        "2002::/16",
        "fec0::/10",
        "ff00::/8",
        *map(_in_nat64, NO_WORLD),
    ]
)
_WORLD: Data = {
    "to": [
        {"ipBlock": {"cidr": cidr, "except": nets}}
        for cidr, nets in (("0.0.0.0/0", NO_WORLD), ("::/0", NO_WORLD_6))
    ]
}
_NAMES: Data = {
    "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
    "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
}
_REDIRECTED = {(80, "TCP"), (443, "TCP")}
_REDIRECT = (
    "add chain inet claw unaware { type nat hook output priority -100; }",
    f'add rule inet claw unaware meta skuid != {PROXY_UID} oifname != "lo" tcp dport {{ 80, 443 }} redirect to :8083',
)
_CLOSED = "add chain inet claw leave { type filter hook output priority filter; policy drop; }"
_ALWAYS = (
    f"meta skuid {PROXY_UID}",
    "ip daddr 127.0.0.0/8",
    "ip6 daddr ::1",
    "ct state established,related",
    # Without it nobody has an IPv6 neighbour, the proxy neither; the kernel sends it, for no user.
    "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit }",
)


def rules(agent: Agent, whole: Deployment, converter: Converter) -> str:
    """Return the rules for ``nft``, which is given them again when its step runs again."""
    allowed = [*_ALWAYS]
    if agent.mode == "transparent" or has_egress(agent) or reachable_services(agent, whole.pod):
        # The cluster's own DNS: of other private addresses the policies keep it, and of public ones
        # this rule.
        allowed += _to(PRIVATE, PRIVATE_6, "meta l4proto { tcp, udp } th dport 53")
    allowed += _surfaces(agent, whole, converter)
    redirect = _REDIRECT if agent.mode == "transparent" else ()
    accepted = (f"add rule inet claw leave {rule} accept" for rule in allowed)
    closed = (_CLOSED, *accepted, REJECTED.format("leave"))
    return "; ".join(("add table inet claw", "flush table inet claw", *redirect, *closed))


def _to(nets: list[str], nets_6: list[str], what: str, unlike: str = "") -> Iterator[str]:
    for family, each in (("ip", nets), ("ip6", nets_6)):
        yield f"{family} daddr {unlike}{{ {', '.join(each)} }} {what}".strip()


def _surfaces(agent: Agent, whole: Deployment, converter: Converter) -> Iterator[str]:
    open_ports: defaultdict[str, set[int]] = defaultdict(set)
    for surface in agent.surfaces:
        if surface.scheme == "egress":
            yield from _to(NO_WORLD, NO_WORLD_6, "", "!= ")
            if agent.mode == "transparent":
                message = f"{agent.id} reaches governed hosts only on the ports 80 and 443"
                converter.diagnostics.append(
                    codes.SURFACE_PARTLY_REDIRECTED.at(surface.span, message)
                )
        elif surface.scheme == "service":
            for port, protocol in _ports(agent, surface, whole, converter):
                open_ports[protocol.lower()].add(port)
    for protocol, ports in sorted(open_ports.items()):
        listed = ", ".join(str(port) for port in sorted(ports))
        yield from _to(CLUSTER, CLUSTER_6, f"meta l4proto {protocol} th dport {{ {listed} }}")
    _shared(agent, whole, converter)


def _ports(
    agent: Agent, surface: Surface, whole: Deployment, converter: Converter
) -> set[tuple[int, str]]:
    spec = next((each for each in whole.pod.services if surface.target in each.hosts), None)
    if spec is None or spec.body is None:
        return set()  # reported elsewhere
    listed = set(Converter(spec, converter.lookup, converter.pod, []).ports())
    if not listed:
        message = (
            f"not carried over to Kubernetes: {surface.shown}, since {quote(surface.target)} "
            "names no port"
        )
        help_text = "add 'expose: [\"PORT\"]' to it"
        converter.diagnostics.append(
            codes.NOT_CARRIED.at(surface.span, message, help_text=help_text)
        )
    if agent.mode == "transparent" and (caught := listed & _REDIRECTED):
        code = codes.SURFACE_REDIRECTED if listed == caught else codes.SURFACE_PARTLY_REDIRECTED
        ports = " and ".join(str(port) for port, _ in sorted(caught))
        converter.diagnostics.append(
            code.at(surface.span, f"what {agent.id} sends to port {ports} goes to its proxy")
        )
        listed -= caught
    return listed


def _shared(agent: Agent, whole: Deployment, converter: Converter) -> None:
    """Warn that the agent reaches what its proxy reaches: policies do not
    distinguish containers of one pod.
    """
    named = reachable_services(agent, whole.pod)
    others = sorted(reachable_from(agent, whole) - {*named})
    if named and others:
        at = next(surface.span for surface in agent.surfaces if surface.target in named)
        message = f"on a port of its surfaces {agent.id} reaches {', '.join(others)}, too"
        converter.diagnostics.append(codes.SHARED_REACH.at(at, message))


def deny_all(pod: str) -> Object:
    """Return the policy of everybody: nothing in, and nothing out."""
    everybody: Data = {
        "podSelector": {"matchLabels": labels(pod)},
        "policyTypes": ["Ingress", "Egress"],
    }
    return kubernetes_object(
        _API, "NetworkPolicy", object_name(pod, what="deny"), pod, spec=everybody
    )


def policies(
    deployment: Deployment, lookup: Lookup, diagnostics: list[Diagnostic]
) -> dict[str, Object]:
    """Return member → the policy that allows it something; ``cllama`` is a member
    only of a gateway.
    """
    pod = deployment.pod_name
    result: dict[str, Object] = {}
    reached = _reachability(deployment)
    narrowed = _narrowed(deployment, lookup, diagnostics) if deployment.is_gateway else {}
    beside = not deployment.is_gateway
    worldly = {
        agent.id for agent in deployment.agents if (agent.has_proxy and beside) or has_egress(agent)
    } | {PROXY}
    worldly |= {
        service.name.text
        for service in _services(deployment.pod)
        if _is_open(service, deployment.pod)
    }
    for member in sorted(reached):
        callers = [name for name in sorted(reached) if member in reached[name]]
        egress: list[Data] = (
            [{"to": _peers(pod, sorted(reached[member]))}] if reached[member] else []
        )
        egress = narrowed.get(member, egress)
        incoming: Object = {"from": _peers(pod, callers)}
        if member == PROXY:
            incoming["ports"] = [{"protocol": "TCP", "port": port} for port in ENTRANCES]
            egress += _state_rule(deployment)
        spec: Data = {
            "podSelector": {"matchLabels": labels(pod, member)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [incoming] if callers else [],
            "egress": [*egress, _NAMES, *([_WORLD] if member in worldly else [])],
        }
        result[member] = kubernetes_object(
            _API, "NetworkPolicy", object_name(pod, member), pod, spec=spec
        )
    return result


def _peers(pod: str, members: Iterable[str]) -> list[Data]:
    return [{"podSelector": {"matchLabels": labels(pod, member)}} for member in members]


def _reachability(deployment: Deployment) -> dict[str, set[str]]:
    reached = {agent.id: reachable_from(agent, deployment) for agent in deployment.agents}
    if deployment.is_gateway and deployment.has_proxy:
        reached[PROXY] = _called_hosts(deployment)
        for agent in deployment.agents:
            reached[agent.id] = _surface_hosts(agent, deployment) | (
                {PROXY} if agent.has_proxy else set()
            )
    services = _services(deployment.pod)
    for service in services:
        own = _networks(service)
        reached[service.name.text] = {
            other.name.text for other in services if other is not service and own & _networks(other)
        }
    return reached


def reachable_from(agent: Agent, deployment: Deployment) -> set[str]:
    """Return what an agent's pod may call: its surfaces, and what its proxy asks for it."""
    names = set(reachable_services(agent, deployment.pod))
    if agent.has_proxy:
        names |= {*agent.called_services, *hosts_in_settings(deployment.resolved)}
    return names & {host for service in deployment.pod.services for host in service.hosts}


def _surface_hosts(agent: Agent, deployment: Deployment) -> set[str]:
    return {*reachable_services(agent, deployment.pod)}


def _called_hosts(deployment: Deployment) -> set[str]:
    called = {
        name for agent in deployment.agents if agent.has_proxy for name in agent.called_services
    }
    called |= {*hosts_in_settings(deployment.resolved)}
    return called & {host for service in deployment.pod.services for host in service.hosts}


def _narrowed(
    deployment: Deployment, lookup: Lookup, diagnostics: list[Diagnostic]
) -> dict[str, list[Data]]:
    """Return each agent's egress in a gateway: its proxies, and of each surface the
    ports, which no filter opens there.
    """
    pod = deployment.pod_name
    result: dict[str, list[Data]] = {}
    for agent in deployment.agents:
        converter = Converter(agent.spec, lookup, pod, diagnostics)
        rules: list[Data] = [{"to": _peers(pod, [PROXY])}] if agent.has_proxy else []
        for surface in agent.surfaces:
            if surface.scheme == "service" and (
                listed := sorted(_ports(agent, surface, deployment, converter))
            ):
                ports: list[Data] = [
                    {"protocol": protocol, "port": port} for port, protocol in listed
                ]
                rules.append({"to": _peers(pod, [surface.target]), "ports": ports})
        result[agent.id] = rules
    return result


def _state_rule(deployment: Deployment) -> list[Data]:
    """Return the way to a state that is no service of the pod, by its URL: its address, its
    namespace, or our own namespace.
    """
    server = state_server(deployment)
    if server is None or server.host in {
        host for service in deployment.pod.services for host in service.hosts
    }:
        return []
    labels_of_name = server.host.split(".")
    if (address := parse_ip(server.host)) is not None:
        peer: Data = {"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}
    elif len(labels_of_name) == 1:
        peer = {"podSelector": {}}
    elif labels_of_name[2:3] == ["svc"]:
        peer = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": labels_of_name[1]}}
        }
    else:
        return []  # a public name: the proxies reach the world
    return [{"to": [peer], "ports": [{"protocol": "TCP", "port": server.port}]}]


def _services(pod: PodSpec) -> list[ServiceSpec]:
    return [
        service for service in pod.services if service.agent is None and service.body is not None
    ]


def _networks(service: ServiceSpec) -> set[str]:
    """Return the Compose networks of a service; one that names none is on ``default``."""
    node = child(service.body, "networks")
    names = {entry.key.text for entry in entries_of(node)}
    return names | {item.text for item in items_of(node) if isinstance(item, ScalarNode)} or {
        "default"
    }


def _is_open(service: ServiceSpec, pod: PodSpec) -> bool:
    internals = (child(pod.document, "networks", name, "internal") for name in _networks(service))
    return any(not (isinstance(each, ScalarNode) and each.text == "true") for each in internals)
