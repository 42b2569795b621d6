"""``--target kubernetes``: one file for ``kubectl apply`` (spec/compile.md "Verbs").

Rules. The same authority as in compose.generated.yml, and nothing that is not derived from the pod. The file holds
Secrets, so it is in the compiled tree, which only its owner reads. What Compose says and Kubernetes has not is told,
each once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Checked, Diagnostic, Note, Span, quoted
from claw_compile.grammar.pod import ServiceSpec
from claw_compile.output.deployment import CA_DIRECTORY, CA_PRIVATE, Deployment
from claw_compile.output.kubernetes.agent import agent_objects, by_hand
from claw_compile.output.kubernetes.container import Converting
from claw_compile.output.kubernetes.network_policy import denied, policies
from claw_compile.output.kubernetes.objects import (
    Object,
    PodWide,
    claim,
    deployment,
    identity,
    object_name,
    pairs,
    secret,
    service,
)
from claw_compile.output.proxy_env import ENV_FILE
from claw_compile.output.yaml_text import as_yaml, mapping
from claw_compile.parsing.interpolation import Lookup

KUBERNETES_FILE = "kubernetes.generated.yml"
_HOST = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_CARRIED = {"services", "name", "version", "networks", "volumes", "x-claw"}
_FIRST = ("apiVersion", "kind", "metadata")


def kubernetes(whole: Deployment, lookup: Lookup) -> Checked[bytes]:
    """The file, and what of the pod is not in it."""
    found: list[Diagnostic] = [
        codes.NOT_CARRIED.at(each.key.span, f"not carried over to Kubernetes: {quoted(each.key.text)} of the pod")
        for each in whole.pod.document.entries
        if each.key.text not in _CARRIED and not each.key.text.startswith("x-")
    ]
    found.extend(_by_hand(whole))
    objects = [*_objects(whole, lookup, found)]
    found.extend(_twice(objects))
    documents = (as_yaml(mapping(each), _FIRST) for _, each in sorted(objects, key=_place))
    return Checked("---\n".join(documents).encode(), tuple(dict.fromkeys(found)))


def _objects(whole: Deployment, lookup: Lookup, found: list[Diagnostic]) -> Iterator[tuple[Span, Object]]:
    """All of them, each with what of the pod file it comes from."""
    assert whole.pod.name is not None
    for made in _pod_wide(whole):
        yield whole.pod.name.span, made
    claims: dict[str, Span] = {}
    allowed = policies(whole)
    for spec in whole.pod.services:
        needs: set[str] = set()
        for made in _members(spec, whole, lookup, found, needs):
            yield spec.name.span, made
        for host in spec.hosts:
            if host in allowed:
                yield spec.name.span, allowed[host]
        claims = dict.fromkeys(needs, spec.name.span) | claims
    for name, span in sorted(claims.items()):
        yield span, claim(object_name(whole.pod_name, name, "volume"), whole.pod_name)


def _twice(objects: Iterable[tuple[Span, Object]]) -> Iterator[Diagnostic]:
    """Names are made so that no two are one, but for what a digest of eight digits may do."""
    first: dict[tuple[str, str], Span] = {}
    for span, made in objects:
        kind, name = identity(made)
        if (kind, name) in first:
            notes = [Note(first[kind, name], "and here")]
            yield codes.DUPLICATE_OBJECT.at(span, f"the {kind} {quoted(name)} is made twice", notes=notes)
        first.setdefault((kind, name), span)


def _place(placed: tuple[Span, Object]) -> tuple[int, str]:
    """Secrets and claims before who needs them; then by name."""
    order = ("Secret", "ConfigMap", "PersistentVolumeClaim", "NetworkPolicy", "Service", "Deployment")
    kind, name = identity(placed[1])
    return order.index(kind), name


def _pod_wide(whole: Deployment) -> Iterator[Object]:
    pod, tree = whole.pod_name, whole.tree
    yield denied(pod)
    if not whole.has_proxy:
        return
    if ENV_FILE in tree:
        yield secret(object_name(pod, what="proxy-env"), pod, pairs(tree[ENV_FILE]))
    tops: tuple[PodWide, ...] = ("auth", "secrets")
    for top in tops:
        files = {path.name: content for path, content in tree.items() if path.parts[0] == top and path != ENV_FILE}
        if files or (top == "secrets" and whole.pod.secrets):
            yield secret(object_name(pod, what=top), pod, files)


def _by_hand(whole: Deployment) -> Iterator[Diagnostic]:
    if whole.pod.name is None or not whole.has_proxy:
        return
    for each in whole.pod.secrets:
        if each.source == "file":
            name = by_hand(whole.pod_name, each.name.text)
            yield codes.MADE_BY_HAND.at(
                each.name.span, f"the Secret {quoted(name)} with the key 'value' is yours to make"
            )
    if whole.uses_ca:
        directories: dict[PodWide, str] = {"ca": CA_PRIVATE, "ca-public": CA_DIRECTORY}
        for what, directory in directories.items():
            name = object_name(whole.pod_name, what=what)
            message = f"the Secret {quoted(name)} with the files of {directory} is yours to make"
            yield codes.MADE_BY_HAND.at(whole.pod.name.span, message)


def _members(
    spec: ServiceSpec, whole: Deployment, lookup: Lookup, found: list[Diagnostic], claims: set[str]
) -> Iterator[Object]:
    """What a service becomes: for an agent with ``count``, each of its ordinals."""
    if spec.body is None:
        return
    found.extend(
        codes.KUBERNETES_NAME.at(spec.name.span, f"{quoted(host)} can't be a host in Kubernetes")
        for host in spec.hosts
        if not _HOST.fullmatch(host)
    )
    agents = {agent.id: agent for agent in whole.agents if agent.spec is spec}
    for host in agents or (spec.name.text,):
        converting = Converting(spec, lookup, whole.pod_name, found)
        if host in agents:
            yield from agent_objects(agents[host], whole, converting)
        else:
            yield from _service_objects(whole, converting)
        if ports := converting.ports():
            yield service(host, whole.pod_name, ports)
        claims |= converting.claims


def _service_objects(whole: Deployment, converting: Converting) -> Iterator[Object]:
    pod, member = whole.pod_name, converting.spec.name.text
    name = object_name(pod, member)
    container = converting.container()
    environment = converting.environment()
    if environment:
        yield secret(f"{name}.env", pod, environment)
        container["envFrom"] = [{"secretRef": {"name": f"{name}.env"}}]
    if converting.mounts:
        container["volumeMounts"] = converting.mounts
    template: Object = {"automountServiceAccountToken": False, "enableServiceLinks": False, "containers": [container]}
    if converting.volumes:
        template["volumes"] = converting.volumes
    template["annotations"] = {"claw.digest": whole.digest(environment)}
    yield deployment(name, pod, member, template, converting.replicas())
