"""The proxy's environment: the paths of its files, and what the operator sets with ``cllama-env``
(docs/spec/contract.md).

Rules. Values of ``cllama-env`` may be credentials, so all of them are in files that only their
owner reads, keys of model providers in providers.json and the others in ``auth/env``; none is in
compose.generated.yml. What the operator sets is not set by us: ``environment`` would win over the
file.
"""

import math
from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import SplitResult, urlsplit

from claw_compile.output.deployment import Deployment
from claw_compile.policy.agent import ResolvedPod
from claw_compile.policy.connect import without_provider_keys
from claw_compile.policy.resolve import EGRESS
from claw_contract.known_providers import KNOWN_PROVIDERS
from claw_contract.opened_paths import write_opened_paths

ENV_FILE = PurePosixPath("auth", "env")
RUNTIME_MOUNT, HISTORY, STATE, CA_MOUNT = (
    "/claw/runtime",
    "/claw/history",
    "/claw/state",
    "/claw/ca",
)
HOSTS, PATHS, DRAIN, STATE_PLACE = "CLLAMA_HOSTS", "CLLAMA_PATHS", "CLLAMA_DRAIN_MS", "CLAW_STATE"
_DRAIN_MS, _LAST_SECONDS = 25_000, 5
"""The time for requests under way when the proxy is stopped, and for its last steps
(decision 0029).
"""
_MAX_DRAIN_MS = 600_000  # The most that the proxy takes


def proxy_env_file(resolved: ResolvedPod) -> Mapping[PurePosixPath, bytes]:
    """Return ``auth/env`` of the compiled tree; nothing, where the pod sets nothing."""
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
        # The compiled tree is mounted read-only, and another one after each compile.
        "CLAW_KEY_STATES_DIR": f"{STATE}/key-states",
        # Agents reach the proxy over the pod's networks; its own default is loopback.
        "LISTEN_ADDR": ":8080",
        "CLAW_PROXY_ADDR": ":8082",
        # The forward proxy would be a way out for agents that have no egress.
        EGRESS: "deny",
        **({"CLLAMA_CA": CA_MOUNT} if deployment.uses_ca else {}),
        **({PATHS: paths} if (paths := opened_paths(deployment)) else {}),
        DRAIN: str(_drain_ms(deployment)),
        "HOME": "/tmp",  # noqa: S108 - a tmpfs of the container's own
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment = {
        name: value for name, value in ours.items() if name not in deployment.resolved.proxy_env
    }
    return environment, ENV_FILE if ENV_FILE in deployment.tree else None


def opened_paths(deployment: Deployment) -> str:
    """Return the setting of the paths that any agent's ``cllama`` opens, "" for none: agents share
    the proxy, and so these.
    """
    entries = [
        path
        for agent in deployment.agents
        if agent.cllama is not None
        for path in agent.cllama.paths
    ]
    return write_opened_paths(entries)


def grace_seconds(deployment: Deployment) -> int:
    """Return the seconds that the proxy has to stop; its own setting must fit into it."""
    setting = deployment.resolved.proxy_env.get(DRAIN)
    text = setting.value if setting else ""
    # The proxy itself refuses what is none.
    drain = int(text) if text.isdecimal() and text.isascii() else _drain_ms(deployment)
    return math.ceil(drain / 1000) + _LAST_SECONDS


def _drain_ms(deployment: Deployment) -> int:
    """Return the time for requests under way: in a fleet, which is restarted while
    it serves, as long as a turn may take.
    """
    turns = (agent.policy.total_timeout_ms for agent in deployment.agents if agent.has_proxy)
    return min(max(turns, default=_DRAIN_MS), _MAX_DRAIN_MS) if deployment.is_gateway else _DRAIN_MS


def opened_hosts(resolved: ResolvedPod) -> list[str]:
    """Return the hosts that the proxy opens TLS of, with a certificate of the pod's
    CA; base URLs of the pod's own count.
    """
    environment = resolved.proxy_env
    set_here = (environment.get(f"{known.env}_BASE_URL") for known in KNOWN_PROVIDERS.values())
    urls = [
        split
        for setting in set_here
        if setting is not None and (split := _split(setting.value)) is not None
    ]
    return sorted(
        governed_hosts(resolved)
        | {url.hostname for url in urls if url.scheme == "https" and url.hostname}
    )


def governed_hosts(resolved: ResolvedPod) -> set[str]:
    """Return the hosts of model providers that lead an unaware agent to its proxy."""
    known = {
        urlsplit(each.base_url).hostname
        for each in KNOWN_PROVIDERS.values()
        if each.base_url is not None
    }
    setting = resolved.proxy_env.get(HOSTS)
    stated = {
        part.partition("=")[0].strip() for part in (setting.value if setting else "").split(",")
    }
    return {host for host in known | stated if host}


def _split(url: str) -> SplitResult | None:
    """Split a URL; None for what is none, which was reported where the pod was read."""
    try:
        return urlsplit(url)
    except ValueError:
        return None
