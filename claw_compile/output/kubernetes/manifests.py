"""``--target kubernetes``: one file for ``kubectl apply`` (docs/spec/compile.md "Verbs").

Rules. The same policy as in compose.generated.yml, and nothing that is not derived from the pod. The file holds
Secrets, so it is in the compiled tree, which only its owner reads. Keys of Compose without a counterpart are reported,
each once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Result, Span, quote
from claw_compile.grammar.pod import ServiceSpec
from claw_compile.output.deployment import CA_DIRECTORY, CA_PRIVATE, Deployment
from claw_compile.output.kubernetes.agent import agent_objects
from claw_compile.output.kubernetes.container import Converter
from claw_compile.output.kubernetes.network import deny_all, policies
from claw_compile.output.kubernetes.objects import (
    Object,
    PodWide,
    claim,
    deployment,
    identity,
    object_name,
    parse_env_pairs,
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


def kubernetes(whole: Deployment, lookup: Lookup) -> Result[bytes]:
    """Return the file, and a diagnostic for each part of the pod that is not in it."""
    diagnostics: list[Diagnostic] = [
        codes.NOT_CARRIED.at(each.key.span, f"not carried over to Kubernetes: {quote(each.key.text)} of the pod")
        for each in whole.pod.document.entries
        if each.key.text not in _CARRIED and not each.key.text.startswith("x-")
    ]
    diagnostics.extend(_manual_steps(whole))
    objects = [*_objects(whole, lookup, diagnostics)]
    diagnostics.extend(_check_unique(objects))
    documents = (as_yaml(mapping(each), _FIRST) for _, each in sorted(objects, key=_place))
    return Result("---\n".join(documents).encode(), tuple(dict.fromkeys(diagnostics)))


def _objects(whole: Deployment, lookup: Lookup, diagnostics: list[Diagnostic]) -> Iterator[tuple[Span, Object]]:
    """Yield all objects, each with the place of the pod file that it comes from."""
    assert whole.pod.name is not None
    for result in _pod_wide(whole):
        yield whole.pod.name.span, result
    claims: dict[str, Span] = {}
    allowed = policies(whole)
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
    """Check that no two objects have one name; names differ, but for what a digest of eight digits may do."""
    first: dict[tuple[str, str], Span] = {}
    for span, result in objects:
        kind, name = identity(result)
        if (kind, name) in first:
            notes = [Note(first[kind, name], "and here")]
            yield codes.DUPLICATE_OBJECT.at(span, f"the {kind} {quote(name)} is made twice", notes=notes)
        first.setdefault((kind, name), span)


def _place(placed: tuple[Span, Object]) -> tuple[int, str]:
    """Return the sort key of an object: Secrets and claims before the objects that need them; then by name."""
    order = ("Secret", "ConfigMap", "PersistentVolumeClaim", "NetworkPolicy", "Service", "Deployment")
    kind, name = identity(placed[1])
    return order.index(kind), name


def _pod_wide(whole: Deployment) -> Iterator[Object]:
    pod, tree = whole.pod_name, whole.tree
    yield deny_all(pod)
    if not whole.has_proxy:
        return
    if ENV_FILE in tree:
        yield secret(object_name(pod, what="proxy-env"), pod, parse_env_pairs(tree[ENV_FILE]))
    tops: tuple[PodWide, ...] = ("auth", "secrets")
    for top in tops:
        files = {path.name: content for path, content in tree.items() if path.parts[0] == top and path != ENV_FILE}
        if files or (top == "secrets" and whole.pod.secrets):
            yield secret(object_name(pod, what=top), pod, files)


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
    spec: ServiceSpec, whole: Deployment, lookup: Lookup, diagnostics: list[Diagnostic], claims: set[str]
) -> Iterator[Object]:
    """Yield the objects of a service: for an agent with ``count``, of each of its ordinals."""
    if spec.body is None:
        return
    diagnostics.extend(
        codes.KUBERNETES_NAME.at(spec.name.span, f"{quote(host)} can't be a host in Kubernetes")
        for host in spec.hosts
        if not _HOST.fullmatch(host)
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
    if converter.mounts:
        container["volumeMounts"] = converter.mounts
    template: Object = {"automountServiceAccountToken": False, "enableServiceLinks": False, "containers": [container]}
    if converter.volumes:
        template["volumes"] = converter.volumes
    template["annotations"] = {"claw.digest": whole.digest(environment)}
    yield deployment(name, pod, member, template, converter.replicas())
