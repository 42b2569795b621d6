"""NetworkPolicies of a pod in Kubernetes (docs/spec/compile.md "Verbs"; decision 0018).

Rules. Everything of the pod is denied both ways, and what is derived is allowed: an agent's pod reaches what its proxy
calls for it and what its surfaces name, a service those that share a Compose network with it. Nobody but who may reach
the world reaches it, and the cluster's private addresses are no part of the world.
"""

from __future__ import annotations

from collections.abc import Iterable

from claw_compile.grammar.pod import PodSpec, ServiceSpec
from claw_compile.output.deployment import Deployment
from claw_compile.output.kubernetes.objects import Object, kubernetes_object, labels, object_name
from claw_compile.output.yaml_text import Data
from claw_compile.parsing.node import ScalarNode, child, entries_of, items_of
from claw_compile.policy.agent import Agent
from claw_compile.policy.topology import has_egress, hosts_in_settings, reachable_services

_API = "networking.k8s.io/v1"
CLUSTER: list[str] = ["10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"]
CLUSTER_6: list[str] = ["fc00::/7"]
"""The address ranges of pods and services."""
PRIVATE: list[str] = sorted([*CLUSTER, "169.254.0.0/16"])
PRIVATE_6: list[str] = [*CLUSTER_6, "fe80::/10"]
_WORLD: Data = {
    "to": [
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": [*PRIVATE]}},
        {"ipBlock": {"cidr": "::/0", "except": [*PRIVATE_6]}},
    ]
}
_NAMES: Data = {
    "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
    "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
}


def deny_all(pod: str) -> Object:
    """Return the policy of everybody: nothing in, and nothing out."""
    everybody: Data = {"podSelector": {"matchLabels": labels(pod)}, "policyTypes": ["Ingress", "Egress"]}
    return kubernetes_object(_API, "NetworkPolicy", object_name(pod, what="deny"), pod, spec=everybody)


def policies(deployment: Deployment) -> dict[str, Object]:
    """Return member → the policy that allows it something."""
    pod = deployment.pod_name
    result: dict[str, Object] = {}
    reached = _reachability(deployment)
    worldly = {agent.id for agent in deployment.agents if agent.has_proxy or has_egress(agent)}
    worldly |= {service.name.text for service in _services(deployment.pod) if _is_open(service, deployment.pod)}
    for member in sorted(reached):
        callers = [name for name in sorted(reached) if member in reached[name]]
        egress: list[Data] = [{"to": _peers(pod, sorted(reached[member]))}] if reached[member] else []
        spec: Data = {
            "podSelector": {"matchLabels": labels(pod, member)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": _peers(pod, callers)}] if callers else [],
            "egress": [*egress, _NAMES, *([_WORLD] if member in worldly else [])],
        }
        result[member] = kubernetes_object(_API, "NetworkPolicy", object_name(pod, member), pod, spec=spec)
    return result


def _peers(pod: str, members: Iterable[str]) -> list[Data]:
    return [{"podSelector": {"matchLabels": labels(pod, member)}} for member in members]


def _reachability(deployment: Deployment) -> dict[str, set[str]]:
    """Return member → the members that it may call."""
    reached = {agent.id: reachable_from(agent, deployment) for agent in deployment.agents}
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
        names |= {*agent.providers, *hosts_in_settings(deployment.resolved)}
    return names & {host for service in deployment.pod.services for host in service.hosts}


def _services(pod: PodSpec) -> list[ServiceSpec]:
    return [service for service in pod.services if service.agent is None and service.body is not None]


def _networks(service: ServiceSpec) -> set[str]:
    """Return the Compose networks of a service; one that names none is on ``default``."""
    node = child(service.body, "networks")
    names = {entry.key.text for entry in entries_of(node)}
    return names | {item.text for item in items_of(node) if isinstance(item, ScalarNode)} or {"default"}


def _is_open(service: ServiceSpec, pod: PodSpec) -> bool:
    """Return whether a service is on a network that is not ``internal``."""
    internals = (child(pod.document, "networks", name, "internal") for name in _networks(service))
    return any(not (isinstance(each, ScalarNode) and each.text == "true") for each in internals)
