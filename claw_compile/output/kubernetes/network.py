"""The network of a pod in Kubernetes: packet filters and NetworkPolicies.

Specification: docs/spec/compile.md "Verbs"; decisions 0018, 0024.

Rules of the filter in an agent's pod. The proxy's user may send to anywhere. The agent may send to
its own pod, and to the ports of what its surfaces name. A rule can't know the addresses of
services, so it opens these ports to all addresses of the cluster, and the policies allow only those
that the pod may call. A transparent agent's connections within its pod are not redirected: the
ports there are its own.

Rules of the policies. One denies everything to all of the pod, both ways, and the others allow what
is derived: an agent's pod reaches what its proxy calls for it and what its surfaces name; a service
reaches the services that share a Compose network with it. The world is reached only by who may
reach it, and the cluster's private addresses are no part of the world. With ``--topology gateway``
there is no filter: an agent reaches the proxies' entrances and its surfaces' ports, and the proxies
reach what they call for any agent.
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
CLUSTER_6: list[str] = ["fc00::/7"]
"""The address ranges of pods and services."""
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
"""The networks that are not part of the internet.

Among them are the services that clouds offer to their own machines: 169.254.169.254 gives away a
node's credentials, and 168.63.129.16 is Azure's.
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
_TO_INTERNET: Data = {
    "to": [
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": NO_WORLD}},
        {"ipBlock": {"cidr": "::/0", "except": NO_WORLD_6}},
    ]
}
"""The egress rule that opens the internet."""
_TO_DNS: Data = {
    "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
    "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
}
"""The egress rule that opens the cluster's DNS."""
_REDIRECTED = {(80, "TCP"), (443, "TCP")}
_REDIRECT = (
    "add chain inet claw unaware { type nat hook output priority -100; }",
    (
        f'add rule inet claw unaware meta skuid != {PROXY_UID} oifname != "lo" '
        "tcp dport { 80, 443 } redirect to :8083"
    ),
)
_CLOSED = "add chain inet claw leave { type filter hook output priority filter; policy drop; }"
_ALWAYS = (
    f"meta skuid {PROXY_UID}",
    "ip daddr 127.0.0.0/8",
    "ip6 daddr ::1",
    "ct state established,related",
    # The kernel sends these for no user: without them nobody, not even the proxy, finds a neighbour
    # over IPv6.
    "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit }",
)


def rules(agent: Agent, whole: Deployment, converter: Converter) -> str:
    """Return the rules for ``nft``.

    They begin with a flush: the kubelet may run their step again, and a rule must not stand twice.
    """
    matches = [*_ALWAYS]
    looks_up_names = (
        agent.mode == "transparent"
        or has_egress(agent)
        or bool(reachable_services(agent, whole.pod))
    )
    if looks_up_names:
        # This rule keeps the agent from public name servers, and the policies from all private
        # addresses but the cluster's DNS.
        matches += _to(PRIVATE, PRIVATE_6, "meta l4proto { tcp, udp } th dport 53")
    matches += _allow_surfaces(agent, whole, converter)

    redirect_rules = _REDIRECT if agent.mode == "transparent" else ()
    accept_rules = [f"add rule inet claw leave {rule} accept" for rule in matches]
    commands = (
        "add table inet claw",
        "flush table inet claw",
        *redirect_rules,
        _CLOSED,
        *accept_rules,
        REJECTED.format("leave"),
    )
    return "; ".join(commands)


def _to(nets: list[str], nets_6: list[str], what: str) -> Iterator[str]:
    """Yield the match of packets ``what`` that are sent to these networks, for each IP version."""
    yield f"ip daddr {{ {', '.join(nets)} }} {what}"
    yield f"ip6 daddr {{ {', '.join(nets_6)} }} {what}"


def _to_world() -> Iterator[str]:
    yield f"ip daddr != {{ {', '.join(NO_WORLD)} }}"
    yield f"ip6 daddr != {{ {', '.join(NO_WORLD_6)} }}"


def _allow_surfaces(agent: Agent, whole: Deployment, converter: Converter) -> Iterator[str]:
    """Yield matches of what the agent may send to its surfaces.

    Report a surface that does not open all that its name promises.
    """
    open_ports: defaultdict[str, set[int]] = defaultdict(set)
    for surface in agent.surfaces:
        if surface.scheme == "egress":
            yield from _to_world()
            if agent.mode == "transparent":
                message = f"{agent.id} reaches governed hosts only on the ports 80 and 443"
                diagnostic = codes.SURFACE_PARTLY_REDIRECTED.at(surface.span, message)
                converter.diagnostics.append(diagnostic)
        elif surface.scheme == "service":
            for port, protocol in _ports(agent, surface, whole, converter):
                open_ports[protocol.lower()].add(port)

    for protocol, ports in sorted(open_ports.items()):
        port_list = ", ".join(str(port) for port in sorted(ports))
        yield from _to(CLUSTER, CLUSTER_6, f"meta l4proto {protocol} th dport {{ {port_list} }}")
    _warn_of_shared_reach(agent, whole, converter)


