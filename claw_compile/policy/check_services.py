"""Check: services whose containers could take over the host, whose images may change, and whose names collide.

Rules. Power over the host is written in the pod file, so it is kept, with a warning for each place: privileges,
capabilities that reach beyond the container, the daemon's socket, the host's own directories. An image needs a tag or a
digest. A counted service has no host of its own name; an ordinal's name is nobody else's; some names are the compiler's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Span, quote
from claw_compile.grammar.pod import PodSpec, ServiceSpec, own_entries
from claw_compile.loading.load import LoadedPod
from claw_compile.parsing.interpolation import interpolate
from claw_compile.parsing.node import MapNode, Node, ScalarNode, child, items_of, plain_data
from claw_compile.policy.agent import Agent, ResolvedPod

_SOCKETS = ("docker.sock", "containerd.sock", "podman.sock", "crio.sock")
_DIRECTORIES = {
    *("/", "/dev", "/etc", "/proc", "/root", "/run", "/sys"),
    *("/var", "/var/lib", "/var/lib/docker", "/var/run"),
}
CAPABILITIES = {
    *("ALL", "BPF", "DAC_READ_SEARCH", "MKNOD", "NET_ADMIN", "NET_RAW", "PERFMON"),
    *("SYS_ADMIN", "SYS_BOOT", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO"),
}
_NAMESPACES = ("pid", "ipc", "uts", "userns_mode", "cgroup")
_MOVING = "latest"
_RESERVED = re.compile(r"cllama(-.*)?|clawdash|claw-(api|wall)")
_COMPOSE_NAME = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]+")


def check_host(resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Warn at every place that gives an agent its host."""
    for agent in resolved.agents:
        found = [*_powers(agent.spec), *_mounts(agent.spec), *_surfaces(agent)]
        for span, what in found:
            name = agent.spec.name.text
            yield codes.AGENT_TAKES_HOST.at(span, f"{name} could take over its host, and its proxy with it: {what}")


def _powers(service: ServiceSpec) -> Iterator[tuple[Span, str]]:
    privileged = child(service.body, "privileged")
    if isinstance(privileged, ScalarNode) and plain_data(privileged) is True:
        yield privileged.span, "it is privileged"
    for item in items_of(child(service.body, "cap_add")):
        if isinstance(item, ScalarNode) and item.text.upper().removeprefix("CAP_") in CAPABILITIES:
            yield item.span, f"it has the capability {quote(item.shown)}"
    for key in _NAMESPACES:
        node = child(service.body, key)
        if isinstance(node, ScalarNode) and node.text == "host":
            yield node.span, f"it shares {quote(key)} with the host"
    if devices := items_of(child(service.body, "devices")):
        yield devices[0].span, "it has devices of the host"


def _mounts(service: ServiceSpec) -> Iterator[tuple[Span, str]]:
    for item in items_of(child(service.body, "volumes")):
        node: Node | None = item.value("source") if isinstance(item, MapNode) else item
        if isinstance(node, ScalarNode) and (what := _host_access(node.text.partition(":")[0])):
            yield node.span, what


def _surfaces(agent: Agent) -> Iterator[tuple[Span, str]]:
    for surface in agent.surfaces:
        if surface.scheme == "host" and (what := _host_access(surface.target)):
            yield surface.span, what


def _host_access(path: str) -> str | None:
    """Return what a mount of ``path`` gives away."""
    plain = "/" + "/".join(part for part in path.split("/") if part not in {"", "."})
    if plain.rpartition("/")[2] in _SOCKETS:
        return "it has the socket of a container engine"
    return f"it has {quote(plain)} of the host" if path.startswith("/") and plain in _DIRECTORIES else None


def check_images(loaded: LoadedPod, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Warn about agents, and services that agents use, whose image may be another one tomorrow."""
    used = {name for agent in resolved.agents for name in (agent.spec.name.text, *agent.providers)}
    for service in loaded.pod.services:
        image = _image(service) if service.name.text in used else None
        if image is not None and not _is_pinned(interpolate(image.text, loaded.variables.lookup).text):
            message = f"the image of {service.name.text} names no version, and may be another one tomorrow"
            yield codes.UNPINNED_IMAGE.at(image.span, message)


def _image(service: ServiceSpec) -> ScalarNode | None:
    """Return the image of a service; none where it is built here."""
    if service.body is None or service.body.get("build") is not None:
        return None
    image = service.body.value("image")
    return image if isinstance(image, ScalarNode) and not image.is_null else None


def _is_pinned(image: str) -> bool:
    """Return whether a reference has a digest, or a tag that is not the one that moves. A port is before the last slash."""
    if "@" in image:
        return True
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return bool(colon) and tag not in {"", _MOVING}


def check_names(pod: PodSpec) -> Iterator[Diagnostic]:
    """Check every service's name, and every ordinal's."""
    hosts: dict[str, ServiceSpec] = {}
    names = {service.name.text: service for service in pod.services}
    for service in pod.services:
        name = service.name.text
        if _RESERVED.fullmatch(name.lower()):
            yield codes.RESERVED_NAME.at(service.name.span, f"{quote(name)} is a name of the compiler's own services")
        if not _COMPOSE_NAME.fullmatch(name) and service.agent is None:
            yield codes.BAD_SERVICE_NAME.at(service.name.span, f"{quote(name)} can't name a service")
        first = hosts.setdefault(name.lower(), service)
        if first is not service:
            notes = [Note(first.name.span, "the other one is here")]
            message = f"{quote(name)} and {quote(first.name.text)} are one host"
            yield codes.SAME_HOST.at(service.name.span, message, notes=notes)
        for host in service.hosts if service.count > 1 else ():
            if (other := names.get(host)) is not None:
                notes = [Note(service.count_key or service.name.span, f"'count' of {name} makes it")]
                message = f"{quote(host)} is one of the agents of {quote(name)}"
                yield codes.ORDINAL_COLLISION.at(other.name.span, message, notes=notes)


def check_counted_services(loaded: LoadedPod, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Report names of counted services: no host has such a name."""
    for name, span in _host_names(loaded.pod, resolved):
        service = loaded.pod.service(name)
        if service is not None and service.count > 1:
            notes = [Note(service.count_key, "'count' is here")] if service.count_key else []
            help_text = "name one of them, or give what it provides a service of its own, without 'count'"
            message = f"no container is called {quote(name)}: there are {service.hosts[0]} to {service.hosts[-1]}"
            yield codes.COUNTED_PROVIDER.at(span, message, notes=notes, help_text=help_text)


def _host_names(pod: PodSpec, resolved: ResolvedPod) -> Iterator[tuple[str, Span]]:
    """Yield places where services are named as hosts: grants, memories, surfaces, feeds."""
    for owner in pod.owners:
        yield from ((grant.service.text, grant.service.span) for grant in own_entries(owner.tools))
        yield from ((each.target, each.span) for each in own_entries(owner.surfaces) if each.scheme == "service")
        if owner.memory is not None and owner.memory.service is not None:
            yield owner.memory.service.text, owner.memory.service.span
    yield from ((feed.service, feed.span) for agent in resolved.agents for feed in agent.feeds)
