"""Check: services whose containers could take over the host or reach too much, whose images may
change, whose names collide.

Rules. What lets an agent round its proxy without being asked for is an error (decision 0018). What
the pod file says in so many words is kept, with a warning for each place: power over the host is
privileges, capabilities that reach beyond the container, devices, an engine's socket or group, the
host's own directories. What a service gets from one that it extends, or whose volumes it takes,
counts as its own. An image needs a tag or a digest. A counted service has no host of its own name;
an ordinal's name is nobody else's; some names of services, networks, volumes and secrets are the
compiler's.
"""

import re
from collections.abc import Callable, Iterator

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

MAX_NETWORKS = 25  # Docker's default address pools hold about 30 networks, and other pods want some
_OURS = {
    "networks": re.compile(r"claw-(agent-.*|tool-.*|egress)"),
    "volumes": re.compile(r"claw-(history|state)"),
    "secrets": re.compile(r"claw-.*"),
}
_OUR_REAL_NETWORK = re.compile(r".*[_-]" + _OURS["networks"].pattern, re.DOTALL)
"""Our network as Docker calls it: the project's name comes first."""
_SHARED = ("network_mode", "pid", "ipc")
_SOCKETS = ("docker.sock", "containerd.sock", "podman.sock", "crio.sock", "docker_engine")
_GROUPS = {"docker", "podman", "containerd", "lxd", "incus", "disk"}
"""Groups whose members may use an engine's socket, or the host's disks.

A group's number means nothing here.
"""
CAPABILITIES = {
    *("ALL", "BPF", "DAC_READ_SEARCH", "MKNOD", "NET_ADMIN", "NET_RAW", "PERFMON"),
    *("SYS_ADMIN", "SYS_BOOT", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO"),
    *("MAC_ADMIN", "MAC_OVERRIDE", "SYSLOG", "SYS_TIME"),
}
_NAMESPACES = ("pid", "ipc", "uts", "userns_mode", "cgroup")
_MOVING = "latest"
_RESERVED = re.compile(r"cllama(-.*)?|clawdash|claw-(api|wall)")
_COMPOSE_NAME = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]+")


