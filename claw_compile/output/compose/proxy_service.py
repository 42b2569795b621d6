"""The proxy's Compose service (docs/spec/compile.md "Output"; decisions 0018, 0019).

Rules. Nothing of it is privileged: no root, no capability, a file system that it can't write to.
The compiled tree is replaced by a rename *in* the directory that is mounted, so that the proxy sees
the new one. No value of a secret is in this file. Where an agent does not know of its proxy, a
holder keeps the network namespace, a step with NET_ADMIN sets the redirect and ends, and only then
the proxy starts: it never has the capability. A secret from the environment is a file below the
compiled tree, 0600, byte for byte; one from a file stays where it is.
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from claw_compile.grammar.cllama import AUTO
from claw_compile.grammar.pod import PodSecret, PodSpec
from claw_compile.output.compose.agent_service import bind
from claw_compile.output.compose.edits import escape_dollars
from claw_compile.output.deployment import CA_PRIVATE, HOLDER, RUNTIME, Deployment
from claw_compile.output.proxy_env import CA_MOUNT, HISTORY, STATE, grace_seconds, proxy_environment
from claw_compile.output.yaml_text import Data, mapping
from claw_compile.parsing.environment import Lookup
from claw_compile.parsing.node import Entry
from claw_compile.policy.topology import PROXY

REDIRECT = f"{PROXY}-redirect"
IMAGE_VARIABLE, DEFAULT_IMAGE = "CLLAMA_IMAGE", "clawdapus/cllama:0.1.0"
# Compose interpolates it: who builds the image elsewhere sets one variable
IMAGE = f"${{{IMAGE_VARIABLE}:-{DEFAULT_IMAGE}}}"
# The owner of the compiled tree, which others can't read; ``claw up`` sets both
USER = "${CLAW_UID:-1000}:${CLAW_GID:-1000}"
HISTORY_VOLUME, STATE_VOLUME = "claw-history", "claw-state"
COMMAND = ("mitmdump", "-s", "addons/cllama.py", "--set", "confdir=/tmp/mitmproxy")
"""mitmproxy's own files are in its tmpfs; a pod's CA is named by CLLAMA_CA."""
_WORKERS_COMMAND = ("claw", "proxy", "--workers")
MODES = ("reverse:http://pod.invalid@8080", "regular@8082", "transparent@8083")
REJECTED = (
    "add rule inet claw {0} meta l4proto tcp reject with tcp reset; add rule inet claw {0} reject"
)
"""The end of a chain.

It rejects and does not only drop, so that QUIC falls back and everything else gives up at once.
"""
REDIRECTION = (
    "add table inet claw; flush table inet claw; "
    "add chain inet claw pre { type nat hook prerouting priority dstnat; }; "
    "add rule inet claw pre tcp dport { 80, 443 } redirect to :8083; "
    "add chain inet claw forward { type filter hook forward priority filter; policy drop; }; "
    f"{REJECTED.format('forward')}"
)
"""The proxy's container may have ``ip_forward``, as those of Docker do: of what is not redirected
it forwards nothing, whatever route an agent takes.
"""
HEALTH = "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health', timeout=4).close()"
SECRETS = "secrets"
_PREFIX = "claw-"  # The prefix of our names in Compose's ``secrets``, where the user's own are too


def proxy_services(deployment: Deployment) -> Iterator[Entry]:
    """Return ``cllama``, and the services before it where an agent is intercepted."""
    networks = _networks(deployment)
    if not deployment.intercepts:
        yield from mapping({PROXY: _proxy(deployment) | {"networks": networks}}).entries
        return
    shared = f"service:{HOLDER}"
    holder: Data = _unprivileged(deployment) | {
        "command": ["sleep", "infinity"],
        "networks": networks,
    }
    redirect: Data = _unprivileged(deployment) | {
        "user": "0:0",
        "cap_add": ["NET_ADMIN"],
        "restart": "no",
        "command": ["nft", REDIRECTION],
        "network_mode": shared,
        "depends_on": {HOLDER: {"condition": "service_started"}},
    }
    waits: Data = {REDIRECT: {"condition": "service_completed_successfully"}}
    proxy: Data = _proxy(deployment) | {"network_mode": shared, "depends_on": waits}
    yield from mapping({PROXY: proxy, HOLDER: holder, REDIRECT: redirect}).entries


def asked_workers(deployment: Deployment) -> str:
    """Return the workers of the pod's proxy: as many as any of its agents asks for;
    ``auto`` is the most.
    """
    asked = {
        agent.cllama.workers
        for agent in deployment.agents
        if agent.cllama is not None and agent.cllama.workers
    }
    return AUTO if AUTO in asked else str(max(map(int, asked), default=1))


def proxy_command(deployment: Deployment) -> list[str]:
    """Return the command of the pod's proxy."""
    workers = asked_workers(deployment)
    return [*COMMAND] if workers == "1" else [*_WORKERS_COMMAND, workers, *COMMAND[3:]]


