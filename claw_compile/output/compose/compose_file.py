"""compose.generated.yml: the pod file as Compose runs it (docs/spec/compile.md
"Output"; decision 0018).

Rules. A pure function of the pod and the compiled tree. Every key that the user wrote passes
through with its meaning, ``x-claw`` apart; ``${…}`` of theirs stays for Compose, and a ``$`` of
ours is ``$$``. Every path is relative to the file. No secret is in it.
"""

from collections.abc import Iterator

from claw_compile.grammar.pod import ServiceSpec
from claw_compile.output.compose.agent_service import agent_service
from claw_compile.output.compose.edits import drop_key, join_networks, name_ordinals, set_key
from claw_compile.output.compose.proxy_service import (
    HISTORY_VOLUME,
    STATE_VOLUME,
    compose_secrets,
    proxy_services,
)
from claw_compile.output.deployment import CLAW_KEY, Deployment
from claw_compile.output.tools_host import compose_host, tools_hosts, volume_of
from claw_compile.output.yaml_text import Data, as_yaml, entry, mapping
from claw_compile.parsing.node import Entry, MapNode

COMPOSE_FILE = "compose.generated.yml"
_HEADER = "# Made by claw compile from the pod file: edit that one.\n"


def compose(deployment: Deployment) -> bytes:
    document = drop_key(deployment.pod.document, CLAW_KEY)
    if not document.get("name"):
        document = MapNode((entry("name", deployment.pod_name), *document.entries), document.span)
    services = [each for spec in deployment.pod.services for each in _services(spec, deployment)]
    if deployment.has_proxy:
        services += proxy_services(deployment)
    if document.get("services"):
        document = set_key(document, "services", MapNode(tuple(services), document.span))
    networks: dict[str, Data] = {
        each.name: {"internal": each.internal} for each in deployment.topology.networks
    }
    for key, added in (
        ("networks", networks),
        ("volumes", _volumes(deployment)),
        ("secrets", compose_secrets(deployment) if deployment.has_proxy else {}),
    ):
        document = _add_to_section(document, key, added)
    return (_HEADER + as_yaml(document, first=("name", "services"))).encode()


def _services(spec: ServiceSpec, deployment: Deployment) -> Iterator[Entry]:
    name = spec.name.text
    agents = [agent for agent in deployment.agents if agent.spec.name.text == name]
    for agent in agents:
        key = spec.name if agent.id == name else entry(agent.id, None).key
        yield Entry(key, agent_service(agent, deployment))
    if agents:
        return
    body = spec.body
    if body is None:
        # A service that is null, or not a mapping: Compose says what it thinks of it.
        services = deployment.pod.document.value("services")
        assert isinstance(services, MapNode)
        yield from (each for each in services.entries if each.key.text == name)
        return
    body = name_ordinals(drop_key(body, CLAW_KEY), deployment.containers)
    if spec.tools_host is not None:
        body = compose_host(spec, body, deployment)
    if not body.get("network_mode"):
        joined: dict[str, Data] = dict.fromkeys(deployment.topology.of(name))
        body = join_networks(body, joined, keeps_default=True)
    yield Entry(spec.name, body)


def _volumes(deployment: Deployment) -> dict[str, Data]:
    named = {
        surface.target
        for agent in deployment.agents
        for surface in agent.surfaces
        if surface.scheme == "volume"
    }
    named |= {volume_of(service) for service in tools_hosts(deployment.pod)}
    ours = {HISTORY_VOLUME, STATE_VOLUME} if deployment.has_proxy else set()
    return dict.fromkeys(sorted(named | ours))


def _add_to_section(document: MapNode, key: str, added: dict[str, Data]) -> MapNode:
    """Add entries to a section of the file; what the user declared stays as it is."""
    node = document.value(key)
    own = node if isinstance(node, MapNode) else MapNode((), document.span)
    fresh = mapping({name: value for name, value in added.items() if not own.get(name)})
    if not fresh.entries:
        return document
    return set_key(document, key, MapNode((*own.entries, *fresh.entries), own.span, own.tag))
