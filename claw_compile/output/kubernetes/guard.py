"""The packet filter of an agent's pod in Kubernetes (docs/spec/compile.md "Verbs"; decision 0024).

Rules. The proxy's user goes anywhere; the agent to its own pod, and to the ports of what its surfaces name. A rule can't
know their addresses: it lets out to the cluster's, and of those the policies allow what the pod may call. Nothing of a
transparent agent is redirected that stays in the pod, where the ports are its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quote
from claw_compile.grammar.pod import Surface
from claw_compile.output.compose.proxy_service import REJECTED
from claw_compile.output.deployment import Deployment
from claw_compile.output.kubernetes.container import Converter
from claw_compile.output.kubernetes.network_policy import CLUSTER, CLUSTER_6, PRIVATE, PRIVATE_6, reachable_from
from claw_compile.output.kubernetes.objects import PROXY_UID
from claw_compile.policy.agent import Agent
from claw_compile.policy.topology import has_egress, reachable_services

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
        # The cluster's own DNS: of other private addresses the policies keep it, and of public ones this rule.
        allowed += _to(PRIVATE, PRIVATE_6, "meta l4proto { tcp, udp } th dport 53")
    allowed += _surfaces(agent, whole, converter)
    lines = [
        "add table inet claw",
        "flush table inet claw",
        *(_REDIRECT if agent.mode == "transparent" else ()),
        _CLOSED,
    ]
    lines += [f"add rule inet claw leave {rule} accept" for rule in allowed]
    return "; ".join([*lines, REJECTED.format("leave")])


def _to(nets: list[str], nets_6: list[str], what: str, unlike: str = "") -> Iterator[str]:
    for family, each in (("ip", nets), ("ip6", nets_6)):
        yield f"{family} daddr {unlike}{{ {', '.join(each)} }} {what}".strip()


def _surfaces(agent: Agent, whole: Deployment, converter: Converter) -> Iterator[str]:
    open_ports: defaultdict[str, set[int]] = defaultdict(set)
    for surface in agent.surfaces:
        if surface.scheme == "egress":
            yield from _to(PRIVATE, PRIVATE_6, "", "!= ")
            if agent.mode == "transparent":
                message = f"{agent.id} reaches governed hosts only on the ports 80 and 443"
                converter.diagnostics.append(codes.SURFACE_PARTLY_REDIRECTED.at(surface.span, message))
        elif surface.scheme == "service":
            for port, protocol in _ports(agent, surface, whole, converter):
                open_ports[protocol.lower()].add(port)
    for protocol, ports in sorted(open_ports.items()):
        listed = ", ".join(str(port) for port in sorted(ports))
        yield from _to(CLUSTER, CLUSTER_6, f"meta l4proto {protocol} th dport {{ {listed} }}")
    _shared(agent, whole, converter)


def _ports(agent: Agent, surface: Surface, whole: Deployment, converter: Converter) -> set[tuple[int, str]]:
    """Return the ports of a surface that are the service's own, seen from the agent."""
    spec = next((each for each in whole.pod.services if surface.target in each.hosts), None)
    if spec is None or spec.body is None:
        return set()  # reported elsewhere
    listed = set(Converter(spec, converter.lookup, converter.pod, []).ports())
    if not listed:
        message = f"not carried over to Kubernetes: {surface.shown}, since {quote(surface.target)} names no port"
        converter.diagnostics.append(
            codes.NOT_CARRIED.at(surface.span, message, help_text="add 'expose: [\"PORT\"]' to it")
        )
    if agent.mode == "transparent" and (caught := listed & _REDIRECTED):
        code = codes.SURFACE_REDIRECTED if listed == caught else codes.SURFACE_PARTLY_REDIRECTED
        ports = " and ".join(str(port) for port, _ in sorted(caught))
        converter.diagnostics.append(code.at(surface.span, f"what {agent.id} sends to port {ports} goes to its proxy"))
        listed -= caught
    return listed


def _shared(agent: Agent, whole: Deployment, converter: Converter) -> None:
    """Warn that the agent reaches what its proxy reaches: policies do not distinguish containers of one pod."""
    named = reachable_services(agent, whole.pod)
    others = sorted(reachable_from(agent, whole) - {*named})
    if named and others:
        at = next(surface.span for surface in agent.surfaces if surface.target in named)
        message = f"on a port of its surfaces {agent.id} reaches {', '.join(others)}, too"
        converter.diagnostics.append(codes.SHARED_REACH.at(at, message))
