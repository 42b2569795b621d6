"""The configuration of an agent's MCP client, for ``delivery: native``.

Specification: docs/spec/mcp.md "The broker".

Rules. The form is that of the agent's ``type``; any other type gets the ``mcpServers`` document
that most clients read. No form has a token: each names ``CLLAMA_TOKEN``, a variable of
``agents/<agent-id>/env``. The server's name is chosen so that ``mcp__<server>__<tool>`` stays below
64 characters: "claw", or "c" if the longest tool leaves no room for four letters.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from claw_contract.manifest import Manifest
from claw_contract.names import assign_aliases

MCP: Final = "mcp"  # The directory of the file, beside CLAWDAPUS.md
TOKEN_VARIABLE: Final = "CLLAMA_TOKEN"  # noqa: S105 - the name of a variable
CLAUDE_CODE: Final = "claude-code"
_SERVER_NAMES = ("claw", "c")
_NAME_LIMIT = 64  # Codex renames a tool with a longer name
_MARGIN_SECONDS = 5  # The client gives up later than the proxy, whose answer says why


@dataclass(frozen=True)
class Endpoint:
    """The broker of one agent, as its client sees it.

    ``seconds``: the time that a call, and its wait for others, may take.
    """

    name: str
    url: str
    seconds: int


def server_name(manifest: Manifest) -> str:
    """Return the name of the broker in the client's configuration.

    It is the first that fits the longest tool, or else the shortest.
    """
    longest = max(map(len, native_aliases(manifest)), default=0)
    for name in _SERVER_NAMES:
        if len(f"mcp__{name}__") + longest < _NAME_LIMIT:
            return name
    return _SERVER_NAMES[-1]


def native_aliases(manifest: Manifest) -> Collection[str]:
    """Return the names under which the broker serves the manifest's tools."""
    native = [tool.name for tool in manifest.tools if tool.delivery == "native"]
    return assign_aliases(native).values()


def client_files(runner: str, manifest: Manifest, url: str) -> Mapping[str, bytes]:
    """Return path → content of the client's configuration.

    It is empty for an agent without native tools.
    """
    if not native_aliases(manifest):
        return {}

    seconds = math.ceil(manifest.policy.total_timeout_ms / 1000) + _MARGIN_SECONDS
    endpoint = Endpoint(server_name(manifest), url, seconds)
    file, write = _FORMS.get(runner, _GENERIC)
    return {f"{MCP}/{file}": write(endpoint)}


def client_environment(runner: str) -> Mapping[str, str]:
    """Return the variables that the client needs in addition to the file."""
    if runner != CLAUDE_CODE:
        return {}
    # With tool search Claude Code shows the model a tool's schema only after the model has searched
    # for the tool.
    return {"ENABLE_TOOL_SEARCH": "false"}


def _headers(reference: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {reference}"}


def _mcp_servers(endpoint: Endpoint) -> bytes:
    server = {"type": "http", "url": endpoint.url, "headers": _headers(f"${{{TOKEN_VARIABLE}}}")}
    return _json({"mcpServers": {endpoint.name: server}})


def _codex(endpoint: Endpoint) -> bytes:
    lines = (
        f"[mcp_servers.{endpoint.name}]",
        f'url = "{endpoint.url}"',
        f'bearer_token_env_var = "{TOKEN_VARIABLE}"',
        f"tool_timeout_sec = {endpoint.seconds}",
    )
    return "".join(f"{line}\n" for line in lines).encode()


def _openclaw(endpoint: Endpoint) -> bytes:
    server = {
        "url": endpoint.url,
        "transport": "streamable-http",
        "headers": _headers(f"${{{TOKEN_VARIABLE}}}"),
        "timeout": endpoint.seconds,
    }
    return _json({"mcp": {"servers": {endpoint.name: server}}})


def _opencode(endpoint: Endpoint) -> bytes:
    server = {
        "type": "remote",
        "url": endpoint.url,
        "enabled": True,
        "oauth": False,
        "headers": _headers(f"{{env:{TOKEN_VARIABLE}}}"),
    }
    return _json({"$schema": "https://opencode.ai/config.json", "mcp": {endpoint.name: server}})


def _nanobot(endpoint: Endpoint) -> bytes:
    server = {
        "type": "streamableHttp",
        "url": endpoint.url,
        "headers": _headers(f"${{{TOKEN_VARIABLE}}}"),
        "toolTimeout": endpoint.seconds,
    }
    return _json({"tools": {"mcpServers": {endpoint.name: server}}})


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


type _Form = tuple[str, Callable[[Endpoint], bytes]]  # The file's name, and its writer
_GENERIC: _Form = ("mcp.json", _mcp_servers)
_FORMS: Mapping[str, _Form] = {
    CLAUDE_CODE: (".mcp.json", _mcp_servers),
    "codex": ("config.toml", _codex),
    "openclaw": ("openclaw.json", _openclaw),
    "opencode": ("opencode.json", _opencode),
    "nanobot": ("config.json", _nanobot),
}
RUNNERS: Final = frozenset(_FORMS)
