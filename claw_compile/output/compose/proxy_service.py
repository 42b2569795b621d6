"""The proxy's Compose service (docs/spec/compile.md "Output"; decisions 0018, 0019).

Rules. Nothing of it is privileged: no root, no capability, a read-only root file system. The
compiled tree is replaced by a rename *in* the directory that is mounted, so that the proxy sees the
new one. No value of a secret is in this file. A secret from the environment is a file in the
compiled tree, 0600, byte for byte; one from a file stays where it is.

Where an agent does not know of its proxy, three services take turns: a holder keeps the network
namespace, a step with NET_ADMIN sets the redirect in it and ends, and only then the proxy starts,
in the same namespace. So the proxy never has the capability.
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
IMAGE_VARIABLE = "CLLAMA_IMAGE"
DEFAULT_IMAGE = "clawdapus/cllama:0.1.0"
# Compose interpolates it: who builds the image elsewhere sets one variable
IMAGE = f"${{{IMAGE_VARIABLE}:-{DEFAULT_IMAGE}}}"
# The owner of the compiled tree, which others can't read; ``claw up`` sets both
USER = "${CLAW_UID:-1000}:${CLAW_GID:-1000}"
HISTORY_VOLUME = "claw-history"
STATE_VOLUME = "claw-state"
COMMAND = ("mitmdump", "-s", "addons/cllama.py", "--set", "confdir=/tmp/mitmproxy")
"""mitmproxy's own files are in its tmpfs; a pod's CA is named by CLLAMA_CA."""
_WORKERS_COMMAND = ("claw", "proxy", "--workers")
MODES = ("reverse:http://pod.invalid@8080", "regular@8082", "transparent@8083")
REJECTED = (
    "add rule inet claw {0} meta l4proto tcp reject with tcp reset; add rule inet claw {0} reject"
)
"""The end of a chain, with the chain's name to be filled in.

It rejects packets instead of dropping them: QUIC then falls back to TCP, and everything else gives
up at once.
"""
REDIRECTION = (
    "add table inet claw; flush table inet claw; "
    "add chain inet claw pre { type nat hook prerouting priority dstnat; }; "
    "add rule inet claw pre tcp dport { 80, 443 } redirect to :8083; "
    "add chain inet claw forward { type filter hook forward priority filter; policy drop; }; "
    f"{REJECTED.format('forward')}"
)
"""The rules in the proxy's network namespace: ports 80 and 443 lead to its transparent listener.