def _ports(
    agent: Agent, surface: Surface, whole: Deployment, converter: Converter
) -> set[tuple[int, str]]:
    """Return the ports on which an agent reaches a service, and report those that it doesn't."""
    spec = _find_service(surface.target, whole.pod)
    if spec is None or spec.body is None:
        return set()  # reported elsewhere

    # The diagnostics of this converter are dropped: the service's own conversion reports its ports.
    ports = set(Converter(spec, converter.lookup, converter.pod, []).ports())
    if not ports:
        message = (
            f"not carried over to Kubernetes: {surface.shown}, since {quote(surface.target)} "
            "names no port"
        )
        help_text = "add 'expose: [\"PORT\"]' to it"
        diagnostic = codes.NOT_CARRIED.at(surface.span, message, help_text=help_text)
        converter.diagnostics.append(diagnostic)

    redirected_ports = ports & _REDIRECTED
    if agent.mode == "transparent" and redirected_ports:
        # A warning if the agent still reaches another port of the service, else an error.
        code = codes.SURFACE_PARTLY_REDIRECTED
        if ports == redirected_ports:
            code = codes.SURFACE_REDIRECTED
        port_names = " and ".join(str(port) for port, _ in sorted(redirected_ports))
        message = f"what {agent.id} sends to port {port_names} goes to its proxy"
        converter.diagnostics.append(code.at(surface.span, message))
        ports -= redirected_ports

    return ports


def _find_service(host: str, pod: PodSpec) -> ServiceSpec | None:
    for service in pod.services:
        if host in service.hosts:
            return service
    return None


def _warn_of_shared_reach(agent: Agent, whole: Deployment, converter: Converter) -> None:
    """Warn that the agent reaches what its proxy reaches, on the ports of its surfaces.

    A policy does not distinguish the containers of one Kubernetes pod, and the packet filter only
    knows the ports.
    """
    services = reachable_services(agent, whole.pod)
    others = sorted(reachable_from(agent, whole) - {*services})
    if services and others:
        # At the first surface that opens a port: the filter can't tell whose port it is.
        at = next(surface.span for surface in agent.surfaces if surface.target in services)
        message = f"on a port of its surfaces {agent.id} reaches {', '.join(others)}, too"
        converter.diagnostics.append(codes.SHARED_REACH.at(at, message))


def deny_all(pod: str) -> Object:
    """Return the policy of everybody: nothing in, and nothing out."""
    spec: Data = {
        "podSelector": {"matchLabels": labels(pod)},
        "policyTypes": ["Ingress", "Egress"],
    }
    return kubernetes_object(_API, "NetworkPolicy", object_name(pod, what="deny"), pod, spec=spec)


