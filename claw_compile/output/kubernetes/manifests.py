"""``--target kubernetes``: one file for ``kubectl apply`` (docs/spec/compile.md "Verbs").

Rules. The policy is the same as in compose.generated.yml, and every object is derived from the pod.
The file holds Secrets, so it is in the compiled tree, which only its owner reads. Keys of Compose
without a counterpart are reported, each once.

An agent's pod is the agent, and its proxy as a native sidecar (an init container that restarts).
Containers of one pod share its network. So a step with NET_ADMIN first installs the guard, a packet
filter that lets nothing but the proxy's user leave the pod; then the proxy starts, and once it is
healthy the agent. ``cllama`` is a name of this pod's own address. The proxy's files are a Secret
that no other container mounts. An agent gets nothing by which it could change the guard's rules,
send packets below them, or be the user that they let pass: such keys are left out and reported, and
that user itself is refused.

With ``--topology gateway`` an agent's pod is the agent alone, and only the policies confine it
(``gateway``).

In this folder ``whole`` is everything that is deployed (``Deployment`` of ``output.deployment``),
because ``deployment`` makes the Kubernetes object of that kind.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Literal, NamedTuple, cast

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
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "KILL",
    "NET_BIND_SERVICE",
    "SETGID",
    "SYS_CHROOT",
    "SYS_NICE",
}
"""The capabilities that an agent beside a proxy may have.

None of them lets it become another user (SETUID), send packets of its own making (NET_RAW,
NET_ADMIN) or enter a namespace (SYS_ADMIN), so none leads past the guard.
"""
KUBERNETES_FILE = "kubernetes.generated.yml"
_HOST = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_CLUSTERS_OWN = "kubernetes"
_CARRIED = {"services", "name", "version", "networks", "volumes", "x-claw"}
# The times of Compose's healthcheck. A busy proxy answers late, and must not be restarted for it.
_PATIENT: Object = {"periodSeconds": 10, "timeoutSeconds": 5}
_FIRST = ("apiVersion", "kind", "metadata")
_ORDER = (
    "Secret",
    "ConfigMap",
    "PersistentVolumeClaim",
    "NetworkPolicy",
    "Service",
    "Deployment",
    "PodDisruptionBudget",
    "HorizontalPodAutoscaler",
)
"""The order of kinds in the file, which is the order in which kubectl applies them.