What is not redirected must not be forwarded either, whatever route an agent takes: in a container
``ip_forward`` may be on, as Docker sets it.
"""
HEALTH = "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health', timeout=4).close()"
SECRETS = "secrets"
_PREFIX = "claw-"  # The prefix of our names in Compose's ``secrets``, where the user's own are too


def proxy_services(deployment: Deployment) -> Iterator[Entry]:
    """Return ``cllama``, and the services before it where an agent is intercepted."""
    networks = _networks(deployment)
    if not deployment.intercepts:
        proxy: Data = _proxy(deployment) | {"networks": networks}
        yield from mapping({PROXY: proxy}).entries
        return

    namespace = f"service:{HOLDER}"
    holder: Data = _unprivileged(deployment) | {
        "command": ["sleep", "infinity"],
        "networks": networks,
    }
    redirect: Data = _unprivileged(deployment) | {
        "user": "0:0",
        "cap_add": ["NET_ADMIN"],
        "restart": "no",
        "command": ["nft", REDIRECTION],
        "network_mode": namespace,
        "depends_on": {HOLDER: {"condition": "service_started"}},
    }
    proxy = _proxy(deployment) | {
        "network_mode": namespace,
        "depends_on": {REDIRECT: {"condition": "service_completed_successfully"}},
    }
    yield from mapping({PROXY: proxy, HOLDER: holder, REDIRECT: redirect}).entries


def asked_workers(deployment: Deployment) -> str:
    """Return the workers of the pod's proxy: as many as any of its agents asks for.

    ``auto`` is the most.
    """
    numbers: set[str] = set()
    for agent in deployment.agents:
        if agent.cllama is not None and agent.cllama.workers:
            numbers.add(agent.cllama.workers)

    if AUTO in numbers:
        return AUTO
    return str(max(map(int, numbers), default=1))


def proxy_command(deployment: Deployment) -> list[str]:
    """Return the command of the pod's proxy.

    One worker is mitmdump itself; several are supervised by ``claw proxy``, which adds the script.
    """
    workers = asked_workers(deployment)
    if workers == "1":
        return [*COMMAND]
    return [*_WORKERS_COMMAND, workers, *COMMAND[3:]]


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
    """Return the proxy's service without its networks: they depend on ``intercepts``."""
    body = _unprivileged(deployment)

    # A changed label makes Compose replace the container. That is needed for a changed secret only:
    # Docker mounts a secret as it is when the container starts. All other files of the tree are in
    # a mounted directory, where the proxy sees their changes.
    secret_contents = {
        str(path): content for path, content in deployment.tree.items() if path.parts[0] == SECRETS
    }
    body["labels"] = {
        "claw.pod": deployment.pod_name,
        "claw.role": "proxy",
        "claw.digest": deployment.digest(secret_contents),
    }

    modes = MODES if deployment.intercepts else ()
    mode_options = [word for mode in modes for word in ("--mode", mode)]
    body["command"] = [*proxy_command(deployment), *mode_options]
    body["stop_grace_period"] = f"{grace_seconds(deployment)}s"

    environment, env_file = proxy_environment(deployment)
    body["environment"] = {name: escape_dollars(value) for name, value in environment.items()}
    if env_file is not None:
        # Raw: otherwise Compose would interpolate what it reads.
        body["env_file"] = [{"path": f"./{RUNTIME}/{env_file}", "format": "raw"}]

    sources = secret_sources(deployment)
    if sources:
        body["secrets"] = [{"source": source, "target": name} for name, source in sources.items()]

    body["volumes"] = [*_volumes(deployment)]
    body["tmpfs"] = ["/tmp:mode=1777,size=64m"]  # noqa: S108
    body["healthcheck"] = {
        "test": ["CMD", "python", "-c", HEALTH],
        "interval": "10s",
        "timeout": "5s",
        "retries": 3,
        "start_period": "20s",
    }
    return body


def _volumes(deployment: Deployment) -> Iterator[Data]:
    yield bind(f"./{RUNTIME}", "/claw/runtime")
    for source, target in ((HISTORY_VOLUME, HISTORY), (STATE_VOLUME, STATE)):
        yield {"type": "volume", "source": source, "target": target}
    if deployment.uses_ca:
        yield bind(f"./{CA_PRIVATE}", CA_MOUNT)


def _networks(deployment: Deployment) -> dict[str, Data]:
    """Return the proxy's networks.

    A holder that has them in its place is given the proxy's name there.

    Agents reach it by the providers' names through links of their own. It must not have these names
    as aliases of a network, because it would then find itself in place of the provider.
    """
    settings: Data = {"aliases": [PROXY]} if deployment.intercepts else None
    return dict.fromkeys(deployment.topology.of(PROXY), settings)


def secret_files(pod: PodSpec, lookup: Lookup) -> Mapping[PurePosixPath, bytes]:
    """Return ``secrets/<name>`` → content for each secret from a variable.

    One that is not set is reported elsewhere.
    """
    files: dict[PurePosixPath, bytes] = {}
    for secret in pod.secrets:
        if secret.source != "env":
            continue

        value = lookup(secret.reference.text)
        if value:
            files[PurePosixPath(SECRETS, secret.name.text)] = value.encode()
    return files


def secret_sources(deployment: Deployment) -> dict[str, str]:
    """Return the name in ``/run/secrets`` → the name in Compose's ``secrets``."""
    names = sorted(secret.name.text for secret in deployment.pod.secrets)
    return {name: _PREFIX + name for name in names}


def compose_secrets(deployment: Deployment) -> dict[str, Data]:
    return {
        _PREFIX + secret.name.text: {"file": _secret_path(secret)}
        for secret in deployment.pod.secrets
    }


def _secret_path(secret: PodSecret) -> str:
    """Return the path of a secret's file as Compose reads it, relative to the generated file."""
    if secret.source != "file":
        return f"./{RUNTIME}/{SECRETS}/{secret.name.text}"

    path = secret.reference.text
    return escape_dollars(path if path.startswith("/") else f"./{path}")
