"""An agent's pod in Kubernetes: the agent, and its proxy as a native sidecar (an init container that restarts).

Rules. Containers of one pod share its network, so a step with NET_ADMIN first lets nothing but the proxy's user leave
it; then the proxy starts, and with it healthy the agent. ``cllama`` is a name of this pod's own address. The proxy's
files are a Secret that no other container mounts. An agent gets nothing by which it could change the guard's rules, go below
them, or be the user that they let pass: such keys are left out and reported, and that user itself is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Literal, cast

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quote
from claw_compile.output.agent_files import CA_BUNDLE
from claw_compile.output.compose.agent_service import HOME, readable_files
from claw_compile.output.compose.proxy_service import COMMAND, DEFAULT_IMAGE, IMAGE_VARIABLE, MODES
from claw_compile.output.deployment import Deployment
from claw_compile.output.kubernetes.container import Converter
from claw_compile.output.kubernetes.network import rules
from claw_compile.output.kubernetes.objects import (
    PROXY_UID,
    Object,
    claim,
    config,
    deployment,
    object_name,
    parse_env_pairs,
    restricted,
    secret,
    secret_keys,
)
from claw_compile.output.proxy_env import (
    CA_MOUNT,
    ENV_FILE,
    HISTORY,
    RUNTIME_MOUNT,
    STATE,
    grace_seconds,
    proxy_environment,
)
from claw_compile.output.yaml_text import Data
from claw_compile.policy.agent import Agent
from claw_compile.policy.check_services import CAPABILITIES
from claw_compile.policy.topology import PROXY

_PAST_THE_GUARD = CAPABILITIES | {"SETFCAP", "SETPCAP", "SETUID"}


def agent_objects(agent: Agent, whole: Deployment, converter: Converter) -> Iterator[Object]:
    """Return the Secrets, the claim and the Deployment of one agent."""
    pod, name = whole.pod_name, object_name(whole.pod_name, agent.id)
    env = converter.environment() | parse_env_pairs(whole.tree[PurePosixPath("agents", agent.id, "env")])
    yield secret(f"{name}.env", pod, env)
    pages = {target.removeprefix(f"{HOME}/"): whole.tree[path] for path, target in readable_files(agent, whole).items()}
    yield config(f"{name}.pages", pod, _by_key(pages))
    context = PurePosixPath("context", agent.id)
    files = {str(p.relative_to(context)): content for p, content in whole.tree.items() if p.is_relative_to(context)}
    yield secret(f"{name}.context", pod, _by_key(files))
    if agent.has_proxy:
        yield claim(f"{name}.state", pod)
    template = _template(agent, whole, converter, (pages, files))
    annotations: Data = {"claw.digest": whole.digest(env | files), "claw.service": agent.spec.name.text}
    yield deployment(name, pod, agent.id, template | {"annotations": annotations})


def _by_key(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {key: files[path] for path, key in secret_keys(list(files)).items()}


def _items(files: Mapping[str, bytes]) -> list[Data]:
    return [{"key": key, "path": path} for path, key in secret_keys(list(files)).items()]


def _template(
    agent: Agent, whole: Deployment, converter: Converter, files: tuple[Mapping[str, bytes], Mapping[str, bytes]]
) -> Object:
    name = object_name(whole.pod_name, agent.id)
    pages, context = files
    main = converter.container()
    for surface in agent.surfaces:
        if surface.scheme == "volume":
            converter.claim(surface.target, f"/mnt/{surface.target}", read_only=surface.mode != "rw")
        elif surface.scheme == "host":
            message = f"not carried over to Kubernetes: the path {surface.shown} of the host"
            converter.diagnostics.append(codes.NOT_CARRIED.at(surface.span, message))
    main["envFrom"] = [{"secretRef": {"name": f"{name}.env"}}]
    if agent.has_proxy:
        drop_rights(main, converter)
    volumes: list[Data] = [{"name": "pages", "configMap": {"name": f"{name}.pages", "items": _items(pages)}}]
    converter.mounts.append({"name": "pages", "mountPath": HOME, "readOnly": True})
    spec: Object = {"automountServiceAccountToken": False, "enableServiceLinks": False}
    if agent.has_proxy:
        if whole.uses_ca and agent.mode != "base-url":
            volumes.append({"name": "trust", "secret": {"secretName": object_name(whole.pod_name, what="ca-public")}})
            directory = str(PurePosixPath(CA_BUNDLE).parent)
            converter.mounts.append({"name": "trust", "mountPath": directory, "readOnly": True})
        spec |= {
            "terminationGracePeriodSeconds": grace_seconds(whole),
            "hostAliases": [{"ip": "127.0.0.1", "hostnames": [PROXY]}],
            "securityContext": {"fsGroup": PROXY_UID},
            "initContainers": [_guard(agent, whole, converter), _proxy(agent, whole, converter)],
        }
        volumes += _proxy_volumes(name, whole, context)
    main["volumeMounts"] = converter.mounts
    return {**spec, "containers": [main], "volumes": [*volumes, *converter.volumes]}


def _image(converter: Converter) -> str:
    return converter.lookup(IMAGE_VARIABLE) or DEFAULT_IMAGE


def _guard(agent: Agent, whole: Deployment, converter: Converter) -> Object:
    command: Data = ["nft", rules(agent, whole, converter)]
    context = restricted(add=["NET_ADMIN"]) | {"runAsUser": 0, "runAsNonRoot": False}
    return {"name": "cllama-guard", "image": _image(converter), "command": command, "securityContext": context}


def _proxy(agent: Agent, whole: Deployment, converter: Converter) -> Object:
    environment, _ = proxy_environment(whole)
    mounts: list[Data] = [
        {"name": "context", "mountPath": f"{RUNTIME_MOUNT}/context/{agent.id}", "readOnly": True},
        {"name": "state", "mountPath": HISTORY, "subPath": "history"},
        {"name": "state", "mountPath": STATE, "subPath": "state"},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of its own
    ]
    mounts += [{"name": name, "mountPath": path, "readOnly": True} for name, path in _shared(whole).items()]
    command = [*COMMAND]
    command += [word for mode in MODES for word in ("--mode", mode)] if agent.mode == "transparent" else []
    result: Object = {
        "name": PROXY,
        "image": _image(converter),
        "restartPolicy": "Always",
        "command": command,
        "env": [{"name": key, "value": value} for key, value in sorted(environment.items())],
        "startupProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 10},
        "securityContext": restricted(PROXY_UID),
        "volumeMounts": mounts,
    }
    if ENV_FILE in whole.tree:
        result["envFrom"] = [{"secretRef": {"name": object_name(whole.pod_name, what="proxy-env")}}]
    return result


def _shared(whole: Deployment) -> dict[Literal["auth", "secrets", "ca"], str]:
    """Return the volumes that every proxy of the pod has, and their mounts."""
    tops = {path.parts[0] for path in whole.tree if path != ENV_FILE}
    shared: dict[Literal["auth", "secrets", "ca"], str] = {"auth": f"{RUNTIME_MOUNT}/auth"} if "auth" in tops else {}
    shared |= {"secrets": "/run/secrets"} if whole.pod.secrets else {}
    return shared | ({"ca": CA_MOUNT} if whole.uses_ca else {})


def _proxy_volumes(name: str, whole: Deployment, context: Mapping[str, bytes]) -> Iterator[Data]:
    files: Data = {"secretName": f"{name}.context", "defaultMode": 0o440, "items": _items(context)}
    yield {"name": "context", "secret": files}
    yield {"name": "state", "persistentVolumeClaim": {"claimName": f"{name}.state"}}
    yield {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
    for volume in _shared(whole):
        secret_name = object_name(whole.pod_name, what=volume)
        if volume != "secrets":
            yield {"name": volume, "secret": {"secretName": secret_name, "defaultMode": 0o440}}
            continue
        sources: list[Data] = [{"secret": {"name": secret_name}}]
        for named in (each.name.text for each in whole.pod.secrets if each.source == "file"):
            item: Data = {"key": "value", "path": named}
            sources.append({"secret": {"name": object_name(whole.pod_name, named, "secret"), "items": [item]}})
        yield {"name": volume, "projected": {"defaultMode": 0o440, "sources": sources}}


def drop_rights(main: Object, converter: Converter) -> None:
    """Take from the agent's container all rights by which it could change or pass the guard, and report what it loses."""
    context = cast("Object", main.setdefault("securityContext", {}))
    context["allowPrivilegeEscalation"] = False
    if context.pop("privileged", False):
        _tell(converter, "privileged", "'privileged', which would let it out past its proxy")
    capabilities = cast("Object", context.setdefault("capabilities", {}))
    capabilities["drop"] = ["ALL"]
    added = [str(name) for name in cast("list[Data]", capabilities.pop("add", []))]
    if kept := [name for name in added if name.upper() not in _PAST_THE_GUARD]:
        capabilities["add"] = [*kept]
    for name in added:
        if name not in kept:
            _tell(converter, "cap_add", f"the capability {quote(name)}, which would let it out past its proxy")
    if context.get("runAsUser") == PROXY_UID and (entry := converter.body.get("user")) is not None:
        converter.diagnostics.append(codes.PROXYS_USER.at(entry.key.span, f"{PROXY_UID} is the user of the proxy"))


def _tell(converter: Converter, key: str, what: str) -> None:
    if (entry := converter.body.get(key)) is not None:
        converter.diagnostics.append(codes.NOT_CARRIED.at(entry.key.span, f"not carried over to Kubernetes: {what}"))
