"""Check: Compose keys that would let an agent reach more than its policy allows (decision 0018).

Rules. What lets an agent round its proxy without being asked for is an error; what the pod file says in so many words
is kept, with a warning. Names of networks, volumes and secrets that the compiler adds are the compiler's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, quote
from claw_compile.grammar.pod import PodSpec, ServiceSpec
from claw_compile.parsing.node import Entry, MapNode, ScalarNode, child, entries_of, items_of
from claw_compile.policy.agent import ResolvedPod
from claw_compile.policy.topology import Topology, called_services, has_egress, topology

MAX_NETWORKS = 25
"""Docker's default address pools hold about 30 networks, and other pods want some."""
_OURS = {
    "networks": re.compile(r"claw-(agent-.*|tool-.*|egress)"),
    "volumes": re.compile(r"claw-(history|state)"),
    "secrets": re.compile(r"claw-.*"),
}
_OUR_REAL_NETWORK = re.compile(r".*[_-]" + _OURS["networks"].pattern, re.DOTALL)
"""Our network as Docker calls it: the project's name comes first."""
_SHARED = ("network_mode", "pid", "ipc")


def check_reach(pod: PodSpec, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Report every place of the file that contradicts the derived networks."""
    if not resolved.agents:
        return
    topology_of_pod = topology(pod, resolved)
    yield from _check_reserved_names(pod)
    yield from _check_network_count(pod, topology_of_pod)
    provider_names = called_services(pod, resolved)
    for service in pod.services:
        yield from _check_shared_namespaces(service, pod)
        yield from _check_networks(service)
        yield from _check_extends(service, pod)
        mode = _nonempty(service, "network_mode")
        if mode and service.name.text in provider_names and service.base_url is None and service.agent is None:
            message = f"the proxy can't be on a network with {service.name.text}"
            yield codes.PROVIDER_NETWORK_MODE.at(mode.key.span, message)
    for service in pod.agents:
        yield from _check_agent(service, resolved)


def _check_agent(service: ServiceSpec, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    name = service.name.text
    if mode := _nonempty(service, "network_mode"):
        yield codes.AGENT_NETWORK_MODE.at(mode.key.span, f"{name} would be on a network that is not derived")
    if networks := _nonempty(service, "networks"):
        message = f"{name} reaches everything on these networks, past its policy"
        yield codes.AGENT_ON_OWN_NETWORK.at(networks.key.span, message)
    internal = not any(has_egress(agent) for agent in resolved.agents if agent.spec is service)
    if (ports := _nonempty(service, "ports")) and internal and not networks:
        yield codes.PORTS_NOT_PUBLISHED.at(ports.key.span, f"{name} is on internal networks only")


def _nonempty(service: ServiceSpec, key: str) -> Entry | None:
    """Return the entry of a key, where it holds something."""
    entry = service.body.get(key) if service.body is not None else None
    node = entry.value if entry is not None else None
    if isinstance(node, ScalarNode):
        return entry if node.text and not node.is_null else None
    return entry if items_of(node) or entries_of(node) else None


def _check_shared_namespaces(service: ServiceSpec, pod: PodSpec) -> Iterator[Diagnostic]:
    """Check ``network_mode: service:NAME`` and its like."""
    for key in _SHARED:
        entry = _nonempty(service, key)
        if entry and isinstance(entry.value, ScalarNode) and entry.value.text.startswith("service:"):
            yield from _check_counted_reference(entry.value, entry.value.text.removeprefix("service:"), pod)


def _check_networks(service: ServiceSpec) -> Iterator[Diagnostic]:
    """Report a network of the compiler's own: on it, a container would reach what it may not."""
    entry = _nonempty(service, "networks")
    node = entry.value if entry else None
    keys = (each.key for each in entries_of(node))
    for name in (*keys, *(item for item in items_of(node) if isinstance(item, ScalarNode))):
        if _OURS["networks"].fullmatch(name.text):
            message = f"{quote(name.text)} is one of the compiler's own networks"
            yield codes.RESERVED_NAME.at(name.span, message, help_text="name what is reached in 'surfaces' or 'tools'")


def _check_extends(service: ServiceSpec, pod: PodSpec) -> Iterator[Diagnostic]:
    entry = _nonempty(service, "extends")
    node = entry.value if entry else None
    if isinstance(node, MapNode):
        node = None if node.get("file") else node.value("service")
    target = pod.service(node.text) if isinstance(node, ScalarNode) else None
    if target is not None and target.agent is not None and isinstance(node, ScalarNode):
        notes = [Note(target.name.span, "the agent is here")]
        message = f"{service.name.text} would get the credential of {target.name.text}"
        yield codes.EXTENDS_AGENT.at(node.span, message, notes=notes)


def _check_counted_reference(node: ScalarNode, name: str, pod: PodSpec) -> Iterator[Diagnostic]:
    target = pod.service(name)
    if target is not None and target.count > 1:
        notes = [Note(target.count_key, "'count' is here")] if target.count_key else []
        message = f"{quote(name)} is {target.count} containers"
        yield codes.COUNTED_REFERENCE.at(node.span, message, notes=notes)


def _check_reserved_names(pod: PodSpec) -> Iterator[Diagnostic]:
    for section, ours in _OURS.items():
        node = pod.document.value(section)
        for entry in entries_of(node):
            real = child(entry.value, "name")
            if section == "networks" and isinstance(real, ScalarNode) and _OUR_REAL_NETWORK.fullmatch(real.text):
                message = f"{quote(real.text)} is a name of the compiler's own {section}"
                yield codes.RESERVED_NAME.at(real.span, message)
            if ours.fullmatch(entry.key.text):
                message = f"{quote(entry.key.text)} is a name of the compiler's own {section}"
                yield codes.RESERVED_NAME.at(entry.key.span, message)


def _check_network_count(pod: PodSpec, topology_of_pod: Topology) -> Iterator[Diagnostic]:
    if len(topology_of_pod.networks) > MAX_NETWORKS:
        services = pod.document.get("services")
        assert services is not None
        yield codes.MANY_NETWORKS.at(services.key.span, f"the pod needs {len(topology_of_pod.networks)} networks")