A pod starts when its Deployment is applied, and by then its Secrets and its policies must exist.
"""

type _SharedVolume = Literal["auth", "secrets", "ca"]
"""The volumes that a proxy mounts both as a sidecar and in a fleet."""


class _AgentFiles(NamedTuple):
    """The compiled files of one agent, by path: those that it reads, and those for its proxy."""

    pages: Mapping[str, bytes]
    context: Mapping[str, bytes]


def kubernetes(whole: Deployment, lookup: Lookup) -> Result[bytes]:
    """Return the file, and a diagnostic for each part of the pod that is not in it."""
    diagnostics: list[Diagnostic] = []
    for each in whole.pod.document.entries:
        key = each.key.text
        if key not in _CARRIED and not key.startswith("x-"):
            message = f"not carried over to Kubernetes: {quote(key)} of the pod"
            diagnostics.append(codes.NOT_CARRIED.at(each.key.span, message))

    diagnostics.extend(_manual_steps(whole))
    if whole.is_gateway:
        diagnostics.extend(check_gateway(whole))

    objects = [*_objects(whole, lookup, diagnostics)]
    diagnostics.extend(_check_unique(objects))

    in_order = sorted(objects, key=_sort_key)
    documents = [as_yaml(mapping(each), _FIRST) for _, each in in_order]
    # The ordinals of a service are converted one by one, and each reports the same keys.
    return Result("---\n".join(documents).encode(), tuple(dict.fromkeys(diagnostics)))


def _objects(
    whole: Deployment, lookup: Lookup, diagnostics: list[Diagnostic]
) -> Iterator[tuple[Span, Object]]:
    """Yield all objects, each with the place in the pod file that it comes from."""
    assert whole.pod.name is not None
    pod_span = whole.pod.name.span
    for result in (*_pod_wide(whole), *_fleet(whole, lookup)):
        yield pod_span, result

    policy_of = policies(whole, lookup, diagnostics)
    if PROXY in policy_of:
        yield pod_span, policy_of[PROXY]

    claims: dict[str, Span] = {}
    for spec in whole.pod.services:
        needs: set[str] = set()
        for result in _members(spec, whole, lookup, diagnostics, needs):
            yield spec.name.span, result

        for host in spec.hosts:
            if host in policy_of:
                yield spec.name.span, policy_of[host]

        # Several services may mount one volume: its claim belongs to the first.
        claims = dict.fromkeys(needs, spec.name.span) | claims

    for name, span in sorted(claims.items()):
        yield span, claim(object_name(whole.pod_name, name, "volume"), whole.pod_name)


def _check_unique(objects: Iterable[tuple[Span, Object]]) -> Iterator[Diagnostic]:
    """Check that no two objects have the same kind and name: the cluster would keep only the last.

    ``object_name`` keeps names apart, except where two digests of eight digits are equal.
    """
    first: dict[tuple[str, str], Span] = {}
    for span, result in objects:
        kind, name = identity(result)
        if (kind, name) not in first:
            first[kind, name] = span
            continue

        message = f"the {kind} {quote(name)} is made twice"
        notes = [Note(first[kind, name], "and here")]
        yield codes.DUPLICATE_OBJECT.at(span, message, notes=notes)


def _sort_key(placed_object: tuple[Span, Object]) -> tuple[int, str]:
    """Return the sort key of an object: the place of its kind in ``_ORDER``, then its name."""
    kind, name = identity(placed_object[1])
    return _ORDER.index(kind), name


def _pod_wide(whole: Deployment) -> Iterator[Object]:
    pod = whole.pod_name
    yield deny_all(pod)
    if not whole.has_proxy:
        return

    if ENV_FILE in whole.tree:
        variables = parse_env_pairs(whole.tree[ENV_FILE])
        if whole.is_gateway:
            variables.pop(STATE_PLACE, None)  # a Secret of its own
        yield secret(object_name(pod, what="proxy-env"), pod, variables)

    tops: tuple[PodWide, ...] = ("auth", "secrets")
    for top in tops:
        files = {
            path.name: content
            for path, content in whole.tree.items()
            if path.parts[0] == top and path != ENV_FILE
        }
        # A projected volume names the pod's ``secrets`` even if each of them is made by hand.
        is_mounted_anyway = top == "secrets" and bool(whole.pod.secrets)
        if files or is_mounted_anyway:
            yield secret(object_name(pod, what=top), pod, files)


def _fleet(whole: Deployment, lookup: Lookup) -> Iterator[Object]:
    if not whole.is_gateway or not whole.has_proxy:
        return

    container = _proxy_container(whole, lookup)
    yield from gateway_objects(whole, container, [*_common_volumes(whole)])


def _manual_steps(whole: Deployment) -> Iterator[Diagnostic]:
    """Report the Secrets that the operator has to make.

    The compiler does not read the files of such secrets, nor those of the pod's CA.
    """
    if whole.pod.name is None or not whole.has_proxy:
        return

    for each in whole.pod.secrets:
        if each.source == "file":
            name = object_name(whole.pod_name, each.name.text, "secret")
            message = f"the Secret {quote(name)} with the key 'value' is yours to make"
            yield codes.MADE_BY_HAND.at(each.name.span, message)

    if not whole.uses_ca:
        return

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
    """Yield the objects of a service: for an agent with ``count``, of each of its ordinals.

    The names of the volumes that they need are added to ``claims``.
    """
    if spec.body is None:
        return

    diagnostics.extend(_check_hosts(spec))
    agents = {agent.id: agent for agent in whole.agents if agent.spec is spec}
    for host in agents or (spec.name.text,):
        converter = Converter(spec, lookup, whole.pod_name, diagnostics)
        if host in agents:
            yield from agent_objects(agents[host], whole, converter)
        else:
            yield from _service_objects(whole, converter)

        ports = converter.ports()
        if ports:
            yield service(host, whole.pod_name, ports)
        claims |= converter.claims


def _check_hosts(spec: ServiceSpec) -> Iterator[Diagnostic]:
    """Check that each host of a service can be the name of a Service: one label of DNS."""
    for host in spec.hosts:
        if not _HOST.fullmatch(host):
            message = f"{quote(host)} can't be a host in Kubernetes"
            yield codes.KUBERNETES_NAME.at(spec.name.span, message)

    if _CLUSTERS_OWN in spec.hosts:
        message = f"{quote(_CLUSTERS_OWN)} is the cluster's own service, in the namespace 'default'"
        yield codes.KUBERNETES_NAME.at(spec.name.span, message)


def _service_objects(whole: Deployment, converter: Converter) -> Iterator[Object]:
    """Yield a service's Secrets and its Deployment; ``converter`` learns the mounts on the way."""
    pod = whole.pod_name
    member = converter.spec.name.text
    name = object_name(pod, member)

    container = converter.container()
    template: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
    }

    environment = converter.environment()
    if environment:
        yield secret(f"{name}.env", pod, environment)
        container["envFrom"] = [{"secretRef": {"name": f"{name}.env"}}]

    files = _host_files(whole, converter)
    if files:
        yield secret(f"{name}.toolhost", pod, _by_key(files))
        own_context = cast("Object", container["securityContext"])
        container["securityContext"] = restricted(PROXY_UID) | own_context
        # The host runs as that user, whose group may then read the Secret and write the volumes.
        template["securityContext"] = {"fsGroup": PROXY_UID}
        _mount_host_files(f"{name}.toolhost", files, converter)

    if converter.mounts:
        container["volumeMounts"] = converter.mounts
    if converter.volumes:
        template["volumes"] = converter.volumes

    # A changed Secret restarts no pod: the digest in the template does.
    template["annotations"] = {"claw.digest": whole.digest(environment | files)}
    yield deployment(name, pod, member, template, converter.replicas())


