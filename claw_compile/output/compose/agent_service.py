"""An agent's Compose service: the user's, with the agent's files, networks and environment
(docs/spec/compile.md "Output").

Rules. Files are mounted one by one and read-only: a container keeps those that it started with, and
its ``claw.digest`` changes with them, so that ``up`` makes it anew. An agent is on no network but
those that are derived, and those that the pod file names for it.
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
        # Raw: Compose would interpolate what it reads.
        body = add_env_file(body, {"path": f"./{RUNTIME}/{env}", "format": "raw"})
    pages = (
        bind(f"./{RUNTIME}/{path}", target)
        for path, target in readable_files(agent, deployment).items()
    )
    body = extend_list(body, "volumes", [*pages, *_surfaces(agent), *_trust(agent)])
    if agent.has_proxy:
        body = depend_on(body, {PROXY: "service_healthy"})
    if agent.has_proxy and agent.mode == "transparent":
        # A link's name is the agent's alone. An alias would be everybody's on the network, and so
        # the proxy's own.
        body = extend_list(
            body,
            "links",
            [f"{HOLDER}:{host}" for host in sorted(governed_hosts(deployment.resolved))],
        )
    return _join_agent_networks(body, agent, deployment)


def _labels(agent: Agent, deployment: Deployment) -> dict[str, str]:
    ordinal = {} if agent.ordinal is None else {"claw.ordinal": str(agent.ordinal)}
    files = {
        path: deployment.tree[path]
        for path in (_env_path(agent), *readable_files(agent, deployment))
    }
    digest = deployment.digest({str(path): content for path, content in files.items()})
    return {
        "claw.pod": deployment.pod_name,
        "claw.service": agent.spec.name.text,
        **ordinal,
        "claw.digest": digest,
    }


def _env_path(agent: Agent) -> PurePosixPath:
    return PurePosixPath("agents", agent.id, "env")


def readable_files(agent: Agent, deployment: Deployment) -> dict[PurePosixPath, str]:
    """Return the files of the compiled tree that the agent itself may read, and
    their paths in its container.
    """
    context = PurePosixPath("context", agent.id)
    own = (
        path
        for path in sorted(deployment.tree)
        if path.is_relative_to(context) and is_for_its_agent(path)
    )
    return {path: f"{HOME}/{path.relative_to(context)}" for path in own}


def _surfaces(agent: Agent) -> Iterator[Data]:
    for surface in agent.surfaces:
        read_only = surface.mode != "rw"
        if surface.scheme == "volume":
            target = f"/mnt/{surface.target}"
            yield {
                "type": "volume",
                "source": surface.target,
                "target": target,
                "read_only": read_only,
            }
        elif surface.scheme == "host":
            yield bind(
                escape_dollars(surface.target), escape_dollars(surface.target), read_only=read_only
            )


def _trust(agent: Agent) -> Iterator[Data]:
    if agent.has_proxy and agent.mode != "base-url":
        for target in (CA_BUNDLE, DISTRIBUTION_BUNDLE):
            yield bind(f"./{CA_DIRECTORY}/{PurePosixPath(CA_BUNDLE).name}", target)
        yield bind(f"./{CA_DIRECTORY}/{PurePosixPath(CA_CERTIFICATE).name}", CA_CERTIFICATE)


def bind(source: str, target: str, *, read_only: bool = True) -> Data:
    """Return a bind mount in the long form: a path may hold a colon.

    A missing path is an error, not an empty directory.
    """
    mount: dict[str, Data] = {
        "type": "bind",
        "source": source,
        "target": target,
        "read_only": read_only,
    }
    return mount | {"bind": {"create_host_path": False}}


def _join_agent_networks(body: MapNode, agent: Agent, deployment: Deployment) -> MapNode:
    networks: dict[str, Data] = dict.fromkeys(deployment.topology.of(agent.id))
    connected = join_networks(body, networks, keeps_default=False)
    node = connected.value("networks")
    if body.get("extends") and isinstance(node, MapNode):
        # The networks of what it extends are not its own.
        return set_key(connected, "networks", MapNode(node.entries, node.span, "!override"))
    return connected
