"""The proxy's environment: the paths of its files, and what the operator sets with ``cllama-env``.

Specification: docs/spec/contract.md.

Rules. Values of ``cllama-env`` may be credentials, so all of them are in files that only their
owner reads: keys of model providers in providers.json, the others in ``auth/env``. None is in
compose.generated.yml. A variable that the operator sets is left out of ours: ``environment`` would
win over the file.
"""

import math
from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import SplitResult, urlsplit

from claw_compile.output.deployment import Deployment
from claw_compile.policy.agent import ResolvedPod
from claw_compile.policy.connect import without_provider_keys
from claw_compile.policy.resolve import DRAIN, EGRESS, MAX_DRAIN_MS
from claw_contract.known_providers import KNOWN_PROVIDERS
from claw_contract.opened_paths import write_opened_paths
from claw_contract.whole_numbers import whole_number

ENV_FILE = PurePosixPath("auth", "env")
RUNTIME_MOUNT = "/claw/runtime"
HISTORY = "/claw/history"
STATE = "/claw/state"
CA_MOUNT = "/claw/ca"
HOSTS = "CLLAMA_HOSTS"
PATHS = "CLLAMA_PATHS"
STATE_PLACE = "CLAW_STATE"
# A proxy that is stopped ends the requests under way, then its own last steps (decision 0029)
_DRAIN_MS = 25_000
_LAST_SECONDS = 5


def proxy_env_file(resolved: ResolvedPod) -> Mapping[PurePosixPath, bytes]:
    """Return ``auth/env`` of the compiled tree; nothing if the pod sets nothing."""
    lines = [
        f"{name}={setting.value}\n"
        for name, setting in without_provider_keys(resolved.proxy_env).items()
    ]
    return {ENV_FILE: "".join(lines).encode()} if lines else {}


def proxy_environment(deployment: Deployment) -> tuple[dict[str, str], PurePosixPath | None]:
    """Return the environment in the Compose file, and the path of the env file beside it."""
    ours = {
        "CLAW_POD": deployment.pod_name,
        "CLAW_CONTEXT_ROOT": f"{RUNTIME_MOUNT}/context",
        "CLAW_AUTH_DIR": f"{RUNTIME_MOUNT}/auth",
        "CLAW_SESSION_HISTORY_DIR": HISTORY,
        STATE_PLACE: f"{STATE}/state.db",
        # By default they are in the auth directory, but the compiled tree is mounted read-only,
        # and each compile replaces it.
        "CLAW_KEY_STATES_DIR": f"{STATE}/key-states",
        # Agents reach the proxy over the pod's networks; its own default is loopback.
        "LISTEN_ADDR": ":8080",
        "CLAW_PROXY_ADDR": ":8082",
        # The forward proxy would be a way out for agents that have no egress.
        EGRESS: "deny",
        DRAIN: str(_drain_ms(deployment)),
        "HOME": "/tmp",  # noqa: S108 - a tmpfs of the container's own
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if deployment.uses_ca:
        ours["CLLAMA_CA"] = CA_MOUNT
    paths = opened_paths(deployment)
    if paths:
        ours[PATHS] = paths

    set_by_operator = deployment.resolved.proxy_env
    environment = {name: value for name, value in ours.items() if name not in set_by_operator}
    env_file = ENV_FILE if ENV_FILE in deployment.tree else None
    return environment, env_file


def opened_paths(deployment: Deployment) -> str:
    """Return the setting of the paths that any agent's ``cllama`` opens, "" for none.

    Agents share the proxy, so what one opens is open to all of them.
    """
    entries: list[str] = []
    for agent in deployment.agents:
        if agent.cllama is not None:
            entries.extend(agent.cllama.paths)
    return write_opened_paths(entries)


def grace_seconds(deployment: Deployment) -> int:
    """Return the seconds that the proxy has to stop before it is killed.

    The drain that the operator sets must fit into it.
    """
    setting = deployment.resolved.proxy_env.get(DRAIN)
    text = setting.value if setting else ""
    drain_ms = whole_number(text, MAX_DRAIN_MS) or _drain_ms(deployment)
    return math.ceil(drain_ms / 1000) + _LAST_SECONDS


def _drain_ms(deployment: Deployment) -> int:
    """Return the milliseconds for requests under way.

    A fleet is restarted while it serves, so there it is as long as a turn may take.
    """
    if not deployment.is_gateway:
        return _DRAIN_MS

    turns = [agent.policy.total_timeout_ms for agent in deployment.agents if agent.has_proxy]
    return min(max(turns, default=_DRAIN_MS), MAX_DRAIN_MS)


def opened_hosts(resolved: ResolvedPod) -> list[str]:
    """Return the hosts that the proxy opens TLS of, with a certificate of the pod's CA.

    Hosts of the pod's own base URLs are among them.
    """
    hosts = governed_hosts(resolved)
    for provider in KNOWN_PROVIDERS.values():
        setting = resolved.proxy_env.get(f"{provider.env}_BASE_URL")
        url = _split(setting.value) if setting is not None else None
        if url is not None and url.scheme == "https" and url.hostname:
            hosts.add(url.hostname)
    return sorted(hosts)


def governed_hosts(resolved: ResolvedPod) -> set[str]:
    """Return the hosts of model providers that lead an unaware agent to its proxy.

    They are those of the known providers, and those of the operator's ``CLLAMA_HOSTS``,
    ``HOST=PROVIDER`` separated by commas.
    """
    hosts: set[str] = set()
    for each in KNOWN_PROVIDERS.values():
        if each.base_url is not None:
            hosts.add(urlsplit(each.base_url).hostname or "")

    setting = resolved.proxy_env.get(HOSTS)
    for part in (setting.value if setting else "").split(","):
        hosts.add(part.partition("=")[0].strip())
    return hosts - {""}


def _split(url: str) -> SplitResult | None:
    """Split a URL; return None for text that is none, which was reported where the pod was read."""
    try:
        return urlsplit(url)
    except ValueError:
        return None
