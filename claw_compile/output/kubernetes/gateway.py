"""``--topology gateway``: a fleet of proxies for a whole pod, as one Deployment
(docs/spec/compile.md "Verbs", decision 0036).

Rules. Any proxy serves any agent, so they share one state, a server whose URL is a Secret of its
own. Nothing is in a proxy that another one needs: its volumes have the states of provider keys,
which each learns anew, and its history, a directory of its own in a claim that outlives it. A proxy
that is stopped first leaves the Service, then ends its turns, however long they may take. The
autoscaler counts turns, since a proxy that waits for models uses no CPU.
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic
from claw_compile.identity import derive_key
from claw_compile.output.compose.proxy_service import asked_workers
from claw_compile.output.deployment import Deployment
from claw_compile.output.kubernetes.objects import (
    PROXY_UID,
    Object,
    claim,
    kubernetes_object,
    labels,
    object_name,
    secret,
    secret_keys,
    service,
)
from claw_compile.output.proxy_env import HISTORY, RUNTIME_MOUNT, STATE, STATE_PLACE, grace_seconds
from claw_compile.output.yaml_text import Data
from claw_compile.policy.topology import PROXY

ENTRANCES = (8080, 8082)
"""The ports of the base URL and of the forward proxy."""
MIN_REPLICAS, MAX_REPLICAS, TURNS = 2, 10, 50
"""The size of the fleet, and the turns under way in each worker of a proxy that the
autoscaler aims at.
"""
_WORKER_MILLICPU, _WORKER_MIB = 500, 256
_METRIC = "claw_turns_under_way"
_METRICS, _METRICS_TOKEN, _METRICS_PORT = "CLAW_METRICS_ADDR", "CLAW_METRICS_TOKEN", 9464
_LEAVE_SECONDS = 5  # Until no node sends new connections to a pod that is being stopped
_SESSION_SECONDS = 3600  # Longer than the broker keeps an idle session
_REPLICA = "CLAW_REPLICA"
_SERVERS = ("redis", "rediss")
_STATE_PORT = 6379


class StateServer(NamedTuple):
    host: str
    port: int


def state_server(whole: Deployment) -> StateServer | None:
    """Return the server of the state; None where ``CLAW_STATE`` names none that
    several proxies can share.
    """
    setting = whole.resolved.proxy_env.get(STATE_PLACE)
    try:
        url = urlsplit(setting.value if setting else "")
        host, port = url.hostname, url.port or _STATE_PORT
    except ValueError:
        return None
    database = (
        url.path.removeprefix("/") or "0"
    )  # else a password with "@" and "/" would name another host
    if (
        url.scheme not in _SERVERS
        or not host
        or host == "localhost"
        or not database.isdecimal()
        or url.query
    ):
        return None
    address = parse_ip(host)
    return None if address is not None and address.is_loopback else StateServer(host, port)


def parse_ip(host: str) -> IPv4Address | IPv6Address | None:
    """Parse a numeric address; return None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def check_gateway(whole: Deployment) -> Iterator[Diagnostic]:
    """Report what keeps a pod from having a fleet, and what its operator has to make."""
    assert whole.pod.name is not None
    if not whole.has_proxy:
        return
    for agent in whole.agents:
        if agent.cllama is not None and agent.has_proxy and agent.mode == "transparent":
            message = f"{agent.id} is transparent, and its proxy is in another pod"
            yield codes.TRANSPARENT_GATEWAY.at(agent.cllama.key, message)
    if state_server(whole) is None:
        setting = whole.resolved.proxy_env.get(STATE_PLACE)
        at, what = (
            (whole.pod.name.span, "sets no") if setting is None else (setting.key, "shares no")
        )
        message = (
            f"the pod {what} state by {STATE_PLACE}: each proxy of a fleet would have one of "
            "its own"
        )
        yield codes.UNSHARED_STATE.at(at, message)
    message = (
        f"the autoscaler reads {_METRIC} from custom.metrics.k8s.io: install an adapter, and "
        "let Prometheus in"
    )
    yield codes.MADE_BY_HAND.at(
        whole.pod.name.span, message, help_text="docs/deployment.md shows both"
    )