def _unprivileged(deployment: Deployment) -> dict[str, Data]:
    return {
        "image": IMAGE,
        "user": USER,
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "init": True,
        "restart": "unless-stopped",
        "labels": {"claw.pod": deployment.pod_name, "claw.role": "proxy"},
    }


def _proxy(deployment: Deployment) -> dict[str, Data]:
    secrets = secret_sources(deployment)
    kept = {
        str(path): content for path, content in deployment.tree.items() if path.parts[0] == SECRETS
    }
    environment, env_file = proxy_environment(deployment)
    body = _unprivileged(deployment)
    body["labels"] = {
        "claw.pod": deployment.pod_name,
        "claw.role": "proxy",
        "claw.digest": deployment.digest(kept),
    }
    body["command"] = [
        *proxy_command(deployment),
        *(word for mode in MODES if deployment.intercepts for word in ("--mode", mode)),
    ]
    body["stop_grace_period"] = f"{grace_seconds(deployment)}s"
    body["environment"] = {name: escape_dollars(value) for name, value in environment.items()}
    if env_file is not None:
        body["env_file"] = [{"path": f"./{RUNTIME}/{env_file}", "format": "raw"}]
    if secrets:
        body["secrets"] = [{"source": source, "target": name} for name, source in secrets.items()]
    test = ["CMD", "python", "-c", HEALTH]
    probe: Data = {
        "test": test,
        "interval": "10s",
        "timeout": "5s",
        "retries": 3,
        "start_period": "20s",
    }
    tmpfs = ["/tmp:mode=1777,size=64m"]  # noqa: S108
    return body | {"volumes": list(_volumes(deployment)), "tmpfs": tmpfs, "healthcheck": probe}


def _volumes(deployment: Deployment) -> Iterator[Data]:
    yield bind(f"./{RUNTIME}", "/claw/runtime")
    for source, target in ((HISTORY_VOLUME, HISTORY), (STATE_VOLUME, STATE)):
        yield {"type": "volume", "source": source, "target": target}
    if deployment.uses_ca:
        yield bind(f"./{CA_PRIVATE}", CA_MOUNT)


def _networks(deployment: Deployment) -> dict[str, Data]:
    """Return the proxy's networks.

    It has no provider's name there: it would find itself under it.
    """
    known: Data = {"aliases": [PROXY]} if deployment.intercepts else None
    return dict.fromkeys(deployment.topology.of(PROXY), known)


def secret_files(pod: PodSpec, lookup: Lookup) -> Mapping[PurePosixPath, bytes]:
    """Return ``secrets/<name>`` for each secret from a variable; one that is not
    set is reported elsewhere.
    """
    return {
        PurePosixPath(SECRETS, secret.name.text): value.encode()
        for secret in pod.secrets
        if secret.source == "env" and (value := lookup(secret.reference.text))
    }


def secret_sources(deployment: Deployment) -> dict[str, str]:
    """Return the name in ``/run/secrets`` → the name in Compose's ``secrets``."""
    return {
        name: _PREFIX + name
        for name in sorted(secret.name.text for secret in deployment.pod.secrets)
    }


def compose_secrets(deployment: Deployment) -> dict[str, Data]:
    return {
        _PREFIX + secret.name.text: {"file": _secret_path(secret)}
        for secret in deployment.pod.secrets
    }


def _secret_path(secret: PodSecret) -> str:
    path = secret.reference.text
    if secret.source != "file":
        return f"./{RUNTIME}/{SECRETS}/{secret.name.text}"
    return escape_dollars(path if path.startswith("/") else f"./{path}")
