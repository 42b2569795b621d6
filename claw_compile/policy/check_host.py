"""Check: an agent that could take over its host, and so everything that the pod says of it.

Rules. The pod file says it in so many words, so it is kept, with a warning for each place. What is judged is what Docker gives
away without asking: privileges, capabilities that reach beyond the container, the daemon's socket, the host's own directories.
"""

from __future__ import annotations

from collections.abc import Iterator

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Span, quoted
from claw_compile.grammar.pod import ServiceSpec
from claw_compile.parsing.node import ListNode, MapNode, Node, ScalarNode, plain_data
from claw_compile.policy.agent import Agent, Resolved

_SOCKETS = ("docker.sock", "containerd.sock", "podman.sock", "crio.sock")
_DIRECTORIES = (
    "/",
    "/dev",
    "/etc",
    "/proc",
    "/root",
    "/run",
    "/sys",
    "/var",
    "/var/lib",
    "/var/lib/docker",
    "/var/run",
)
CAPABILITIES = {
    *("ALL", "BPF", "DAC_READ_SEARCH", "MKNOD", "NET_ADMIN", "NET_RAW", "PERFMON"),
    *("SYS_ADMIN", "SYS_BOOT", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO"),
}
_NAMESPACES = ("pid", "ipc", "uts", "userns_mode", "cgroup")


def check_host(resolved: Resolved) -> Iterator[Diagnostic]:
    """Every place that gives an agent the host."""
    for agent in resolved.agents:
        found = [*_powers(agent.spec), *_mounts(agent.spec), *_surfaces(agent)]
        for span, what in found:
            name = agent.spec.name.text
            yield codes.AGENT_TAKES_HOST.at(span, f"{name} could take over its host, and its proxy with it: {what}")


def _powers(service: ServiceSpec) -> Iterator[tuple[Span, str]]:
    privileged = _value(service, "privileged")
    if isinstance(privileged, ScalarNode) and plain_data(privileged) is True:
        yield privileged.span, "it is privileged"
    added = _value(service, "cap_add")
    for item in added.items if isinstance(added, ListNode) else ():
        if isinstance(item, ScalarNode) and item.text.upper().removeprefix("CAP_") in CAPABILITIES:
            yield item.span, f"it has the capability {quoted(item.shown)}"
    for key in _NAMESPACES:
        node = _value(service, key)
        if isinstance(node, ScalarNode) and node.text == "host":
            yield node.span, f"it shares {quoted(key)} with the host"
    devices = _value(service, "devices")
    if isinstance(devices, ListNode) and devices.items:
        yield devices.items[0].span, "it has devices of the host"


def _mounts(service: ServiceSpec) -> Iterator[tuple[Span, str]]:
    volumes = _value(service, "volumes")
    for item in volumes.items if isinstance(volumes, ListNode) else ():
        node: Node | None = item.value("source") if isinstance(item, MapNode) else item
        if isinstance(node, ScalarNode) and (what := _given(node.text.partition(":")[0])):
            yield node.span, what


def _surfaces(agent: Agent) -> Iterator[tuple[Span, str]]:
    for surface in agent.surfaces:
        if surface.scheme == "host" and (what := _given(surface.target)):
            yield surface.span, what


def _given(path: str) -> str | None:
    """What a mount of ``path`` gives away."""
    plain = "/" + "/".join(part for part in path.split("/") if part not in {"", "."})
    if plain.rpartition("/")[2] in _SOCKETS:
        return "it has the socket of a container engine"
    return f"it has {quoted(plain)} of the host" if path.startswith("/") and plain in _DIRECTORIES else None


def _value(service: ServiceSpec, key: str) -> Node | None:
    return service.body.value(key) if service.body is not None else None
