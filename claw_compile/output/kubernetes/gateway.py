"""``--topology gateway``: a fleet of proxies for a whole pod, as one Deployment.

Specification: docs/spec/compile.md "Verbs", decision 0036.

Rules. Any proxy serves any agent, so all share one state: a server, whose URL is a Secret of its
own. No proxy holds anything that another one needs. Its volumes are the states of provider keys,
which each proxy learns by itself, and its history, a directory of its own in a claim that outlives
it. A proxy that is stopped first leaves the Service, then ends its turns, however long they may
take. The autoscaler counts turns, because a proxy that waits for models uses no CPU.
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
from claw_contract.whole_numbers import whole_number

ENTRANCES = (8080, 8082)
"""The ports of the base URL and of the forward proxy."""
MIN_REPLICAS = 2
MAX_REPLICAS = 10
TURNS = 50
"""The turns under way in each worker of a proxy that the autoscaler aims at."""
_WORKER_MILLICPU = 500
_WORKER_MIB = 256
_METRIC = "claw_turns_under_way"
_METRICS = "CLAW_METRICS_ADDR"
_METRICS_TOKEN = "CLAW_METRICS_TOKEN"  # noqa: S105 - the name of a variable
_METRICS_PORT = 9464
_LEAVE_SECONDS = 5  # Until no node sends new connections to a pod that is being stopped
_SESSION_SECONDS = 3600  # Longer than the broker keeps an idle session
_REPLICA = "CLAW_REPLICA"
_SERVERS = ("redis", "rediss")
_STATE_PORT = 6379


class StateServer(NamedTuple):
    host: str
    port: int


def state_server(whole: Deployment) -> StateServer | None:
    """Return the server of the state.

    Return None where ``CLAW_STATE`` names none that several proxies can share: a file, a server on
    the proxy's own machine, or a URL that the proxy would refuse.
    """
    setting = whole.resolved.proxy_env.get(STATE_PLACE)
    try:
        url = urlsplit(setting.value if setting else "")
        host = url.hostname
        port = url.port or _STATE_PORT
    except ValueError:
        return None

    # A password with "@" and "/" would otherwise move the end of the host, and the policy would
    # open the way to another one.
    database = url.path.removeprefix("/") or "0"
    is_database = whole_number(database) is not None
    is_server_url = url.scheme in _SERVERS and is_database and not url.query
    if not is_server_url or not host or host == "localhost":
        return None

    address = parse_ip(host)
    if address is not None and address.is_loopback:
        return None
    return StateServer(host, port)


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
        at = setting.key if setting is not None else whole.pod.name.span
        what = "shares no" if setting is not None else "sets no"
        message = (
            f"the pod {what} state by {STATE_PLACE}: each proxy of a fleet would have one of "
            "its own"
        )
        yield codes.UNSHARED_STATE.at(at, message)

    message = (
        f"the autoscaler reads {_METRIC} from custom.metrics.k8s.io: install an adapter, and "
        "let Prometheus in"
    )
    help_text = "docs/deployment.md shows both"
    yield codes.MADE_BY_HAND.at(whole.pod.name.span, message, help_text=help_text)


def gateway_objects(
    whole: Deployment, container: Object, volumes: Sequence[Data]
) -> Iterator[Object]:
    """Yield the fleet's objects.

    ``container`` and ``volumes`` are the parts of a proxy that a sidecar has, too.
    """
    pod = whole.pod_name
    name = object_name(pod, PROXY)

    state = whole.resolved.proxy_env.get(STATE_PLACE)
    url = state.value.encode() if state else b""
    yield secret(object_name(pod, what="state"), pod, {"url": url})

    # The proxy serves metrics beyond loopback only with a token, so one is made if none is set.
    if _METRICS_TOKEN not in whole.resolved.proxy_env:
        token = derive_key(whole.master, b"metrics-token", 24).hex().encode()
        yield secret(object_name(pod, what="metrics"), pod, {"token": token})

    yield claim(object_name(pod, what="history"), pod, "ReadWriteMany", "10Gi")
    yield _service(whole)
    yield _deployment(whole, container, volumes)

    # A node is drained one proxy at a time. One that is not ready serves nobody, and may go at any
    # time: it would otherwise block the drain.
    budget: Data = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": labels(pod, PROXY)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    yield kubernetes_object("policy/v1", "PodDisruptionBudget", name, pod, spec=budget)

    scale = _scale(name, _workers(whole))
    yield kubernetes_object("autoscaling/v2", "HorizontalPodAutoscaler", name, pod, spec=scale)


def _service(whole: Deployment) -> Object:
    """Return the Service, by the name that every agent has.

    The broker's sessions are in one proxy's memory, so the requests of one client stay there.
    """
    result = service(PROXY, whole.pod_name, [(port, "TCP") for port in ENTRANCES])

    if any(agent.delivery == "native" for agent in whole.agents):
        affinity: Object = {"clientIP": {"timeoutSeconds": _SESSION_SECONDS}}
        spec = result["spec"]
        assert isinstance(spec, dict)
        spec |= {"sessionAffinity": "ClientIP", "sessionAffinityConfig": affinity}
    return result


def _deployment(whole: Deployment, container: Object, volumes: Sequence[Data]) -> Object:
    """Return the Deployment without ``replicas``.

    The autoscaler sets them, and a new apply must not set them back.
    """
    selector: Data = {"matchLabels": labels(whole.pod_name, PROXY)}
    mounted_files = {
        str(path): data
        for path, data in whole.tree.items()
        if path.parts[0] in {"context", "auth", "secrets"}
    }
    about: Data = {
        "labels": labels(whole.pod_name, PROXY),
        "annotations": {"claw.digest": whole.digest(mounted_files)},
    }

    # Proxies are spread where that is possible; on a cluster of one node all of them still start.
    spread: list[Data] = [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector,
        }
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ]
    template: Data = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The kubelet counts the wait of ``preStop``, too.
        "terminationGracePeriodSeconds": _LEAVE_SECONDS + grace_seconds(whole),
        # OnRootMismatch: otherwise the kubelet would walk through the history of all proxies
        # whenever one starts.
        "securityContext": {"fsGroup": PROXY_UID, "fsGroupChangePolicy": "OnRootMismatch"},
        "topologySpreadConstraints": spread,
        "containers": [_container(whole, container)],
        "volumes": [*_volumes(whole), *volumes],
    }

    # A new proxy is ready before an old one goes: the fleet never serves with fewer.
    strategy: Data = {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
    }
    spec: Data = {
        "strategy": strategy,
        "selector": selector,
        "template": {"metadata": about, "spec": template},
    }
    name = object_name(whole.pod_name, PROXY)
    return kubernetes_object("apps/v1", "Deployment", name, whole.pod_name, spec=spec)


def _container(whole: Deployment, container: Object) -> Object:
    """Return the proxy's container with what only a proxy of a fleet has."""
    env = container["env"]
    shared_mounts = container["volumeMounts"]
    assert isinstance(env, list)
    assert isinstance(shared_mounts, list)

    mounts: list[Data] = [
        {"name": "context", "mountPath": f"{RUNTIME_MOUNT}/context", "readOnly": True},
        # Two proxies must not write one history: each has the directory of its pod's name.
        {"name": "history", "mountPath": HISTORY, "subPathExpr": f"$({_REPLICA})"},
        {"name": "state", "mountPath": STATE},
        *shared_mounts,
    ]
    workers = _workers(whole)
    requests: Data = {
        "cpu": f"{_WORKER_MILLICPU * workers}m",
        "memory": f"{_WORKER_MIB * workers}Mi",
    }
    return container | {
        "env": [*env, *_variables(whole)],
        "volumeMounts": mounts,
        "ports": [{"containerPort": port} for port in (*ENTRANCES, _METRICS_PORT)],
        # Kubernetes stops a proxy and takes it out of the Service at the same time.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_LEAVE_SECONDS)]}}},
        "resources": {"requests": requests},
    }


