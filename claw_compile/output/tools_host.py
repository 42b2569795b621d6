"""A service with ``tools-host``: its ``toolhost.yml``, its principals' tokens, its container.

Specification: docs/spec/tools-host.md.

Rules. Each agent that is granted a tool is a principal: its token is derived from the master
secret, its globs are exactly its grants, its workspace is its own. What the user wrote of the
service wins, key by key. The container has no rights: Landlock, seccomp and openat2, which contain
its commands and its files, need none.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from claw_compile.descriptors.tools_host import TOOLS_HOST_PATH
from claw_compile.grammar.pod import PodSecret, PodSpec, ServiceSpec
from claw_compile.identity import host_secret, host_token
from claw_compile.output.compose.agent_service import bind
from claw_compile.output.compose.edits import add_labels, extend_list, is_absent, set_key
from claw_compile.output.compose.proxy_service import SECRETS, USER
from claw_compile.output.deployment import RUNTIME, Deployment
from claw_compile.output.emit import Tree
from claw_compile.output.stdio_wrapper import HEALTH, add_environment
from claw_compile.output.yaml_text import Data, as_yaml, mapping
from claw_compile.parsing.environment import Lookup
from claw_compile.parsing.node import MapNode, ScalarNode
from claw_compile.policy.agent import Agent, ResolvedPod
from claw_compile.policy.connect import base_url
from claw_compile.policy.project import ProjectedPod
from claw_contract.secret import Secret
from claw_contract.toolhost_file import VARIABLE_NAME, CallLimitsSection

IMAGE: Final = "clawdapus/claw-tools:0.1.0"
CONFIG: Final = "/claw/tools/toolhost.yml"
TOKENS: Final = "/claw/tools/tokens"
WORKSPACES: Final = "/claw/workspaces"
SERVE: Final = ("claw", "tools", "serve", "--config", CONFIG)
TOP: Final = "tools-hosts"  # The directory of the compiled tree
_HEADER: Final = "# Made by claw compile from the pod file: edit that one.\n"
_TIMES: Final[dict[str, Data]] = {
    "interval": "10s",
    "timeout": "5s",
    "retries": 3,
    "start_period": "30s",
}
_PIDS: Final = 2048  # A few calls with 256 processes each
_HTTP_PORT: Final = 80
_REFERENCE = re.compile(rf"\$\{{({VARIABLE_NAME})\}}")


def principals(service: ServiceSpec, resolved: ResolvedPod) -> dict[str, Agent]:
    """Return the agents that may call a tool of the host, by id."""
    return {
        agent.id: agent for agent in resolved.agents if service.name.text in agent.tool_services
    }


def tools_hosts(pod: PodSpec) -> Iterator[ServiceSpec]:
    """Return the services that are a tools host."""
    return (service for service in pod.services if service.tools_host is not None)


def host_files(pod: ProjectedPod, resolved: ResolvedPod, lookup: Lookup, master: Secret) -> Tree:
    """Return the files of all hosts.

    Each has its ``tools-hosts/<service>.yml``, and a ``secrets/<name>`` for each of its principals.
    """
    epochs = {projected.agent.id: projected.epoch for projected in pod.agents}
    tree: dict[PurePosixPath, bytes] = {}
    for service in tools_hosts(pod.spec):
        name = service.name.text
        for agent in principals(service, resolved):
            token = host_token(master, name, agent, epochs[agent])
            tree[PurePosixPath(SECRETS, host_secret(name, agent))] = token.reveal().encode()

        text = _HEADER + as_yaml(mapping(_config(service, resolved, lookup)), ("toolhost",))
        tree[config_path(service)] = text.encode()
    return tree


def config_path(service: ServiceSpec) -> PurePosixPath:
    return PurePosixPath(TOP, f"{service.name.text}.yml")


def _config(service: ServiceSpec, resolved: ResolvedPod, lookup: Lookup) -> dict[str, Data]:
    """Return ``toolhost.yml`` as data."""
    settings = service.tools_host
    assert settings is not None
    host: dict[str, Data] = {
        name: value for name, value in settings.host.items() if name != "limits"
    }

    # The pod file has all limits in one place; in toolhost.yml some are each principal's own
    limits: Mapping[str, Any] = settings.host.get("limits", {})
    call_limits: dict[str, Data] = {}
    general_limits: dict[str, Data] = {}
    for name, value in limits.items():
        if name in CallLimitsSection.model_fields:
            call_limits[name] = value
        else:
            general_limits[name] = value
    if general_limits:
        host["limits"] = general_limits

    names, port = _address(service, lookup)
    allowed_hosts: list[Data] = []
    for name in dict.fromkeys(names):
        allowed_hosts += [name, f"{name}:{port}"]
    host["listen"] = {
        "host": "0.0.0.0",  # noqa: S104 - a container's
        "port": port,
        "path": TOOLS_HOST_PATH,
        "allowed_hosts": allowed_hosts,
    }

    host["principals"] = {
        name: _principal(name, agent, service, call_limits)
        for name, agent in principals(service, resolved).items()
    }
    return {"toolhost": host, "tools": settings.tools}


def _principal(
    name: str, agent: Agent, service: ServiceSpec, limits: Mapping[str, Data]
) -> dict[str, Data]:
    granted = [grant.tool.name for grant in agent.tools if grant.service == service.name.text]
    principal: dict[str, Data] = {
        "token": {"file": f"{TOKENS}/{name}"},
        "workspace": f"{WORKSPACES}/{name}",
        "tools": granted,
    }
    if limits:
        principal["limits"] = limits
    return principal


def _address(service: ServiceSpec, lookup: Lookup) -> tuple[tuple[str, str], int]:
    """Return the names under which the host is asked, and its port.

    They are those of the URL at which the proxy calls it.
    """
    name = service.name.text
    url = urlsplit(base_url(service, lookup, []) or f"http://{name}")
    return (name, url.hostname or name), url.port or _HTTP_PORT


def equip_hosts(pod: PodSpec, resolved: ResolvedPod, lookup: Lookup) -> PodSpec:
    """Return the pod with all that a tools host has in Compose and in Kubernetes.

    The tokens of its principals are secrets of the pod.
    """
    services: list[ServiceSpec] = []
    secrets = [*pod.secrets]
    for service in pod.services:
        if service.tools_host is None:
            services.append(service)
            continue

        body = service.body
        if body is not None:
            body = _equip(service, body, resolved, lookup)
        services.append(replace(service, body=body))
        for agent in principals(service, resolved):
            name = ScalarNode(host_secret(service.name.text, agent), service.name.span)
            secrets.append(PodSecret(name, "derived", service.name))
    return replace(pod, services=tuple(services), secrets=tuple(secrets))


def volume_of(service: ServiceSpec) -> str:
    """Return the named volume of a host's workspaces."""
    settings = service.tools_host
    own = settings.volume if settings is not None else None
    return own or f"{service.name.text}-workspaces"


