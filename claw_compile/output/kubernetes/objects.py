"""Kubernetes objects as data: names, labels, and the plain kinds."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Literal, cast

from claw_compile.output.yaml_text import Data

type Object = dict[str, Data]

PROXY_UID = 52110
"""The proxy's user. The guard lets this user out, so it is a number that no image is likely to use.
"""
_MAX_NAME = 52  # The API takes 63 characters, and controllers append to the names of their pods
_DIGESTED = re.compile(r".*-[0-9a-f]{8}")

type NonMember = Literal["volume", "secret"]  # What the pod file names besides members
type PodWide = Literal[
    "ca", "ca-public", "auth", "secrets", "proxy-env", "deny", "state", "metrics", "history"
]


def object_name(
    pod: str, name_in_pod: str | None = None, what: NonMember | PodWide | None = None
) -> str:
    """Return a name that the API takes, and that is unique.

    It is ``pod-member``, ``pod-notes.volume`` or ``pod.deny``.

    Names of the pod file get no dot here. What follows a dot is ours, as in a member's ``.env``,
    and says what the object is. A name that had to be changed gets a digest; so does one that looks
    as if it had a digest, because it could otherwise be the changed name of another.
    """
    full_name = pod if name_in_pod is None else f"{pod}-{name_in_pod}"
    safe = re.sub(r"[^a-z0-9-]", "-", full_name.lower()).strip("-")[:_MAX_NAME]
    if safe != full_name or _DIGESTED.fullmatch(safe):
        digest = hashlib.sha256(full_name.encode()).hexdigest()[:8]
        safe = f"{safe}-{digest}"

    return safe if what is None else f"{safe}.{what}"


def labels(pod: str, member: str | None = None) -> dict[str, Data]:
    own: dict[str, Data] = {"claw.pod": pod}
    return own if member is None else own | {"claw.member": member}


def kubernetes_object(api: str, kind: str, name: str, pod: str, **body: Data) -> Object:
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": name, "labels": labels(pod)},
        **body,
    }


def identity(result: Object) -> tuple[str, str]:
    """Return kind and name: of two objects with the same the cluster keeps only the last."""
    return str(result["kind"]), str(cast("Object", result["metadata"])["name"])


def secret(name: str, pod: str, contents: Mapping[str, bytes]) -> Object:
    """Return a Secret with its data in base64: a file may be anything."""
    return kubernetes_object("v1", "Secret", name, pod, type="Opaque", data=_encode(contents))


def config(name: str, pod: str, contents: Mapping[str, bytes]) -> Object:
    return kubernetes_object("v1", "ConfigMap", name, pod, binaryData=_encode(contents))


def _encode(contents: Mapping[str, bytes]) -> Data:
    return {key: base64.b64encode(content).decode() for key, content in sorted(contents.items())}


def claim(name: str, pod: str, access: str = "ReadWriteOnce", size: str = "1Gi") -> Object:
    spec: Data = {"accessModes": [access], "resources": {"requests": {"storage": size}}}
    return kubernetes_object("v1", "PersistentVolumeClaim", name, pod, spec=spec)


def service(name: str, pod: str, ports: Sequence[tuple[int, str]]) -> Object:
    """Return the Service that gives the member ``name`` its host name in the namespace."""
    port_list: Data = [
        {"name": f"{protocol.lower()}-{port}", "port": port, "protocol": protocol}
        for port, protocol in ports
    ]
    spec: Data = {"selector": labels(pod, name), "ports": port_list}
    return kubernetes_object("v1", "Service", name, pod, spec=spec)


def deployment(name: str, pod: str, member: str, template: Object, replicas: int = 1) -> Object:
    """Return a Deployment; ``template`` is the spec of its pods, with their ``annotations``.

    Its pods are stopped before new ones start: what holds a volume or an identity must not run
    twice, even for a moment.
    """
    annotations: Data = template.pop("annotations", {})
    metadata: Data = {"labels": labels(pod, member), "annotations": annotations}

    spec: Data = {
        "replicas": replicas,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels(pod, member)},
        "template": {"metadata": metadata, "spec": template},
    }
    return kubernetes_object("apps/v1", "Deployment", name, pod, spec=spec)


def parse_env_pairs(env_file: bytes) -> dict[str, bytes]:
    """Parse an env file of ours: one ``NAME=value`` a line, taken as it is.

    Only a line feed ends a line: ``splitlines`` would cut a value at other characters, too.
    """
    pairs: dict[str, bytes] = {}
    for line in env_file.split(b"\n"):
        if line:
            name, _, value = line.partition(b"=")
            pairs[name.decode()] = value
    return pairs


def secret_keys(paths: Sequence[str]) -> dict[str, str]:
    """Return path → a key that a Secret takes, each once; it takes no ``/``."""
    keys: dict[str, str] = {}
    for index, path in enumerate(sorted(paths)):
        key = re.sub(r"[^-._a-zA-Z0-9]", "_", path).lstrip(".")[:200]
        is_free = bool(key) and key not in keys.values()
        keys[path] = key if is_free else f"{index}-{key}"
    return keys


def restricted(uid: int | None = None, *, add: Sequence[str] = ()) -> Object:
    """Return the security context of a container without rights, but for the capabilities ``add``.

    Without ``uid`` the image or the caller says which user it is.
    """
    capabilities: Object = {"drop": ["ALL"]}
    if add:
        capabilities["add"] = [*add]

    context: Object = {
        "allowPrivilegeEscalation": False,
        "capabilities": capabilities,
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if uid is not None:
        context |= {"runAsUser": uid, "runAsGroup": uid, "runAsNonRoot": uid != 0}
    return context
