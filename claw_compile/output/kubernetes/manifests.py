"""``--target kubernetes``: one file for ``kubectl apply`` (docs/spec/compile.md "Verbs").

Rules. The same policy as in compose.generated.yml, and nothing that is not derived from the pod.
The file holds Secrets, so it is in the compiled tree, which only its owner reads. Keys of Compose
without a counterpart are reported, each once.

An agent's pod is the agent, and its proxy as a native sidecar (an init container that restarts).
Containers of one pod share its network, so a step with NET_ADMIN first lets nothing but the proxy's
user leave it; then the proxy starts, and with it healthy the agent. ``cllama`` is a name of this
pod's own address. The proxy's files are a Secret that no other container mounts. An agent gets
nothing by which it could change the guard's rules, go below them, or be the user that they let
pass: such keys are left out and reported, and that user itself is refused.

With ``--topology gateway`` an agent's pod is the agent alone, and the policies are all that holds
it (``gateway``).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Literal, cast

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Result, Span, quote
from claw_compile.grammar.pod import ServiceSpec
from claw_compile.output.agent_files import CA_BUNDLE
from claw_compile.output.compose.agent_service import HOME, readable_files
from claw_compile.output.compose.proxy_service import (
    DEFAULT_IMAGE,
    IMAGE_VARIABLE,
    MODES,
    proxy_command,
)
from claw_compile.output.deployment import CA_DIRECTORY, CA_PRIVATE, Deployment
from claw_compile.output.kubernetes.container import Converter
from claw_compile.output.kubernetes.gateway import check_gateway, context_files, gateway_objects
from claw_compile.output.kubernetes.network import deny_all, policies, rules
from claw_compile.output.kubernetes.objects import (
    PROXY_UID,
    Object,
    PodWide,
    claim,
    config,
    deployment,
    identity,
    object_name,
    parse_env_pairs,
    restricted,
    secret,
    secret_keys,
    service,
)
from claw_compile.output.proxy_env import (
    CA_MOUNT,
    ENV_FILE,
    HISTORY,
    RUNTIME_MOUNT,
    STATE,
    STATE_PLACE,
    grace_seconds,
    proxy_environment,
)
from claw_compile.output.tools_host import CONFIG, host_mounts
from claw_compile.output.yaml_text import Data, as_yaml, mapping
from claw_compile.parsing.environment import Lookup
from claw_compile.policy.agent import Agent
from claw_compile.policy.topology import PROXY

_CAPABILITIES = {
    *(
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "IPC_LOCK",
        "KILL",
        "NET_BIND_SERVICE",
    ),
    *("SETGID", "SYS_CHROOT", "SYS_NICE"),
}
"""Those that an agent beside a proxy may have: by no other user, packet or
namespace do they lead past the guard.
"""
KUBERNETES_FILE = "kubernetes.generated.yml"
_HOST = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_CLUSTERS_OWN = "kubernetes"
_CARRIED = {"services", "name", "version", "networks", "volumes", "x-claw"}
_PATIENT: Object = {
    "periodSeconds": 10,
    "timeoutSeconds": 5,
}  # As in Compose: a busy proxy is alive, too
_FIRST = ("apiVersion", "kind", "metadata")
_ORDER = (
    *("Secret", "ConfigMap", "PersistentVolumeClaim", "NetworkPolicy", "Service", "Deployment"),
    *("PodDisruptionBudget", "HorizontalPodAutoscaler"),
)


def kubernetes(whole: Deployment, lookup: Lookup) -> Result[bytes]:
    """Return the file, and a diagnostic for each part of the pod that is not in it."""
    diagnostics: list[Diagnostic] = [
        codes.NOT_CARRIED.at(
            each.key.span, f"not carried over to Kubernetes: {quote(each.key.text)} of the pod"
        )
        for each in whole.pod.document.entries
        if each.key.text not in _CARRIED and not each.key.text.startswith("x-")
    ]
    diagnostics.extend(_manual_steps(whole))
    diagnostics.extend(check_gateway(whole) if whole.is_gateway else ())
    objects = [*_objects(whole, lookup, diagnostics)]
    diagnostics.extend(_check_unique(objects))
    documents = (as_yaml(mapping(each), _FIRST) for _, each in sorted(objects, key=_place))
    return Result("---\n".join(documents).encode(), tuple(dict.fromkeys(diagnostics)))


def _objects(
    whole: Deployment, lookup: Lookup, diagnostics: list[Diagnostic]
) -> Iterator[tuple[Span, Object]]:
    assert whole.pod.name is not None
    for result in (*_pod_wide(whole), *_fleet(whole, lookup)):
        yield whole.pod.name.span, result
    claims: dict[str, Span] = {}
    allowed = policies(whole, lookup, diagnostics)
    if PROXY in allowed:
        yield whole.pod.name.span, allowed[PROXY]
    for spec in whole.pod.services:
        needs: set[str] = set()
        for result in _members(spec, whole, lookup, diagnostics, needs):
            yield spec.name.span, result
        for host in spec.hosts:
            if host in allowed:
                yield spec.name.span, allowed[host]
        claims = dict.fromkeys(needs, spec.name.span) | claims
    for name, span in sorted(claims.items()):
        yield span, claim(object_name(whole.pod_name, name, "volume"), whole.pod_name)


def _check_unique(objects: Iterable[tuple[Span, Object]]) -> Iterator[Diagnostic]:
    """Check that no two objects have one name; names differ, but for what a digest
    of eight digits may do.
    """
    first: dict[tuple[str, str], Span] = {}
    for span, result in objects:
        kind, name = identity(result)
        if (kind, name) in first:
            notes = [Note(first[kind, name], "and here")]
            yield codes.DUPLICATE_OBJECT.at(
                span, f"the {kind} {quote(name)} is made twice", notes=notes
            )
        first.setdefault((kind, name), span)


def _place(placed: tuple[Span, Object]) -> tuple[int, str]:
    """Return the sort key of an object: Secrets and claims before the objects that
    need them; then by name.
    """
    kind, name = identity(placed[1])
    return _ORDER.index(kind), name


def _pod_wide(whole: Deployment) -> Iterator[Object]:
    pod, tree = whole.pod_name, whole.tree
    yield deny_all(pod)
    if not whole.has_proxy:
        return
    if ENV_FILE in tree:
        variables = parse_env_pairs(tree[ENV_FILE])
        if whole.is_gateway:
            variables.pop(STATE_PLACE, None)  # a Secret of its own
        yield secret(object_name(pod, what="proxy-env"), pod, variables)
    tops: tuple[PodWide, ...] = ("auth", "secrets")
    for top in tops:
        files = {
            path.name: content
            for path, content in tree.items()
            if path.parts[0] == top and path != ENV_FILE
        }
        if files or (top == "secrets" and whole.pod.secrets):
            yield secret(object_name(pod, what=top), pod, files)


def _fleet(whole: Deployment, lookup: Lookup) -> Iterator[Object]:
    if whole.is_gateway and whole.has_proxy:
        yield from gateway_objects(
            whole, _proxy_container(whole, lookup), [*_common_volumes(whole)]
        )


def _manual_steps(whole: Deployment) -> Iterator[Diagnostic]:
    if whole.pod.name is None or not whole.has_proxy:
        return
    for each in whole.pod.secrets:
        if each.source == "file":
            name = object_name(whole.pod_name, each.name.text, "secret")
            message = f"the Secret {quote(name)} with the key 'value' is yours to make"
            yield codes.MADE_BY_HAND.at(each.name.span, message)
    if whole.uses_ca:
        directories: dict[PodWide, str] = {"ca": CA_PRIVATE, "ca-public": CA_DIRECTORY}
        for what, directory in directories.items():
            name = object_name(whole.pod_name, what=what)
            message = f"create the Secret {quote(name)} with the files of {directory} yourself"
            yield codes.MADE_BY_HAND.at(whole.pod.name.span, message)


def _members(
    spec: ServiceSpec,
    whole: Deployment,
    lookup: Lookup,
    diagnostics: list[Diagnostic],
    claims: set[str],
) -> Iterator[Object]:
    """Yield the objects of a service: for an agent with ``count``, of each of its ordinals."""
    if spec.body is None:
        return
    diagnostics.extend(
        codes.KUBERNETES_NAME.at(spec.name.span, f"{quote(host)} can't be a host in Kubernetes")
        for host in spec.hosts
        if not _HOST.fullmatch(host)
    )
    diagnostics.extend(
        codes.KUBERNETES_NAME.at(
            spec.name.span,
            f"{quote(host)} is the cluster's own service, in the namespace 'default'",
        )
        for host in spec.hosts
        if host == _CLUSTERS_OWN
    )
    agents = {agent.id: agent for agent in whole.agents if agent.spec is spec}
    for host in agents or (spec.name.text,):
        converter = Converter(spec, lookup, whole.pod_name, diagnostics)
        if host in agents:
            yield from agent_objects(agents[host], whole, converter)
        else:
            yield from _service_objects(whole, converter)
        if ports := converter.ports():
            yield service(host, whole.pod_name, ports)
        claims |= converter.claims


def _service_objects(whole: Deployment, converter: Converter) -> Iterator[Object]:
    pod, member = whole.pod_name, converter.spec.name.text
    name = object_name(pod, member)
    container = converter.container()
    environment = converter.environment()
    if environment:
        yield secret(f"{name}.env", pod, environment)
        container["envFrom"] = [{"secretRef": {"name": f"{name}.env"}}]
    files = _host_files(whole, converter)
    template: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
    }
    if files:
        yield secret(f"{name}.toolhost", pod, _by_key(files))
        container["securityContext"] = restricted(PROXY_UID) | cast(
            "Object", container["securityContext"]
        )
        template["securityContext"] = {"fsGroup": PROXY_UID}
        source: Object = {
            "secretName": f"{name}.toolhost",
            "defaultMode": 0o440,
            "items": _items(files),
        }
        converter.volumes.append({"name": "toolhost", "secret": source})
        converter.mounts.append(
            {"name": "toolhost", "mountPath": str(PurePosixPath(CONFIG).parent), "readOnly": True}
        )
    if converter.mounts:
        container["volumeMounts"] = converter.mounts
    if converter.volumes:
        template["volumes"] = converter.volumes
    template["annotations"] = {"claw.digest": whole.digest(environment | files)}
    yield deployment(name, pod, member, template, converter.replicas())


def _host_files(whole: Deployment, converter: Converter) -> dict[str, bytes]:
    """Return the files of a tools host, by their path in its directory; none of another service."""
    if converter.spec.tools_host is None:
        return {}
    mounts = host_mounts(converter.spec, whole)
    return {
        str(PurePosixPath(at).relative_to(PurePosixPath(CONFIG).parent)): whole.tree[path]
        for at, path in mounts.items()
    }


def agent_objects(agent: Agent, whole: Deployment, converter: Converter) -> Iterator[Object]:
    pod, name = whole.pod_name, object_name(whole.pod_name, agent.id)
    env = converter.environment() | parse_env_pairs(
        whole.tree[PurePosixPath("agents", agent.id, "env")]
    )
    yield secret(f"{name}.env", pod, env)
    pages = {
        target.removeprefix(f"{HOME}/"): whole.tree[path]
        for path, target in readable_files(agent, whole).items()
    }
    yield config(f"{name}.pages", pod, _by_key(pages))
    files = context_files(whole, agent.id)
    yield secret(f"{name}.context", pod, _by_key(files))
    if agent.has_proxy and not whole.is_gateway:
        yield claim(f"{name}.state", pod)
    template = _template(agent, whole, converter, (pages, files))
    digest = whole.digest({**env, **(pages if whole.is_gateway else files)})
    annotations: Data = {"claw.digest": digest, "claw.service": agent.spec.name.text}
    yield deployment(name, pod, agent.id, template | {"annotations": annotations})


def _by_key(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {key: files[path] for path, key in secret_keys(list(files)).items()}


def _items(files: Mapping[str, bytes]) -> list[Data]:
    return [{"key": key, "path": path} for path, key in secret_keys(list(files)).items()]


def _template(
    agent: Agent,
    whole: Deployment,
    converter: Converter,
    files: tuple[Mapping[str, bytes], Mapping[str, bytes]],
) -> Object:
    name = object_name(whole.pod_name, agent.id)
    pages, context = files
    main = converter.container()
    for surface in agent.surfaces:
        if surface.scheme == "volume":
            converter.claim(
                surface.target, f"/mnt/{surface.target}", read_only=surface.mode != "rw"
            )
        elif surface.scheme == "host":
            message = f"not carried over to Kubernetes: the path {surface.shown} of the host"
            converter.diagnostics.append(codes.NOT_CARRIED.at(surface.span, message))
    main["envFrom"] = [{"secretRef": {"name": f"{name}.env"}}]
    if agent.has_proxy:
        drop_rights(main, converter)
    volumes: list[Data] = [
        {"name": "pages", "configMap": {"name": f"{name}.pages", "items": _items(pages)}}
    ]
    converter.mounts.append({"name": "pages", "mountPath": HOME, "readOnly": True})
    spec: Object = {"automountServiceAccountToken": False, "enableServiceLinks": False}
    if agent.has_proxy and whole.uses_ca and agent.mode != "base-url":
        volumes.append(
            {
                "name": "trust",
                "secret": {"secretName": object_name(whole.pod_name, what="ca-public")},
            }
        )
        directory = str(PurePosixPath(CA_BUNDLE).parent)
        converter.mounts.append({"name": "trust", "mountPath": directory, "readOnly": True})
    if agent.has_proxy and not whole.is_gateway:
        spec |= {
            "terminationGracePeriodSeconds": grace_seconds(whole),
            "hostAliases": [{"ip": "127.0.0.1", "hostnames": [PROXY]}],
            "securityContext": {"fsGroup": PROXY_UID},
            "initContainers": [_guard(agent, whole, converter), _proxy(agent, whole, converter)],
        }
        volumes += _proxy_volumes(name, whole, context)
    main["volumeMounts"] = converter.mounts
    return {**spec, "containers": [main], "volumes": [*volumes, *converter.volumes]}


def _image(lookup: Lookup) -> str:
    return lookup(IMAGE_VARIABLE) or DEFAULT_IMAGE


def _guard(agent: Agent, whole: Deployment, converter: Converter) -> Object:
    command: Data = ["nft", rules(agent, whole, converter)]
    context = restricted(add=["NET_ADMIN"]) | {"runAsUser": 0, "runAsNonRoot": False}
    return {
        "name": "cllama-guard",
        "image": _image(converter.lookup),
        "command": command,
        "securityContext": context,
    }


def _proxy(agent: Agent, whole: Deployment, converter: Converter) -> Object:
    result = _proxy_container(whole, converter.lookup)
    result["restartPolicy"] = "Always"
    command, mounts = (
        cast("list[Data]", result["command"]),
        cast("list[Data]", result["volumeMounts"]),
    )
    command += (
        [word for mode in MODES for word in ("--mode", mode)] if agent.mode == "transparent" else []
    )
    mounts[:0] = [
        {"name": "context", "mountPath": f"{RUNTIME_MOUNT}/context/{agent.id}", "readOnly": True},
        {"name": "state", "mountPath": HISTORY, "subPath": "history"},
        {"name": "state", "mountPath": STATE, "subPath": "state"},
    ]
    return result


def _proxy_container(whole: Deployment, lookup: Lookup) -> Object:
    """Return the proxy's container, without the mounts of an agent's files, of
    history and of the state.
    """
    environment, _ = proxy_environment(whole)
    mounts: list[Data] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - a volume of its own
    mounts += [
        {"name": name, "mountPath": path, "readOnly": True} for name, path in _shared(whole).items()
    ]
    result: Object = {
        "name": PROXY,
        "image": _image(lookup),
        "command": [*proxy_command(whole)],
        "env": [{"name": key, "value": value} for key, value in sorted(environment.items())],
        "startupProbe": {
            "httpGet": {"path": "/health", "port": 8080},
            "periodSeconds": 1,
            "failureThreshold": 60,
        },
        "livenessProbe": _PATIENT | {"httpGet": {"path": "/health", "port": 8080}},
        "readinessProbe": _PATIENT | {"httpGet": {"path": "/ready", "port": 8080}},
        "securityContext": restricted(PROXY_UID),
        "volumeMounts": mounts,
    }
    if ENV_FILE in whole.tree:
        result["envFrom"] = [{"secretRef": {"name": object_name(whole.pod_name, what="proxy-env")}}]
    return result


def _shared(whole: Deployment) -> dict[Literal["auth", "secrets", "ca"], str]:
    tops = {path.parts[0] for path in whole.tree if path != ENV_FILE}
    shared: dict[Literal["auth", "secrets", "ca"], str] = (
        {"auth": f"{RUNTIME_MOUNT}/auth"} if "auth" in tops else {}
    )
    shared |= {"secrets": "/run/secrets"} if whole.pod.secrets else {}
    return shared | ({"ca": CA_MOUNT} if whole.uses_ca else {})


def _proxy_volumes(name: str, whole: Deployment, context: Mapping[str, bytes]) -> Iterator[Data]:
    files: Data = {"secretName": f"{name}.context", "defaultMode": 0o440, "items": _items(context)}
    yield {"name": "context", "secret": files}
    yield {"name": "state", "persistentVolumeClaim": {"claimName": f"{name}.state"}}
    yield from _common_volumes(whole)


def _common_volumes(whole: Deployment) -> Iterator[Data]:
    yield {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
    for volume in _shared(whole):
        secret_name = object_name(whole.pod_name, what=volume)
        if volume != "secrets":
            yield {"name": volume, "secret": {"secretName": secret_name, "defaultMode": 0o440}}
            continue
        sources: list[Data] = [{"secret": {"name": secret_name}}]
        for named in (each.name.text for each in whole.pod.secrets if each.source == "file"):
            item: Data = {"key": "value", "path": named}
            sources.append(
                {"secret": {"name": object_name(whole.pod_name, named, "secret"), "items": [item]}}
            )
        yield {"name": volume, "projected": {"defaultMode": 0o440, "sources": sources}}


def drop_rights(main: Object, converter: Converter) -> None:
    """Take from the agent's container all rights by which it could change or pass
    the guard, and report what it loses.
    """
    context = cast("Object", main.setdefault("securityContext", {}))
    context["allowPrivilegeEscalation"] = False
    if context.pop("privileged", False):
        _tell(converter, "privileged", "'privileged', which would let it out past its proxy")
    capabilities = cast("Object", context.setdefault("capabilities", {}))
    capabilities["drop"] = ["ALL"]
    added = [str(name) for name in cast("list[Data]", capabilities.pop("add", []))]
    if kept := [name for name in added if name in _CAPABILITIES]:
        capabilities["add"] = [*kept]
    for name in added:
        if name not in kept:
            _tell(
                converter,
                "cap_add",
                f"the capability {quote(name)}, by which it could get out past its proxy",
            )
    if context.get("runAsUser") == PROXY_UID and (entry := converter.body.get("user")) is not None:
        converter.diagnostics.append(
            codes.PROXYS_USER.at(entry.key.span, f"{PROXY_UID} is the user of the proxy")
        )


def _tell(converter: Converter, key: str, what: str) -> None:
    if (entry := converter.body.get(key)) is not None:
        converter.diagnostics.append(
            codes.NOT_CARRIED.at(entry.key.span, f"not carried over to Kubernetes: {what}")
        )