def check_host(loaded: LoadedPod, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Warn at every place that gives an agent its host."""
    for agent in resolved.agents:
        name = agent.spec.name.text
        services = loaded.agent_services.get(name, ())
        powers = (power for service in services for power in _powers(service.body))
        mounts = (mount for service in services for mount in _mounts(service))
        # A path that is taken twice, here and by a service that is extended, is said once.
        for span, what in dict.fromkeys((*powers, *mounts, *_host_surfaces(agent))):
            yield codes.AGENT_TAKES_HOST.at(
                span, f"{name} could take over its host, and its proxy with it: {what}"
            )


_SWITCHES = {
    "privileged": "it is privileged",
    "use_api_socket": "it has the socket of a container engine, and the credentials of its registries",
}
_LISTS: dict[str, tuple[Callable[[str], bool], str]] = {
    "cap_add": (
        lambda name: name.upper().removeprefix("CAP_") in CAPABILITIES,
        "it has the capability {}",
    ),
    "group_add": (lambda name: name in _GROUPS, "it is in the group {}"),
}


def _powers(body: MapNode) -> Iterator[tuple[Span, str]]:
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
        if devices := items_of(body.value(key)):
            yield devices[0].span, "it has devices of the host"


def _mounts(service: AgentService) -> Iterator[tuple[Span, str]]:
    for exposure in service.exposures:
        if what := _host_access(exposure.path):
            yield exposure.at, what


def _host_surfaces(agent: Agent) -> Iterator[tuple[Span, str]]:
    for surface in agent.surfaces:
        if surface.scheme == "host" and (what := _host_access(surface.target)):
            yield surface.span, what


def _host_access(path: str) -> str | None:
    if path.rstrip("/").rpartition("/")[2] in _SOCKETS:
        return "it has the socket of a container engine"
    directory = host_directory(path)
    return f"it has {quote(directory)} of the host" if directory is not None else None


def check_images(loaded: LoadedPod, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Warn about agents, and services that agents use, whose image may be another one tomorrow."""
    used = {
        name for agent in resolved.agents for name in (agent.spec.name.text, *agent.called_services)
    }
    for service in loaded.pod.services:
        image = child(service.body, "image")
        if (
            service.name.text not in used
            or child(service.body, "build")
            or not isinstance(image, ScalarNode)
            or image.is_null
        ):
            continue
        if not _is_pinned(interpolate(image.text, loaded.variables.lookup).text):
            message = (
                f"the image of {service.name.text} names no version, and may be another one "
                "tomorrow"
            )
            yield codes.UNPINNED_IMAGE.at(image.span, message)


def _is_pinned(image: str) -> bool:
    """Return whether a reference has a digest, or a tag that is not the one that moves.

    A port is before the last slash.
    """
    if "@" in image:
        return True
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return bool(colon) and tag not in {"", _MOVING}


def check_names(pod: PodSpec) -> Iterator[Diagnostic]:
    hosts: dict[str, ServiceSpec] = {}
    names = {service.name.text: service for service in pod.services}
    for service in pod.services:
        name = service.name.text
        if _RESERVED.fullmatch(name.lower()):
            yield codes.RESERVED_NAME.at(
                service.name.span, f"{quote(name)} is a name of the compiler's own services"
            )
        if not _COMPOSE_NAME.fullmatch(name) and service.agent is None:
            yield codes.BAD_SERVICE_NAME.at(
                service.name.span, f"{quote(name)} can't name a service"
            )
        first = hosts.setdefault(name.lower(), service)
        if first is not service:
            notes = [Note(first.name.span, "the other one is here")]
            message = f"{quote(name)} and {quote(first.name.text)} are one host"
            yield codes.SAME_HOST.at(service.name.span, message, notes=notes)
        for host in service.hosts if service.count > 1 else ():
            if (other := names.get(host)) is not None:
                notes = [
                    Note(service.count_key or service.name.span, f"'count' of {name} makes it")
                ]
                message = f"{quote(host)} is one of the agents of {quote(name)}"
                yield codes.ORDINAL_COLLISION.at(other.name.span, message, notes=notes)


def check_counted_services(loaded: LoadedPod, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Report names of counted services: no host has such a name."""
    for name, span in _host_names(loaded.pod, resolved):
        service = loaded.pod.service(name)
        if service is not None and service.count > 1:
            notes = [Note(service.count_key, "'count' is here")] if service.count_key else []
            help_text = (
                "name one of them, or give what it provides a service of its own, without 'count'"
            )
            message = (
                f"no container is called {quote(name)}: there are {service.hosts[0]} to "
                f"{service.hosts[-1]}"
            )
            yield codes.COUNTED_PROVIDER.at(span, message, notes=notes, help_text=help_text)


def _host_names(pod: PodSpec, resolved: ResolvedPod) -> Iterator[tuple[str, Span]]:
    """Yield places where services are named as hosts: grants, memories, surfaces, feeds."""
    for owner in pod.owners:
        yield from ((grant.service.text, grant.service.span) for grant in own_entries(owner.tools))
        yield from (
            (each.target, each.span)
            for each in own_entries(owner.surfaces)
            if each.scheme == "service"
        )
        if owner.memory is not None and owner.memory.service is not None:
            yield owner.memory.service.text, owner.memory.service.span
    yield from ((feed.service, feed.span) for agent in resolved.agents for feed in agent.feeds)


def check_reach(pod: PodSpec, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Report every place of the file that contradicts the derived networks."""
    if not resolved.agents:
        return
    yield from _check_reserved_names(pod)
    if (count := len(topology(pod, resolved).networks)) > MAX_NETWORKS:
        services = pod.document.get("services")
        assert services is not None
        yield codes.MANY_NETWORKS.at(services.key.span, f"the pod needs {count} networks")
    provider_names = called_services(pod, resolved)
    for service in pod.services:
        yield from _check_shared_namespaces(service, pod)
        yield from _check_networks(service)
        yield from _check_extends(service, pod)
        mode = _nonempty(service, "network_mode")
        if (
            mode
            and service.name.text in provider_names
            and service.base_url is None
            and service.agent is None
        ):
            message = f"the proxy can't be on a network with {service.name.text}"
            yield codes.PROVIDER_NETWORK_MODE.at(mode.key.span, message)
    for service in pod.agents:
        yield from _check_agent(service, resolved)


def _check_agent(service: ServiceSpec, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    name = service.name.text
    if mode := _nonempty(service, "network_mode"):
        yield codes.AGENT_NETWORK_MODE.at(
            mode.key.span, f"{name} would be on a network that is not derived"
        )
    if networks := _nonempty(service, "networks"):
        message = f"{name} reaches everything on these networks, past its policy"
        yield codes.AGENT_ON_OWN_NETWORK.at(networks.key.span, message)
    internal = not any(has_egress(agent) for agent in resolved.agents if agent.spec is service)
    if (ports := _nonempty(service, "ports")) and internal and not networks:
        yield codes.PORTS_NOT_PUBLISHED.at(ports.key.span, f"{name} is on internal networks only")


def _nonempty(service: ServiceSpec, key: str) -> Entry | None:
    entry = service.body.get(key) if service.body is not None else None
    node = entry.value if entry is not None else None
    if isinstance(node, ScalarNode):
        return entry if node.text and not node.is_null else None
    return entry if items_of(node) or entries_of(node) else None


def _check_shared_namespaces(service: ServiceSpec, pod: PodSpec) -> Iterator[Diagnostic]:
    """Check ``network_mode: service:NAME`` and its like."""
    for key in _SHARED:
        entry = _nonempty(service, key)
        if (
            entry
            and isinstance(entry.value, ScalarNode)
            and entry.value.text.startswith("service:")
        ):
            yield from _check_counted_reference(
                entry.value, entry.value.text.removeprefix("service:"), pod
            )


def _check_networks(service: ServiceSpec) -> Iterator[Diagnostic]:
    """Report a network of the compiler's own: on it, a container would reach what it may not."""
    entry = _nonempty(service, "networks")
    node = entry.value if entry else None
    keys = (each.key for each in entries_of(node))
    for name in (*keys, *(item for item in items_of(node) if isinstance(item, ScalarNode))):
        if _OURS["networks"].fullmatch(name.text):
            message = f"{quote(name.text)} is one of the compiler's own networks"
            yield codes.RESERVED_NAME.at(
                name.span, message, help_text="name what is reached in 'surfaces' or 'tools'"
            )


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
            names = [entry.key] if ours.fullmatch(entry.key.text) else []
            if (
                section == "networks"
                and isinstance(real, ScalarNode)
                and _OUR_REAL_NETWORK.fullmatch(real.text)
            ):
                names.append(real)
            for name in names:
                message = f"{quote(name.text)} is a name of the compiler's own {section}"
                yield codes.RESERVED_NAME.at(name.span, message)
