"""Check services: what their containers reach, whether images may change, whether names collide.

The rules:

- What lets an agent bypass its proxy without the pod file saying so is an error (decision 0018).
  What the pod file says in so many words is kept, with a warning at each place. Power over the host
  is: privileges, capabilities that reach beyond the container, devices, the socket or group of a
  container engine, and directories of the host itself.
- What a service gets from another one, by ``extends`` or ``volumes_from``, counts as its own.
- An image needs a tag or a digest.
- A counted service has no host of its own name, and the name of an ordinal may be no other
  service's.
- Some names of services, networks, volumes and secrets are the compiler's.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Span, quote
from claw_compile.grammar.pod import PodSpec, ServiceSpec, own_entries
from claw_compile.loading.leak_inputs import AgentService
from claw_compile.loading.load import LoadedPod
from claw_compile.loading.private_paths import host_directory
from claw_compile.parsing.environment import interpolate
from claw_compile.parsing.node import (
    Entry,
    MapNode,
    ScalarNode,
    child,
    entries_of,
    items_of,
    plain_data,
)
from claw_compile.policy.agent import Agent, ResolvedPod
from claw_compile.policy.topology import called_services, has_egress, topology

MAX_NETWORKS = 25
"""Docker's default address pools hold about 30 networks, and other projects need some."""
_OURS = {
    "networks": re.compile(r"claw-(agent-.*|tool-.*|egress)"),
    "volumes": re.compile(r"claw-(history|state)"),
    "secrets": re.compile(r"claw-.*"),
}
_OUR_REAL_NETWORK = re.compile(r".*[_-]" + _OURS["networks"].pattern, re.DOTALL)
"""Our network under Docker's name for it, which begins with the project's name."""
# Keys that may name the container of another service, as ``service:NAME``.
_SHARED = ("network_mode", "pid", "ipc")
_SOCKETS = ("docker.sock", "containerd.sock", "podman.sock", "crio.sock", "docker_engine")
_GROUPS = {"docker", "podman", "containerd", "lxd", "incus", "disk"}
"""Groups whose members may use an engine's socket, or the host's disks.

Only names are matched: which group a number stands for differs from host to host.
"""
CAPABILITIES = {
    "ALL",
    "BPF",
    "DAC_READ_SEARCH",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_RAW",
    "PERFMON",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_MODULE",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_TIME",
}
"""Linux capabilities that reach beyond the container (capabilities(7))."""
_SWITCHES = {
    "privileged": "it is privileged",
    "use_api_socket": (
        "it has the socket of a container engine, and the credentials of its registries"
    ),
}
"""Keys that give power over the host when they are true, and the words for it."""
_LISTS: dict[str, tuple[Callable[[str], bool], str]] = {
    "cap_add": (
        lambda name: name.upper().removeprefix("CAP_") in CAPABILITIES,
        "it has the capability {}",
    ),
    "group_add": (lambda name: name in _GROUPS, "it is in the group {}"),
}
"""Lists of which some entries give power over the host, and the words for such an entry."""
# Keys that may share a namespace with the host, as ``host``.
_NAMESPACES = ("pid", "ipc", "uts", "userns_mode", "cgroup")
_MOVING = "latest"
# Services of the compiler, and of the original system.
_RESERVED = re.compile(r"cllama(-.*)?|clawdash|claw-(api|wall)")
# The names that Compose takes for a service, without ``.`` and ``..``, which would be directories.
_COMPOSE_NAME = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]+")