def _host_files(whole: Deployment, converter: Converter) -> dict[str, bytes]:
    """Return the files of a tools host by their path in its directory; none for other services."""
    if converter.spec.tools_host is None:
        return {}

    directory = PurePosixPath(CONFIG).parent
    files: dict[str, bytes] = {}
    for target, path in host_mounts(converter.spec, whole).items():
        files[str(PurePosixPath(target).relative_to(directory))] = whole.tree[path]
    return files


def _mount_host_files(name: str, files: Mapping[str, bytes], converter: Converter) -> None:
    """Mount the Secret ``name`` with the files of a tools host as its directory."""
    source: Object = {"secretName": name, "defaultMode": 0o440, "items": _items(files)}
    converter.volumes.append({"name": "toolhost", "secret": source})

    directory = str(PurePosixPath(CONFIG).parent)
    converter.mounts.append({"name": "toolhost", "mountPath": directory, "readOnly": True})


def agent_objects(agent: Agent, whole: Deployment, converter: Converter) -> Iterator[Object]:
    """Yield the objects of one agent: its files, the claim for its proxy, and its Deployment."""
    pod = whole.pod_name
    name = object_name(pod, agent.id)

    # The compiled variables win: the pod file must not give the agent another token.
    runner_env = whole.tree[PurePosixPath("agents", agent.id, "env")]
    env = converter.environment() | parse_env_pairs(runner_env)
    yield secret(f"{name}.env", pod, env)

    pages = {
        target.removeprefix(f"{HOME}/"): whole.tree[path]
        for path, target in readable_files(agent, whole).items()
    }
    yield config(f"{name}.pages", pod, _by_key(pages))

    context = context_files(whole, agent.id)
    yield secret(f"{name}.context", pod, _by_key(context))
    if agent.has_proxy and not whole.is_gateway:
        yield claim(f"{name}.state", pod)

    # The digest is of what this pod mounts. In a gateway that is the pages alone: the fleet has
    # the context, and a change of it restarts the proxies, not the agents.
    mounted_files = pages if whole.is_gateway else context
    digest = whole.digest({**env, **mounted_files})
    annotations: Data = {"claw.digest": digest, "claw.service": agent.spec.name.text}
    template = _template(agent, whole, converter, _AgentFiles(pages, context))
    yield deployment(name, pod, agent.id, template | {"annotations": annotations})


