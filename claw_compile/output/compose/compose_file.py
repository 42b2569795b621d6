"""compose.generated.yml: the pod file as Compose runs it.

Specification: docs/spec/compile.md "Output"; decision 0018.

Rules. The file is a pure function of the pod and the compiled tree. Every key that the user wrote
passes through with its meaning, except ``x-claw``. ``${…}`` in the user's values stays for Compose
to fill in, and a ``$`` in ours is ``$$``. Every path is relative to the file. No secret is in it.
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
    """Return the file's content."""
    document = drop_key(deployment.pod.document, CLAW_KEY)
    if not document.get("name"):
        # Compose would otherwise take the directory's name for the project's.
        name = entry("name", deployment.pod_name)
        document = MapNode((name, *document.entries), document.span)

    services: list[Entry] = []
    for spec in deployment.pod.services:
        services.extend(_services(spec, deployment))
    if deployment.has_proxy:
        services.extend(proxy_services(deployment))
    if document.get("services"):
        document = set_key(document, "services", MapNode(tuple(services), document.span))

    networks: dict[str, Data] = {
        each.name: {"internal": each.internal} for each in deployment.topology.networks
    }
    secrets = compose_secrets(deployment) if deployment.has_proxy else {}
    document = _add_to_section(document, "networks", networks)
    document = _add_to_section(document, "volumes", _volumes(deployment))
    document = _add_to_section(document, "secrets", secrets)
    return (_HEADER + as_yaml(document, first=("name", "services"))).encode()


def _services(spec: ServiceSpec, deployment: Deployment) -> Iterator[Entry]:
    """Yield what becomes of one service of the pod file: itself, or an entry for each ordinal."""
    name = spec.name.text
    agents = [agent for agent in deployment.agents if agent.spec.name.text == name]
    if agents:
        for agent in agents:
            key = spec.name if agent.id == name else entry(agent.id, None).key
            yield Entry(key, agent_service(agent, deployment))
        return

    if spec.body is None:
        # The service is null, or no mapping. It is copied as it is, for Compose to judge.
        services = deployment.pod.document.value("services")
        assert isinstance(services, MapNode)
        for each in services.entries:
            if each.key.text == name:
                yield each
        return

    body = name_ordinals(drop_key(spec.body, CLAW_KEY), deployment.containers)
    if spec.tools_host is not None:
        body = compose_host(spec, body, deployment)
    # Compose refuses a service that has both.
    if not body.get("network_mode"):
        networks: dict[str, Data] = dict.fromkeys(deployment.topology.of(name))
        body = join_networks(body, networks, keeps_default=True)
    yield Entry(spec.name, body)


def _volumes(deployment: Deployment) -> dict[str, Data]:
    """Return the named volumes that are mounted: Compose refuses one that is not declared."""
    names = {volume_of(service) for service in tools_hosts(deployment.pod)}
    for agent in deployment.agents:
        names |= {surface.target for surface in agent.surfaces if surface.scheme == "volume"}
    if deployment.has_proxy:
        names |= {HISTORY_VOLUME, STATE_VOLUME}
    return dict.fromkeys(sorted(names))


def _add_to_section(document: MapNode, key: str, entries: dict[str, Data]) -> MapNode:
    """Add entries to a section of the file; what the user declared stays as it is."""
    node = document.value(key)
    own = node if isinstance(node, MapNode) else MapNode((), document.span)

    new_entries = mapping({name: value for name, value in entries.items() if not own.get(name)})
    if not new_entries.entries:
        return document
    section = MapNode((*own.entries, *new_entries.entries), own.span, own.tag)
    return set_key(document, key, section)