def check_host(loaded: LoadedPod, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Warn at every place that gives an agent power over its host."""
    for agent in resolved.agents:
        name = agent.spec.name.text
        powers: list[tuple[Span, str]] = []
        services = loaded.agent_services.get(name, ())
        for service in services:
            powers.extend(_powers(service.body))
        for service in services:
            powers.extend(_mounts(service))
        powers.extend(_host_surfaces(agent))

        # A path that the agent takes itself and from a service that it extends is reported once.
        for span, what in dict.fromkeys(powers):
            message = f"{name} could take over its host, and its proxy with it: {what}"
            yield codes.AGENT_TAKES_HOST.at(span, message)


def _powers(body: MapNode) -> Iterator[tuple[Span, str]]:
    """Yield the keys of a service that give it power over its host, with the words for each."""
    for key, what in _SWITCHES.items():
        node = body.value(key)
        if isinstance(node, ScalarNode) and plain_data(node) is True:
            yield node.span, what

    for key, (is_power, what) in _LISTS.items():
        for item in items_of(body.value(key)):
            if isinstance(item, ScalarNode) and is_power(item.text):
                yield item.span, what.format(quote(item.shown))

    for key in _NAMESPACES:
        node = body.value(key)
        if isinstance(node, ScalarNode) and node.text == "host":
            yield node.span, f"it shares {quote(key)} with the host"

    for key in ("devices", "device_cgroup_rules"):
        devices = items_of(body.value(key))
        if devices:
            yield devices[0].span, "it has devices of the host"


def _mounts(service: AgentService) -> Iterator[tuple[Span, str]]:
    for exposure in service.exposures:
        what = _host_access(exposure.path)
        if what is not None:
            yield exposure.at, what


def _host_surfaces(agent: Agent) -> Iterator[tuple[Span, str]]:
    for surface in agent.surfaces:
        what = _host_access(surface.target) if surface.scheme == "host" else None
        if what is not None:
            yield surface.span, what


def _host_access(path: str) -> str | None:
    """Return what a mount of the path gives its container, in words; None for nothing of note."""
    name = path.rstrip("/").rpartition("/")[2]
    if name in _SOCKETS:
        return "it has the socket of a container engine"

    directory = host_directory(path)
    return f"it has {quote(directory)} of the host" if directory is not None else None


def check_images(loaded: LoadedPod, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Warn about agents, and services that they use, whose image may be another one tomorrow."""
    used: set[str] = set()
    for agent in resolved.agents:
        used.add(agent.spec.name.text)
        used.update(agent.called_services)

    for service in loaded.pod.services:
        image = child(service.body, "image")
        is_built = child(service.body, "build") is not None
        if service.name.text not in used or is_built:
            continue
        if not isinstance(image, ScalarNode) or image.is_null:
            continue

        reference = interpolate(image.text, loaded.variables.lookup).text
        if not _is_pinned(reference):
            message = (
                f"the image of {service.name.text} names no version, and may be another one "
                "tomorrow"
            )
            yield codes.UNPINNED_IMAGE.at(image.span, message)


def _is_pinned(image: str) -> bool:
    """Return whether an image's reference has a digest, or a tag other than ``latest``."""
    if "@" in image:
        return True

    # A colon before the last slash belongs to the registry's port.
    name = image.rpartition("/")[2]
    _, _, tag = name.partition(":")
    return tag not in {"", _MOVING}


def check_names(pod: PodSpec) -> Iterator[Diagnostic]:
    """Report names of services that are reserved, that Compose refuses, or that collide."""
    hosts: dict[str, ServiceSpec] = {}
    services = {service.name.text: service for service in pod.services}
    for service in pod.services:
        name = service.name.text
        at = service.name.span

        if _RESERVED.fullmatch(name.lower()):
            message = f"{quote(name)} is a name of the compiler's own services"
            yield codes.RESERVED_NAME.at(at, message)

        # The name of an agent is checked more strictly where the file is read.
        if service.agent is None and not _COMPOSE_NAME.fullmatch(name):
            yield codes.BAD_SERVICE_NAME.at(at, f"{quote(name)} can't name a service")

        # Host names have no case.
        first = hosts.setdefault(name.lower(), service)
        if first is not service:
            message = f"{quote(name)} and {quote(first.name.text)} are one host"
            notes = [Note(first.name.span, "the other one is here")]
            yield codes.SAME_HOST.at(at, message, notes=notes)

        if service.count > 1:
            yield from _ordinal_collisions(service, services)


def _ordinal_collisions(
    service: ServiceSpec, services: Mapping[str, ServiceSpec]
) -> Iterator[Diagnostic]:
    name = service.name.text
    for host in service.hosts:
        other = services.get(host)
        if other is None:
            continue

        message = f"{quote(host)} is one of the agents of {quote(name)}"
        at = service.count_key or service.name.span
        notes = [Note(at, f"'count' of {name} makes it")]
        yield codes.ORDINAL_COLLISION.at(other.name.span, message, notes=notes)


def check_counted_services(loaded: LoadedPod, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Report uses of a counted service's own name: no host has it."""
    for name, span in _host_names(loaded.pod, resolved):
        service = loaded.pod.service(name)
        if service is None or service.count == 1:
            continue

        first, *_, last = service.hosts
        message = f"no container is called {quote(name)}: there are {first} to {last}"
        notes = [Note(service.count_key, "'count' is here")] if service.count_key else []
        help_text = (
            "name one of them, or give what it provides a service of its own, without 'count'"
        )
        yield codes.COUNTED_PROVIDER.at(span, message, notes=notes, help_text=help_text)


def _host_names(pod: PodSpec, resolved: ResolvedPod) -> Iterator[tuple[str, Span]]:
    """Yield the places where services are named as hosts: grants, surfaces, memories, feeds."""
    for owner in pod.owners:
        for grant in own_entries(owner.tools):
            yield grant.service.text, grant.service.span
        for surface in own_entries(owner.surfaces):
            if surface.scheme == "service":
                yield surface.target, surface.span
        if owner.memory is not None and owner.memory.service is not None:
            yield owner.memory.service.text, owner.memory.service.span

    for agent in resolved.agents:
        for feed in agent.feeds:
            yield feed.service, feed.span


def check_reach(pod: PodSpec, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Report every place of the file that contradicts the derived networks."""
    if not resolved.agents:
        return

    yield from _check_reserved_names(pod)

    networks = topology(pod, resolved).networks
    if len(networks) > MAX_NETWORKS:
        services = pod.document.get("services")
        assert services is not None
        message = f"the pod needs {len(networks)} networks"
        yield codes.MANY_NETWORKS.at(services.key.span, message)

    called = called_services(pod, resolved)
    for service in pod.services:
        yield from _check_shared_namespaces(service, pod)
        yield from _check_networks(service)
        yield from _check_extends(service, pod)
        if service.name.text in called:
            yield from _check_called_service(service)

    for service in pod.agents:
        yield from _check_agent(service, resolved)


def _check_called_service(service: ServiceSpec) -> Iterator[Diagnostic]:
    """Report ``network_mode`` of a service that has to be on a network with the proxy."""
    mode = _nonempty(service, "network_mode")
    if mode is None or service.base_url is not None or service.agent is not None:
        return

    message = f"the proxy can't be on a network with {service.name.text}"
    yield codes.PROVIDER_NETWORK_MODE.at(mode.key.span, message)


def _check_agent(service: ServiceSpec, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    name = service.name.text
    mode = _nonempty(service, "network_mode")
    networks = _nonempty(service, "networks")
    ports = _nonempty(service, "ports")

    if mode is not None:
        message = f"{name} would be on a network that is not derived"
        yield codes.AGENT_NETWORK_MODE.at(mode.key.span, message)
    if networks is not None:
        message = f"{name} reaches everything on these networks, past its policy"
        yield codes.AGENT_ON_OWN_NETWORK.at(networks.key.span, message)

    agents = [agent for agent in resolved.agents if agent.spec is service]
    is_internal = networks is None and not any(has_egress(agent) for agent in agents)
    if ports is not None and is_internal:
        message = f"{name} is on internal networks only"
        yield codes.PORTS_NOT_PUBLISHED.at(ports.key.span, message)


def _nonempty(service: ServiceSpec, key: str) -> Entry | None:
    """Return a Compose key of the service, if it has a value that is not empty."""
    entry = service.body.get(key) if service.body is not None else None
    if entry is None:
        return None

    node = entry.value
    if isinstance(node, ScalarNode):
        return entry if node.text and not node.is_null else None
    return entry if items_of(node) or entries_of(node) else None


def _check_shared_namespaces(service: ServiceSpec, pod: PodSpec) -> Iterator[Diagnostic]:
    """Check ``network_mode: service:NAME``, and ``pid`` and ``ipc`` of that form."""
    prefix = "service:"
    for key in _SHARED:
        entry = _nonempty(service, key)
        node = entry.value if entry is not None else None
        if isinstance(node, ScalarNode) and node.text.startswith(prefix):
            yield from _check_counted_reference(node, node.text.removeprefix(prefix), pod)


def _check_networks(service: ServiceSpec) -> Iterator[Diagnostic]:
    """Report a network of the compiler's own: on it, a container would reach what it may not."""
    entry = _nonempty(service, "networks")
    node = entry.value if entry else None

    # Compose takes a list of names, or a mapping by name.
    names = [each.key for each in entries_of(node)]
    names += [item for item in items_of(node) if isinstance(item, ScalarNode)]
    for name in names:
        if _OURS["networks"].fullmatch(name.text):
            message = f"{quote(name.text)} is one of the compiler's own networks"
            help_text = "name what is reached in 'surfaces' or 'tools'"
            yield codes.RESERVED_NAME.at(name.span, message, help_text=help_text)


def _check_extends(service: ServiceSpec, pod: PodSpec) -> Iterator[Diagnostic]:
    """Report a service that extends an agent: it would get the agent's credential and networks."""
    entry = _nonempty(service, "extends")
    node = entry.value if entry else None
    if isinstance(node, MapNode):
        # With ``file`` it is a service of another file.
        node = None if node.get("file") else node.value("service")
    if not isinstance(node, ScalarNode):
        return

    target = pod.service(node.text)
    if target is not None and target.agent is not None:
        message = f"{service.name.text} would get the credential of {target.name.text}"
        notes = [Note(target.name.span, "the agent is here")]
        yield codes.EXTENDS_AGENT.at(node.span, message, notes=notes)


def _check_counted_reference(node: ScalarNode, name: str, pod: PodSpec) -> Iterator[Diagnostic]:
    target = pod.service(name)
    if target is None or target.count == 1:
        return

    message = f"{quote(name)} is {target.count} containers"
    notes = [Note(target.count_key, "'count' is here")] if target.count_key else []
    yield codes.COUNTED_REFERENCE.at(node.span, message, notes=notes)


def _check_reserved_names(pod: PodSpec) -> Iterator[Diagnostic]:
    """Report networks, volumes and secrets of the file that have names of the compiler's own."""
    for section, ours in _OURS.items():
        for entry in entries_of(pod.document.value(section)):
            names = [entry.key] if ours.fullmatch(entry.key.text) else []

            # ``name`` of a network is Docker's name for it, under any key.
            real = child(entry.value, "name") if section == "networks" else None
            if isinstance(real, ScalarNode) and _OUR_REAL_NETWORK.fullmatch(real.text):
                names.append(real)

            for name in names:
                message = f"{quote(name.text)} is a name of the compiler's own {section}"
                yield codes.RESERVED_NAME.at(name.span, message)
