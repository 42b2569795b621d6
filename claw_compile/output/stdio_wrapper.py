"""The wrapper of a service with ``mcp-stdio``: its settings, as keys of the Compose service.

Specification: docs/spec/mcp.md.

Rules. What the user wrote wins, key by key; a service with an ``entrypoint`` or a ``command`` of
its own keeps it. ``${…}`` in the server's command and arguments stays for Compose to fill in, so
that the file holds no value of a variable. The arguments are a JSON list in one variable. An
argument with ``${…}`` is a variable of its own instead: a quotation mark in the value that Compose
fills in would end the JSON string.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from claw_compile.grammar.pod import PodSpec, ServiceSpec
from claw_compile.output.compose.edits import escape_dollars, is_absent, set_key
from claw_compile.output.yaml_text import Data, mapping, tree
from claw_compile.parsing.environment import Lookup, variables
from claw_compile.parsing.node import ListNode, MapNode, ScalarNode, child, entries_of
from claw_compile.policy.connect import base_url

ENTRYPOINT: Final = ("claw", "mcp-stdio")
HEALTH: Final = (
    "import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/health', timeout=4).close()"
)
_TIMES: Final[dict[str, Data]] = {
    "interval": "10s",
    "timeout": "5s",
    "retries": 3,
    "start_period": "120s",
}
"""The start has time for ``uvx`` and ``npx`` to download the server."""
_HTTP_PORT = 80


def wrap_servers(pod: PodSpec, lookup: Lookup) -> PodSpec:
    """Return the pod in which each service with ``mcp-stdio`` tells its wrapper what to serve."""
    services: list[ServiceSpec] = []
    for spec in pod.services:
        if spec.wraps_stdio and spec.body:
            services.append(replace(spec, body=_wrap(spec, spec.body, lookup)))
        else:
            services.append(spec)
    return replace(pod, services=tuple(services))


def _wrap(spec: ServiceSpec, body: MapNode, lookup: Lookup) -> MapNode:
    url = urlsplit(base_url(spec, lookup, []) or f"http://{spec.name.text}")
    port = url.port or _HTTP_PORT

    # An image whose own entry point starts the wrapper needs neither key.
    if is_absent(body.value("entrypoint")) and is_absent(body.value("command")):
        body = set_key(body, "entrypoint", ENTRYPOINT)

    body = add_environment(body, _wrapper_environment(spec, body, url.hostname or "", port))

    if is_absent(body.value("healthcheck")):
        probe: dict[str, Data] = {"test": ["CMD", "python", "-c", HEALTH.format(port=port)]}
        body = set_key(body, "healthcheck", probe | _TIMES)
    return body


def _wrapper_environment(
    spec: ServiceSpec, body: MapNode, hostname: str, port: int
) -> dict[str, str]:
    """Return the wrapper's variables: the command it starts, and where it serves it.

    The hosts allowed in a request's ``Host`` are the service's own names: the wrapper refuses
    others, so that no web page can reach it by a name of its own (DNS rebinding).
    """
    # A mapping keeps the order, and each name once.
    hosts: dict[str, None] = {}
    for host in (spec.name.text, hostname):
        hosts[host] = None
        hosts[f"{host}:{port}"] = None

    server = child(body, "x-claw", "mcp-stdio")
    arguments = _texts(child(server, "args"))
    constants = [None if "$" in text else text for text in arguments]
    with_variables = {
        f"CLAW_MCP_ARG_{index}": text for index, text in enumerate(arguments) if "$" in text
    }
    return {
        "CLAW_MCP_COMMAND": "".join(_texts(child(server, "command"))),
        "CLAW_MCP_ARGS": json.dumps(constants, ensure_ascii=False),
        **with_variables,
        "CLAW_MCP_ALLOWED_HOSTS": escape_dollars(",".join(hosts)),
        "LISTEN_ADDR": f":{port}",
    }


def _texts(node: object) -> list[str]:
    """Return scalars as they are written, references to variables included."""
    scalars = node.items if isinstance(node, ListNode) else (node,)
    return [each.text for each in scalars if isinstance(each, ScalarNode)]


def add_environment(body: MapNode, ours: Mapping[str, str]) -> MapNode:
    """Return the service with more variables; its own win."""
    node = body.value("environment")
    own = {variable.name for variable in variables(node, lambda _name: None)}
    new_variables = {name: value for name, value in ours.items() if name not in own}

    if isinstance(node, ListNode):
        items = [tree(f"{name}={value}") for name, value in new_variables.items()]
        longer_list = ListNode((*node.items, *items), node.span, node.tag)
        return set_key(body, "environment", longer_list)

    entries = (*entries_of(node), *mapping(new_variables).entries)
    return set_key(body, "environment", MapNode(entries, body.span))