def _by_key(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {key: files[path] for path, key in secret_keys(list(files)).items()}


def _items(files: Mapping[str, bytes]) -> list[Data]:
    return [{"key": key, "path": path} for path, key in secret_keys(list(files)).items()]


def _template(agent: Agent, whole: Deployment, converter: Converter, files: _AgentFiles) -> Object:
    """Return the spec of an agent's pod: its container, and its guard and proxy as sidecars.

    With a gateway the proxies are elsewhere, and there is no guard.

    The converter collects the mounts of the container, and the volumes that they need.
    """
    name = object_name(whole.pod_name, agent.id)
    main = converter.container()
    main["envFrom"] = [{"secretRef": {"name": f"{name}.env"}}]
    _mount_surfaces(agent, converter)
    if agent.has_proxy:
        drop_rights(main, converter)

    pages: Data = {"name": f"{name}.pages", "items": _items(files.pages)}
    volumes: list[Data] = [{"name": "pages", "configMap": pages}]
    converter.mounts.append({"name": "pages", "mountPath": HOME, "readOnly": True})

    if agent.has_proxy and whole.uses_ca and agent.mode != "base-url":
        # The certificates that the runner trusts: without the pod's CA it refuses its proxy.
        public_ca: Data = {"secretName": object_name(whole.pod_name, what="ca-public")}
        volumes.append({"name": "trust", "secret": public_ca})
        directory = str(PurePosixPath(CA_BUNDLE).parent)
        converter.mounts.append({"name": "trust", "mountPath": directory, "readOnly": True})

    spec: Object = {"automountServiceAccountToken": False, "enableServiceLinks": False}
    if agent.has_proxy and not whole.is_gateway:
        # Init containers start in this order, each after the one before it: nothing leaves the pod
        # before the guard has set its rules, and the agent starts when the proxy is healthy.
        guard = _guard(agent, whole, converter)
        proxy = _proxy(agent, whole, converter)
        spec |= {
            "terminationGracePeriodSeconds": grace_seconds(whole),
            "hostAliases": [{"ip": "127.0.0.1", "hostnames": [PROXY]}],
            "securityContext": {"fsGroup": PROXY_UID},
            "initContainers": [guard, proxy],
        }
        volumes += _proxy_volumes(name, whole, files.context)

    main["volumeMounts"] = converter.mounts
    return {**spec, "containers": [main], "volumes": [*volumes, *converter.volumes]}


def _mount_surfaces(agent: Agent, converter: Converter) -> None:
    """Mount the volumes that are surfaces; a path of the host is reported, since nodes differ."""
    for surface in agent.surfaces:
        if surface.scheme == "volume":
            read_only = surface.mode != "rw"
            converter.claim(surface.target, f"/mnt/{surface.target}", read_only=read_only)
        elif surface.scheme == "host":
            message = f"not carried over to Kubernetes: the path {surface.shown} of the host"
            converter.diagnostics.append(codes.NOT_CARRIED.at(surface.span, message))


def _image(lookup: Lookup) -> str:
    return lookup(IMAGE_VARIABLE) or DEFAULT_IMAGE


def _guard(agent: Agent, whole: Deployment, converter: Converter) -> Object:
    """Return the step that sets the packet filter and ends: the only container with NET_ADMIN."""
    command: Data = ["nft", rules(agent, whole, converter)]
    context = restricted(add=["NET_ADMIN"]) | {"runAsUser": 0, "runAsNonRoot": False}
    return {
        "name": "cllama-guard",
        "image": _image(converter.lookup),
        "command": command,
        "securityContext": context,
    }


def _proxy(agent: Agent, whole: Deployment, converter: Converter) -> Object:
    """Return the proxy as the sidecar of one agent."""
    result = _proxy_container(whole, converter.lookup)
    # This makes an init container a native sidecar: it runs as long as the pod.
    result["restartPolicy"] = "Always"

    if agent.mode == "transparent":
        command = cast("list[Data]", result["command"])
        command += [word for mode in MODES for word in ("--mode", mode)]

    mounts = cast("list[Data]", result["volumeMounts"])
    context = f"{RUNTIME_MOUNT}/context/{agent.id}"
    mounts[:0] = [
        {"name": "context", "mountPath": context, "readOnly": True},
        {"name": "state", "mountPath": HISTORY, "subPath": "history"},
        {"name": "state", "mountPath": STATE, "subPath": "state"},
    ]
    return result


def _proxy_container(whole: Deployment, lookup: Lookup) -> Object:
    """Return the proxy's container, with what a sidecar and a fleet have in common.

    The mounts of the agents' files, of the history and of the state are missing in it.
    """
    environment, _ = proxy_environment(whole)
    mounts: list[Data] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - a volume of its own
    for name, path in _shared(whole).items():
        mounts.append({"name": name, "mountPath": path, "readOnly": True})

    # Ready only when it can serve; alive even when it can't: a restart would not bring a provider
    # back, and would end the turns under way.
    health: Data = {"path": "/health", "port": 8080}
    ready: Data = {"path": "/ready", "port": 8080}
    result: Object = {
        "name": PROXY,
        "image": _image(lookup),
        "command": [*proxy_command(whole)],
        "env": [{"name": key, "value": value} for key, value in sorted(environment.items())],
        "startupProbe": {"httpGet": health, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": _PATIENT | {"httpGet": health},
        "readinessProbe": _PATIENT | {"httpGet": ready},
        "securityContext": restricted(PROXY_UID),
        "volumeMounts": mounts,
    }

    if ENV_FILE in whole.tree:
        result["envFrom"] = [{"secretRef": {"name": object_name(whole.pod_name, what="proxy-env")}}]
    return result


def _shared(whole: Deployment) -> dict[_SharedVolume, str]:
    """Return volume → path of what all proxies mount alike."""
    paths: dict[_SharedVolume, str] = {}
    if any(path.parts[0] == "auth" for path in whole.tree if path != ENV_FILE):
        paths["auth"] = f"{RUNTIME_MOUNT}/auth"
    if whole.pod.secrets:
        paths["secrets"] = "/run/secrets"
    if whole.uses_ca:
        paths["ca"] = CA_MOUNT
    return paths


def _proxy_volumes(name: str, whole: Deployment, context: Mapping[str, bytes]) -> Iterator[Data]:
    files: Data = {"secretName": f"{name}.context", "defaultMode": 0o440, "items": _items(context)}
    yield {"name": "context", "secret": files}
    yield {"name": "state", "persistentVolumeClaim": {"claimName": f"{name}.state"}}
    yield from _common_volumes(whole)


def _common_volumes(whole: Deployment) -> Iterator[Data]:
    """Yield the volumes that a proxy has beside an agent and in a fleet."""
    yield {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}

    for volume in _shared(whole):
        secret_name = object_name(whole.pod_name, what=volume)
        if volume != "secrets":
            yield {"name": volume, "secret": {"secretName": secret_name, "defaultMode": 0o440}}
            continue

        # Secrets from the environment are in our Secret, each one from a file in its own: the
        # proxy sees all of them in one directory, as Compose would show them.
        sources: list[Data] = [{"secret": {"name": secret_name}}]
        for each in whole.pod.secrets:
            if each.source != "file":
                continue

            name = each.name.text
            item: Data = {"key": "value", "path": name}
            made_by_hand = object_name(whole.pod_name, name, "secret")
            sources.append({"secret": {"name": made_by_hand, "items": [item]}})

        yield {"name": volume, "projected": {"defaultMode": 0o440, "sources": sources}}


def drop_rights(main: Object, converter: Converter) -> None:
    """Take from the agent's container all rights by which it could change or pass the guard.

    What it loses is reported.
    """
    context = cast("Object", main.setdefault("securityContext", {}))
    context["allowPrivilegeEscalation"] = False
    if context.pop("privileged", False):
        _report_lost(converter, "privileged", "'privileged', which would let it out past its proxy")

    # Everything is dropped first: a container runtime's defaults include NET_RAW and SETUID.
    capabilities = cast("Object", context.setdefault("capabilities", {}))
    capabilities["drop"] = ["ALL"]
    names = [str(name) for name in cast("list[Data]", capabilities.pop("add", []))]
    harmless = [name for name in names if name in _CAPABILITIES]
    if harmless:
        capabilities["add"] = [*harmless]
    for name in names:
        if name not in harmless:
            what = f"the capability {quote(name)}, by which it could get out past its proxy"
            _report_lost(converter, "cap_add", what)

    user = converter.body.get("user")
    if user is not None and context.get("runAsUser") == PROXY_UID:
        message = f"{PROXY_UID} is the user of the proxy"
        converter.diagnostics.append(codes.PROXYS_USER.at(user.key.span, message))


def _report_lost(converter: Converter, key: str, what: str) -> None:
    entry = converter.body.get(key)
    if entry is not None:
        message = f"not carried over to Kubernetes: {what}"
        converter.diagnostics.append(codes.NOT_CARRIED.at(entry.key.span, message))
