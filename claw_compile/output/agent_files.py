"""CLAWDAPUS.md, the page that tells an agent about its pod, and its runner's environment.

Specification: docs/spec/compile.md "Output".

Rules. The page holds no credential. Of a service that declares tools it says only the name and what
it is for: no endpoint and no address, whether the agent has a grant or not. In
``agents/<agent-id>/env`` the token is the runner's only credential:

    base-url      the base URL for each SDK's way of saying it, and the token as the API key
    proxy         HTTPS_PROXY, the pod's CA, and the token as the API key
    transparent   the pod's CA, and the token as the API key: the names of the providers
                  lead to the proxy

With ``delivery: native`` the client's configuration is beside the page (``mcp_client``), and the
broker is at the base URL.

A variable that *replaces* a store of certificates names the bundle of the public CAs with the
pod's, one that *adds* to it names the pod's alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from claw_compile.output.mcp_client import client_environment, client_files, server_name
from claw_compile.policy.agent import Agent
from claw_compile.policy.project import ProjectedAgent
from claw_compile.policy.topology import PROXY
from claw_contract.names import assign_aliases
from claw_contract.secret import Secret

BASE_URL = f"http://{PROXY}:8080"
PROXY_URL = f"http://{PROXY}:8082"
CA_BUNDLE = "/etc/ssl/claw/ca-bundle.pem"
CA_CERTIFICATE = "/etc/ssl/claw/ca-cert.pem"
_REPLACES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
)
_ADDS = ("NODE_EXTRA_CA_CERTS", "CODEX_CA_CERTIFICATE")
SKILLS = "skills"  # The directory of an agent's skills, beside this page
_SURFACES = {
    "volume": "a volume",
    "host": "a directory of the host",
    "channel": "a channel",
    "egress": "the internet",
}


def page(agent: ProjectedAgent) -> str:
    """Return the whole page; a section with nothing to say is left out."""
    feeds = [
        f"- `{feed.name}` (from {feed.service}){_about(feed.description)}"
        for feed in agent.agent.feeds
    ]
    skills = [
        f"- `{SKILLS}/{skill.name}`{_about(skill.description)}" for skill in agent.agent.skills
    ]
    # An agent may name one surface twice.
    surfaces = dict.fromkeys(_surfaces(agent))

    sections = (
        "# CLAWDAPUS.md\n\nWhat this pod gives you. The compiler writes this page.",
        _section("Identity", "", _identity(agent)),
        _section("Surfaces", "What you reach yourself.", surfaces),
        _section("Feeds", "They are put before you with every request; you fetch nothing.", feeds),
        _section("Skills", "Read one before you do what it is about.", skills),
        _section("Memory", "", _memory(agent)),
        _section("Tools", _calls(agent), _tools(agent)),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _section(title: str, intro: str, lines: Iterable[str]) -> str:
    """Return a section; "" without lines."""
    text = "\n".join(lines)
    if not text:
        return ""

    parts = (f"## {title}", intro, text)
    return "\n\n".join(part for part in parts if part)


def _identity(agent: ProjectedAgent) -> Iterator[str]:
    yield f"- agent: {agent.agent.id}"
    if agent.agent.ordinal is not None:
        yield f"- one of: {agent.agent.spec.name.text} (number {agent.agent.ordinal})"
    yield f"- pod: {agent.pod}"
    yield f"- runner: {agent.agent.spec.runner}"


def _surfaces(agent: ProjectedAgent) -> Iterator[str]:
    for service in agent.reached:
        address = f" at {service.address}" if service.address else ""
        line = f"- the service `{service.service}`{address}{_about(service.description)}"
        endpoints = [
            f"  - {each.method.upper()} {each.path}{_about(each.description)}"
            for each in service.endpoints
        ]
        yield "\n".join([line, *endpoints])

    for surface in agent.agent.surfaces:
        if surface.scheme == "service":
            continue

        target = f" `{surface.target}`" if surface.target else ""
        mode = f", {surface.mode}" if surface.mode else ""
        yield f"- {_SURFACES[surface.scheme]}{target}{mode}"


def _memory(agent: ProjectedAgent) -> Iterator[str]:
    if agent.memory is None:
        return

    verbs: list[str] = []
    if agent.memory.recall:
        verbs.append("recalls")
    if agent.memory.retain:
        verbs.append("retains")
    yield (
        f"- `{agent.memory.service}` {' and '.join(verbs)} for you, with every request; "
        "you call nothing."
    )


def _calls(agent: ProjectedAgent) -> str:
    """Return how the tools are called: by the runner's MCP client, or in the model's answer."""
    if agent.agent.delivery == "native" and agent.manifest is not None:
        server = server_name(agent.manifest)
        return (
            f"They are the tools of your MCP server `{server}`; you may see them as "
            f"`mcp__{server}__…`."
        )
    return "Call them by these names. They are run for you; you need no address and no key."


def _tools(agent: ProjectedAgent) -> Iterator[str]:
    if agent.manifest is None:
        return

    aliases = assign_aliases(tool.name for tool in agent.manifest.tools)
    for tool in agent.manifest.tools:
        yield f"- `{aliases[tool.name]}`{_about(tool.description)}"


def _about(description: str) -> str:
    """Return a description on one line: a line of its own could pass for one of this page's."""
    text = " ".join(description.split())
    return f": {text}" if text else ""


def mcp_files(agent: ProjectedAgent) -> Mapping[str, bytes]:
    """Return path → content of the configuration of the agent's MCP client.

    It is empty for mediated tools.
    """
    if agent.manifest is None:
        return {}
    return client_files(agent.agent.spec.runner, agent.manifest, f"{BASE_URL}/mcp/{agent.agent.id}")


def runner_env(agent: Agent, token: Secret) -> bytes:
    """Return the env file, one ``NAME=value`` a line, to be taken as it is."""
    variables = _variables(agent, token.reveal())
    if agent.delivery == "native" and agent.tools:
        variables |= client_environment(agent.spec.runner)
    return "".join(f"{name}={value}\n" for name, value in variables.items()).encode()


def _variables(agent: Agent, token: str) -> dict[str, str]:
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
            return _keys(token) | _proxy_variables(agent) | _trust()
        case "transparent":
            return _keys(token) | _trust()
    assert_never(agent.mode)


def _keys(token: str) -> dict[str, str]:
    # Codex takes OPENAI_API_KEY by a login only; without a base URL it would send none.
    names = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CODEX_API_KEY", "CLLAMA_TOKEN")
    return dict.fromkeys(names, token)


def _proxy_variables(agent: Agent) -> dict[str, str]:
    """Return the variables of a forward proxy, in upper and in lower case.

    curl reads ``http_proxy`` only in lower case, other programs read only the upper one.
    """
    # Services that it has a surface on are not asked through the proxy.
    services = sorted({each.target for each in agent.surfaces if each.scheme == "service"})
    direct = ",".join(("localhost", "127.0.0.1", "::1", PROXY, *services))

    addresses = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), PROXY_URL)
    # Without the last one Node's fetch goes past the proxy.
    return addresses | {"NO_PROXY": direct, "no_proxy": direct, "NODE_USE_ENV_PROXY": "1"}


def _trust() -> dict[str, str]:
    return dict.fromkeys(_REPLACES, CA_BUNDLE) | dict.fromkeys(_ADDS, CA_CERTIFICATE)