def _variables(whole: Deployment) -> Iterator[Data]:
    """Yield the variables of a proxy of a fleet; those that the operator sets are left to them."""
    pod = whole.pod_name
    set_by_operator = whole.resolved.proxy_env

    yield {"name": _REPLICA, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    url: Data = {"name": object_name(pod, what="state"), "key": "url"}
    yield {"name": STATE_PLACE, "valueFrom": {"secretKeyRef": url}}

    if _METRICS not in set_by_operator:
        yield {"name": _METRICS, "value": f":{_METRICS_PORT}"}
    if _METRICS_TOKEN not in set_by_operator:
        token: Data = {"name": object_name(pod, what="metrics"), "key": "token"}
        yield {"name": _METRICS_TOKEN, "valueFrom": {"secretKeyRef": token}}


def _volumes(whole: Deployment) -> Iterator[Data]:
    """Yield three volumes: the files of all agents as one directory, the history, and the state."""
    sources: list[Data] = []
    for agent in whole.agents:
        if not agent.has_proxy:
            continue

        keys = secret_keys([*context_files(whole, agent.id)])
        items: list[Data] = [
            {"key": key, "path": f"{agent.id}/{path}"} for path, key in keys.items()
        ]
        name = f"{object_name(whole.pod_name, agent.id)}.context"
        sources.append({"secret": {"name": name, "items": items}})
    yield {"name": "context", "projected": {"defaultMode": 0o440, "sources": sources}}

    history = object_name(whole.pod_name, what="history")
    yield {"name": "history", "persistentVolumeClaim": {"claimName": history}}
    yield {"name": "state", "emptyDir": {"sizeLimit": "64Mi"}}


def context_files(whole: Deployment, agent_id: str) -> Mapping[str, bytes]:
    """Return the files of an agent's context directory, by their path in it."""
    return {
        "/".join(path.parts[2:]): data
        for path, data in whole.tree.items()
        if path.parts[:2] == ("context", agent_id)
    }


def _workers(whole: Deployment) -> int:
    """Return the workers of each proxy.

    For ``auto`` that is 1: how many a node has room for is known only there.
    """
    workers = asked_workers(whole)
    return int(workers) if workers.isdecimal() else 1


def _scale(name: str, workers: int) -> Data:
    """Return the autoscaler's rule: grow at once, and shrink by one proxy a minute.

    Each proxy that leaves has to end its turns first.
    """
    target: Data = {"type": "AverageValue", "averageValue": str(TURNS * workers)}
    turns: Data = {"type": "Pods", "pods": {"metric": {"name": _METRIC}, "target": target}}
    one_a_minute: Data = {"type": "Pods", "value": 1, "periodSeconds": 60}
    return {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": MIN_REPLICAS,
        "maxReplicas": MAX_REPLICAS,
        "metrics": [turns],
        "behavior": {"scaleDown": {"policies": [one_a_minute]}},
    }