def _equip(service: ServiceSpec, body: MapNode, resolved: ResolvedPod, lookup: Lookup) -> MapNode:
    """Return the body of the service with our keys where the user has written none."""
    _, port = _address(service, lookup)
    check = ["CMD", "python", "-c", HEALTH.format(port=port)]
    probe: dict[str, Data] = {"test": check, **_TIMES}
    ours: dict[str, Data] = {
        "read_only": True,
        "cap_drop": ["ALL"],
        "init": True,
        "restart": "unless-stopped",
        "healthcheck": probe,
    }

    # Some of our keys depend on other keys of the user's: what builds needs no image, what is
    # published needs no ``expose``, and what has a command of its own starts itself.
    if is_absent(body.value("build")):
        ours["image"] = IMAGE
    if is_absent(body.value("ports")):
        ours["expose"] = [str(port)]
    if is_absent(body.value("entrypoint")) and is_absent(body.value("command")):
        ours["entrypoint"] = _command(service, resolved)
    body = _set_absent(body, ours)

    if is_absent(body.value("env_file")):
        names = sorted(set(_variables(service)))
        body = add_environment(body, {name: f"${{{name}}}" for name in names})

    body = extend_list(body, "tmpfs", ["/tmp:mode=1777,size=64m"])  # noqa: S108
    volume: Data = {"type": "volume", "source": volume_of(service), "target": WORKSPACES}
    return extend_list(body, "volumes", [volume])


def _variables(service: ServiceSpec) -> Iterator[str]:
    """Yield the variables that the settings name.

    Compose fills them in, so that no value is in a file.
    """
    assert service.tools_host is not None

    # ``exec`` has lists of programs, whose texts are taken as they are.
    tools = service.tools_host.tools
    values: list[Any] = [value for name, value in tools.items() if name != "exec"]
    while values:
        match values.pop():
            case str() as text:
                yield from _REFERENCE.findall(text)
            case list() as items:
                values += items
            case {"env": str(name), **rest} if not rest:
                yield name
            case dict() as members:
                values += members.values()


def _set_absent(body: MapNode, ours: Mapping[str, Data]) -> MapNode:
    for key, value in ours.items():
        if is_absent(body.value(key)):
            body = set_key(body, key, value)
    return body


def _command(service: ServiceSpec, resolved: ResolvedPod) -> Data:
    """Return the entry point.

    A volume is empty at first: each principal's workspace is made before the host looks for it.
    """
    workspaces = [f"{WORKSPACES}/{agent}" for agent in principals(service, resolved)]
    if not workspaces:
        return SERVE
    script = f"mkdir -p -m 0700 {' '.join(workspaces)} && exec {' '.join(SERVE)}"
    return ["/bin/sh", "-c", script]


def compose_host(service: ServiceSpec, body: MapNode, deployment: Deployment) -> MapNode:
    """Return the body with what only Compose has.

    These are the files one by one, the user that owns them, and limits.
    """
    ours: dict[str, Data] = {
        "user": USER,
        "security_opt": ["no-new-privileges:true"],
        "pids_limit": _PIDS,
    }
    body = _set_absent(body, ours)

    files = host_mounts(service, deployment)
    mounts = [bind(f"./{RUNTIME}/{path}", target) for target, path in files.items()]
    body = extend_list(body, "volumes", mounts)

    # The digest changes with the content of a file, and Compose then replaces the container.
    contents = {target: deployment.tree[path] for target, path in files.items()}
    labels = {
        "claw.pod": deployment.pod_name,
        "claw.role": "tools-host",
        "claw.digest": deployment.digest(contents),
    }
    return add_labels(body, labels)


def host_mounts(service: ServiceSpec, deployment: Deployment) -> dict[str, PurePosixPath]:
    """Return the path in the container → the file of the compiled tree."""
    name = service.name.text
    agents = principals(service, deployment.resolved)
    tokens = {
        f"{TOKENS}/{agent}": PurePosixPath(SECRETS, host_secret(name, agent)) for agent in agents
    }
    return {CONFIG: config_path(service), **tokens}
