"""An agent's Compose service: the user's, with the agent's files, networks and environment.

Specification: docs/spec/compile.md "Output".

Rules. Files are mounted one by one and read-only. A container keeps the files that it started with;
its ``claw.digest`` changes with them, so that ``up`` replaces it. An agent is only on the networks
that are derived for it, and on those that the pod file names for it.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from claw_compile.output.agent_files import CA_BUNDLE, CA_CERTIFICATE
from claw_compile.output.compose.edits import (
    add_env_file,
    add_labels,
    depend_on,
    drop_key,
    escape_dollars,
    extend_list,
    join_networks,
    name_ordinals,
    set_key,
)
from claw_compile.output.deployment import CA_DIRECTORY, CLAW_KEY, HOLDER, RUNTIME, Deployment
from claw_compile.output.emit import is_for_its_agent
from claw_compile.output.proxy_env import governed_hosts
from claw_compile.output.yaml_text import Data
from claw_compile.parsing.node import MapNode
from claw_compile.policy.agent import Agent
from claw_compile.policy.topology import PROXY

DISTRIBUTION_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
# The directory with an agent's contract, the page about its pod, its skills, and its client's
# configuration
HOME = "/claw"


def agent_service(agent: Agent, deployment: Deployment) -> MapNode:
    """Return the service of one agent; of a counted service, of one ordinal."""
    assert agent.spec.body is not None
    body = name_ordinals(drop_key(agent.spec.body, CLAW_KEY), deployment.containers)
    body = add_labels(body, _labels(agent, deployment))

    env = _env_path(agent)
    if env in deployment.tree:
        # Raw: otherwise Compose would interpolate what it reads.
        body = add_env_file(body, {"path": f"./{RUNTIME}/{env}", "format": "raw"})

    files = [
        bind(f"./{RUNTIME}/{path}", target)
        for path, target in readable_files(agent, deployment).items()
    ]
    body = extend_list(body, "volumes", [*files, *_surfaces(agent), *_trust(agent)])

    if agent.has_proxy:
        body = depend_on(body, {PROXY: "service_healthy"})
    if agent.has_proxy and agent.mode == "transparent":
        # A link gives a name to this agent alone. A network alias would give it to everybody on
        # the network, and so to the proxy itself, which has to reach the real provider.
        hosts = sorted(governed_hosts(deployment.resolved))
        body = extend_list(body, "links", [f"{HOLDER}:{host}" for host in hosts])

    return _join_agent_networks(body, agent, deployment)


def _labels(agent: Agent, deployment: Deployment) -> dict[str, str]:
    labels = {"claw.pod": deployment.pod_name, "claw.service": agent.spec.name.text}
    if agent.ordinal is not None:
        labels["claw.ordinal"] = str(agent.ordinal)

    # The digest is of what the container reads at its start: its environment and its files.
    files: dict[str, bytes] = {}
    for path in (_env_path(agent), *readable_files(agent, deployment)):
        files[str(path)] = deployment.tree[path]
    labels["claw.digest"] = deployment.digest(files)
    return labels


def _env_path(agent: Agent) -> PurePosixPath:
    return PurePosixPath("agents", agent.id, "env")


def readable_files(agent: Agent, deployment: Deployment) -> dict[PurePosixPath, str]:
    """Return the files that the agent itself may read: path in the tree → path in the container."""
    context = PurePosixPath("context", agent.id)
    files: dict[PurePosixPath, str] = {}
    for path in sorted(deployment.tree):
        if path.is_relative_to(context) and is_for_its_agent(path):
            files[path] = f"{HOME}/{path.relative_to(context)}"
    return files


def _surfaces(agent: Agent) -> Iterator[Data]:
    """Yield the mounts of the agent's surfaces: volumes, and paths of the host."""
    for surface in agent.surfaces:
        read_only = surface.mode != "rw"
        if surface.scheme == "volume":
            yield {
                "type": "volume",
                "source": surface.target,
                "target": f"/mnt/{surface.target}",
                "read_only": read_only,
            }
        elif surface.scheme == "host":
            # A directory of the host has the same path in the container.
            path = escape_dollars(surface.target)
            yield bind(path, path, read_only=read_only)


def _trust(agent: Agent) -> Iterator[Data]:
    """Yield the mounts of the pod's CA: an agent by base URL needs none, it speaks plain HTTP."""
    if not agent.has_proxy or agent.mode == "base-url":
        return

    # Also in place of the distribution's bundle, for programs that know no variable.
    bundle = f"./{CA_DIRECTORY}/{PurePosixPath(CA_BUNDLE).name}"
    for target in (CA_BUNDLE, DISTRIBUTION_BUNDLE):
        yield bind(bundle, target)
    yield bind(f"./{CA_DIRECTORY}/{PurePosixPath(CA_CERTIFICATE).name}", CA_CERTIFICATE)


def bind(source: str, target: str, *, read_only: bool = True) -> Data:
    """Return a bind mount in the long form, because a path may hold a colon.

    A missing path is an error: by default Docker would make an empty directory of it.
    """
    return {
        "type": "bind",
        "source": source,
        "target": target,
        "read_only": read_only,
        "bind": {"create_host_path": False},
    }


def _join_agent_networks(body: MapNode, agent: Agent, deployment: Deployment) -> MapNode:
    networks: dict[str, Data] = dict.fromkeys(deployment.topology.of(agent.id))
    # Not on ``default``: there it would reach the services that name no network.
    on_networks = join_networks(body, networks, keeps_default=False)

    node = on_networks.value("networks")
    if body.get("extends") and isinstance(node, MapNode):
        # Compose would merge in the networks of the service that it extends, which may lead to the
        # world. "!override" replaces them.
        return set_key(on_networks, "networks", MapNode(node.entries, node.span, "!override"))
    return on_networks