def gateway_objects(
    whole: Deployment, container: Object, volumes: Sequence[Data]
) -> Iterator[Object]:
    """Yield the fleet's objects.

    ``container`` is the proxy's, and ``volumes`` are those that it shares with no fleet.
    """
    pod, name = whole.pod_name, object_name(whole.pod_name, PROXY)
    state = whole.resolved.proxy_env.get(STATE_PLACE)
    yield secret(
        object_name(pod, what="state"), pod, {"url": state.value.encode() if state else b""}
    )
    if _METRICS_TOKEN not in whole.resolved.proxy_env:
        token = derive_key(whole.master, b"metrics-token", 24).hex().encode()
        yield secret(object_name(pod, what="metrics"), pod, {"token": token})
    yield claim(object_name(pod, what="history"), pod, "ReadWriteMany", "10Gi")
    yield _service(whole)
    yield _deployment(whole, container, volumes)
    chosen: Data = {"matchLabels": labels(pod, PROXY)}
    budget: Data = {
        "maxUnavailable": 1,
        "selector": chosen,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    yield kubernetes_object("policy/v1", "PodDisruptionBudget", name, pod, spec=budget)
    yield kubernetes_object(
        "autoscaling/v2", "HorizontalPodAutoscaler", name, pod, spec=_scale(name, _workers(whole))
    )


def _service(whole: Deployment) -> Object:
    """Return the Service, by the name that every agent has.

    The broker's sessions are in one proxy's memory.
    """
    result = service(PROXY, whole.pod_name, [(port, "TCP") for port in ENTRANCES])
    if any(agent.delivery == "native" for agent in whole.agents):
        affinity: Object = {"clientIP": {"timeoutSeconds": _SESSION_SECONDS}}
        spec = result["spec"]
        assert isinstance(spec, dict)
        spec |= {"sessionAffinity": "ClientIP", "sessionAffinityConfig": affinity}
    return result


def _deployment(whole: Deployment, container: Object, volumes: Sequence[Data]) -> Object:
    """Return the Deployment without ``replicas``, which the autoscaler sets, and a
    new apply must not.
    """
    chosen: Data = {"matchLabels": labels(whole.pod_name, PROXY)}
    files = {
        str(path): data
        for path, data in whole.tree.items()
        if path.parts[0] in {"context", "auth", "secrets"}
    }
    about: Data = {
        "labels": labels(whole.pod_name, PROXY),
        "annotations": {"claw.digest": whole.digest(files)},
    }
    spread: list[Data] = [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": chosen,
        }
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ]
    template: Data = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _LEAVE_SECONDS + grace_seconds(whole),
        # The history of all proxies is not walked through whenever one starts.
        "securityContext": {"fsGroup": PROXY_UID, "fsGroupChangePolicy": "OnRootMismatch"},
        "topologySpreadConstraints": spread,
        "containers": [_container(whole, container)],
        "volumes": [*_volumes(whole), *volumes],
    }
    spec: Data = {
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
        },
        "selector": chosen,
        "template": {"metadata": about, "spec": template},
    }
    return kubernetes_object(
        "apps/v1", "Deployment", object_name(whole.pod_name, PROXY), whole.pod_name, spec=spec
    )


def _container(whole: Deployment, container: Object) -> Object:
    env, mounts, workers = container["env"], container["volumeMounts"], _workers(whole)
    assert isinstance(env, list)
    assert isinstance(mounts, list)
    return container | {
        "env": [*env, *_variables(whole)],
        "volumeMounts": [
            {"name": "context", "mountPath": f"{RUNTIME_MOUNT}/context", "readOnly": True},
            {"name": "history", "mountPath": HISTORY, "subPathExpr": f"$({_REPLICA})"},
            {"name": "state", "mountPath": STATE},
            *mounts,
        ],
        "ports": [{"containerPort": port} for port in (*ENTRANCES, _METRICS_PORT)],
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_LEAVE_SECONDS)]}}},
        "resources": {
            "requests": {
                "cpu": f"{_WORKER_MILLICPU * workers}m",
                "memory": f"{_WORKER_MIB * workers}Mi",
            }
        },
    }


def _variables(whole: Deployment) -> Iterator[Data]:
    pod, stated = whole.pod_name, whole.resolved.proxy_env
    yield {"name": _REPLICA, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    yield {
        "name": STATE_PLACE,
        "valueFrom": {"secretKeyRef": {"name": object_name(pod, what="state"), "key": "url"}},
    }
    if _METRICS not in stated:
        yield {"name": _METRICS, "value": f":{_METRICS_PORT}"}
    if _METRICS_TOKEN not in stated:
        source: Data = {"secretKeyRef": {"name": object_name(pod, what="metrics"), "key": "token"}}
        yield {"name": _METRICS_TOKEN, "valueFrom": source}


def _volumes(whole: Deployment) -> Iterator[Data]:
    """Yield the volumes of all agents' files, as one; of the history; and of what a
    proxy learns.
    """
    sources: list[Data] = []
    for agent in whole.agents:
        if agent.has_proxy:
            name = f"{object_name(whole.pod_name, agent.id)}.context"
            keys = secret_keys([*context_files(whole, agent.id)])
            items: list[Data] = [
                {"key": key, "path": f"{agent.id}/{path}"} for path, key in keys.items()
            ]
            sources.append({"secret": {"name": name, "items": items}})
    yield {"name": "context", "projected": {"defaultMode": 0o440, "sources": sources}}
    yield {
        "name": "history",
        "persistentVolumeClaim": {"claimName": object_name(whole.pod_name, what="history")},
    }
    yield {"name": "state", "emptyDir": {"sizeLimit": "64Mi"}}


def context_files(whole: Deployment, agent_id: str) -> Mapping[str, bytes]:
    """Return the files of an agent's context directory."""
    found = (
        (path, data) for path, data in whole.tree.items() if path.parts[:2] == ("context", agent_id)
    )
    return {"/".join(path.parts[2:]): data for path, data in found}


def _workers(whole: Deployment) -> int:
    """Return the workers of each proxy; 1 for ``auto``, since how many a node has
    room for is known only there.
    """
    asked = asked_workers(whole)
    return int(asked) if asked.isdecimal() else 1


def _scale(name: str, workers: int) -> Data:
    target: Data = {"type": "AverageValue", "averageValue": str(TURNS * workers)}
    return {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": MIN_REPLICAS,
        "maxReplicas": MAX_REPLICAS,
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": _METRIC}, "target": target}}],
        "behavior": {
            "scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
        },
    }