def policies(whole: Deployment, lookup: Lookup, diagnostics: list[Diagnostic]) -> dict[str, Object]:
    """Return the network policy of each member of the pod: what may call it, and what it may call.

    The members are agents and services. With a gateway, the proxies are one member, ``cllama``.
    """
    pod = whole.pod_name
    reachable = _reachability(whole)
    with_internet = _members_with_internet(whole)
    gateway_egress: dict[str, list[Data]] = {}
    if whole.is_gateway:
        gateway_egress = _gateway_egress(whole, lookup, diagnostics)

    policy_of: dict[str, Object] = {}
    for member in sorted(reachable):
        # Both ends must allow a connection: the caller's egress, and the ingress of the called.
        callers = [name for name in sorted(reachable) if member in reachable[name]]
        ingress_rule: Object = {"from": _peers(pod, callers)}
        if member == PROXY:
            # An agent must not reach a proxy's other ports, such as its metrics.
            ingress_rule["ports"] = [{"protocol": "TCP", "port": port} for port in ENTRANCES]

        egress_rules: list[Data] = []
        if member in gateway_egress:
            egress_rules += gateway_egress[member]
        elif reachable[member]:
            egress_rules.append({"to": _peers(pod, sorted(reachable[member]))})
        if member == PROXY:
            egress_rules += _state_rule(whole)
        egress_rules.append(_TO_DNS)
        if member in with_internet:
            egress_rules.append(_TO_INTERNET)

        spec: Data = {
            "podSelector": {"matchLabels": labels(pod, member)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [ingress_rule] if callers else [],
            "egress": egress_rules,
        }
        name = object_name(pod, member)
        policy_of[member] = kubernetes_object(_API, "NetworkPolicy", name, pod, spec=spec)
    return policy_of


def _members_with_internet(whole: Deployment) -> set[str]:
    """Return the members that may reach the internet."""
    members = {PROXY}
    for agent in whole.agents:
        # A policy holds for all containers of a Kubernetes pod. A sidecar proxy needs the internet,
        # so its agent gets it here, too; the packet filter in the pod takes it from the agent.
        has_sidecar = agent.has_proxy and not whole.is_gateway
        if has_sidecar or has_egress(agent):
            members.add(agent.id)

    for service in _services(whole.pod):
        if _is_open(service, whole.pod):
            members.add(service.name.text)
    return members


def _peers(pod: str, members: Iterable[str]) -> list[Data]:
    return [{"podSelector": {"matchLabels": labels(pod, member)}} for member in members]


def _reachability(whole: Deployment) -> dict[str, set[str]]:
    """Return member → the hosts of the pod that it may call."""
    reachable: dict[str, set[str]] = {}
    has_fleet = whole.is_gateway and whole.has_proxy
    if has_fleet:
        reachable[PROXY] = _called_hosts(whole)

    for agent in whole.agents:
        if not has_fleet:
            reachable[agent.id] = reachable_from(agent, whole)
            continue

        reachable[agent.id] = {*reachable_services(agent, whole.pod)}
        if agent.has_proxy:
            reachable[agent.id].add(PROXY)

    services = _services(whole.pod)
    for service in services:
        own = _networks(service)
        reachable[service.name.text] = {
            other.name.text for other in services if other is not service and own & _networks(other)
        }
    return reachable


def reachable_from(agent: Agent, whole: Deployment) -> set[str]:
    """Return what an agent's pod may call: its surfaces, and what its proxy asks for it."""
    names = set(reachable_services(agent, whole.pod))
    if agent.has_proxy:
        names |= {*agent.called_services, *hosts_in_settings(whole.resolved)}
    return names & _hosts(whole.pod)


def _called_hosts(whole: Deployment) -> set[str]:
    """Return the hosts of the pod that the proxies call for any agent."""
    hosts = {*hosts_in_settings(whole.resolved)}
    for agent in whole.agents:
        if agent.has_proxy:
            hosts |= {*agent.called_services}
    return hosts & _hosts(whole.pod)


def _hosts(pod: PodSpec) -> set[str]:
    return {host for service in pod.services for host in service.hosts}


def _gateway_egress(
    whole: Deployment, lookup: Lookup, diagnostics: list[Diagnostic]
) -> dict[str, list[Data]]:
    """Return each agent's egress rules beside a gateway: its proxies, and its surfaces' ports.

    The policies name the ports, because an agent's pod has no packet filter there.
    """
    pod = whole.pod_name
    egress: dict[str, list[Data]] = {}
    for agent in whole.agents:
        converter = Converter(agent.spec, lookup, pod, diagnostics)
        rules_of_agent: list[Data] = []
        if agent.has_proxy:
            rules_of_agent.append({"to": _peers(pod, [PROXY])})

        for surface in agent.surfaces:
            if surface.scheme != "service":
                continue

            # A rule without ports would allow all of them.
            open_ports = sorted(_ports(agent, surface, whole, converter))
            if open_ports:
                ports: list[Data] = [
                    {"protocol": protocol, "port": port} for port, protocol in open_ports
                ]
                rules_of_agent.append({"to": _peers(pod, [surface.target]), "ports": ports})

        egress[agent.id] = rules_of_agent
    return egress


def _state_rule(whole: Deployment) -> list[Data]:
    """Return the egress rule for a state that is no service of the pod.

    Its URL says where it is: at an address, in a namespace (``name.namespace.svc``), or by a bare
    name in our own namespace.
    """
    server = state_server(whole)
    if server is None or server.host in _hosts(whole.pod):
        return []

    address = parse_ip(server.host)
    parts = server.host.split(".")
    if address is not None:
        peer: Data = {"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}
    elif len(parts) == 1:
        peer = {"podSelector": {}}
    elif parts[2:3] == ["svc"]:
        namespace: Data = {"kubernetes.io/metadata.name": parts[1]}
        peer = {"namespaceSelector": {"matchLabels": namespace}}
    else:
        return []  # a public name: the proxies reach the world
    return [{"to": [peer], "ports": [{"protocol": "TCP", "port": server.port}]}]


def _services(pod: PodSpec) -> list[ServiceSpec]:
    """Return the services that are no agents."""
    return [
        service for service in pod.services if service.agent is None and service.body is not None
    ]


def _networks(service: ServiceSpec) -> set[str]:
    """Return the Compose networks of a service; one that names none is on ``default``."""
    node = child(service.body, "networks")
    names = {entry.key.text for entry in entries_of(node)}
    names |= {item.text for item in items_of(node) if isinstance(item, ScalarNode)}
    return names or {"default"}


def _is_open(service: ServiceSpec, pod: PodSpec) -> bool:
    """Return whether a service reaches the world: some network of it is not ``internal``."""
    for name in _networks(service):
        internal = child(pod.document, "networks", name, "internal")
        is_internal = isinstance(internal, ScalarNode) and internal.text == "true"
        if not is_internal:
            return True
    return False
