"""A runner's environment: ``agents/<agent-id>/env`` (docs/spec/compile.md "Output").

    base-url      the base URL for each SDK's way of saying it, and the token as the API key
    proxy         HTTPS_PROXY, the pod's CA, and the token as the API key
    transparent   the pod's CA, and the token as the API key: the names of the providers lead to the proxy

Rules. The token is the runner's only credential. A variable that *replaces* a store of certificates names the bundle of
the public CAs with the pod's, one that *adds* to it names the pod's alone.
"""

from __future__ import annotations

from typing import assert_never

from claw_compile.policy.agent import Agent
from claw_compile.policy.topology import PROXY
from claw_contract.secret import Secret

BASE_URL = f"http://{PROXY}:8080"
PROXY_URL = f"http://{PROXY}:8082"
CA_BUNDLE = "/etc/ssl/claw/ca-bundle.pem"
CA_CERTIFICATE = "/etc/ssl/claw/ca-cert.pem"
_REPLACES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE")
_ADDS = ("NODE_EXTRA_CA_CERTS", "CODEX_CA_CERTIFICATE")


def runner_env(agent: Agent, token: Secret) -> bytes:
    """Return the env file, one ``NAME=value`` a line, to be taken as it is."""
    return "".join(f"{name}={value}\n" for name, value in _variables(agent, token.reveal()).items()).encode()


def _variables(agent: Agent, token: str) -> dict[str, str]:
    # Codex takes OPENAI_API_KEY by a login only; without a base URL it would send none.
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CODEX_API_KEY", "CLLAMA_TOKEN"), token)
    match agent.mode:
        case "base-url":
            return {
                "OPENAI_BASE_URL": f"{BASE_URL}/v1",
                "OPENAI_API_KEY": token,
                "ANTHROPIC_BASE_URL": BASE_URL,
                "ANTHROPIC_API_KEY": token,
                "CLLAMA_TOKEN": token,
            }
        case "proxy":
            # Services that it has a surface on are not asked through the proxy. Without the last, Node's fetch goes past it.
            beside = sorted({surface.target for surface in agent.surfaces if surface.scheme == "service"})
            direct = ",".join(("localhost", "127.0.0.1", "::1", PROXY, *beside))
            proxied = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), PROXY_URL)
            return keys | proxied | {"NO_PROXY": direct, "no_proxy": direct, "NODE_USE_ENV_PROXY": "1"} | _trust()
        case "transparent":
            return keys | _trust()
    assert_never(agent.mode)


def _trust() -> dict[str, str]:
    return dict.fromkeys(_REPLACES, CA_BUNDLE) | dict.fromkeys(_ADDS, CA_CERTIFICATE)
