"""A service with ``mcp-stdio``: what its wrapper needs to know, as keys of its
Compose service (docs/spec/mcp.md).

Rules. What the user wrote wins, key by key; a service with an ``entrypoint`` or a ``command`` of
its own keeps it. ``${…}`` in the server's command and arguments stays for Compose, so that no value
of a variable is in the file. An argument with one is a variable of its own: within the JSON of the
others, a quotation mark of its value would end it.
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
from claw_compile.parsing.node import ListNode, MapNode, ScalarNode, child, entries_of, items_of
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
    """Return the pod with the services that wrap a stdio server told what they serve, and where."""
    services = tuple(
        replace(spec, body=_wrap(spec, spec.body, lookup))
        if spec.wraps_stdio and spec.body
        else spec
        for spec in pod.services
    )
    return replace(pod, services=services)


def _wrap(spec: ServiceSpec, body: MapNode, lookup: Lookup) -> MapNode:
    url = urlsplit(base_url(spec, lookup, []) or f"http://{spec.name.text}")
    port = url.port or _HTTP_PORT
    if is_absent(body.value("entrypoint")) and is_absent(body.value("command")):
        body = set_key(body, "entrypoint", ENTRYPOINT)
    names = {
        name: None
        for host in (spec.name.text, url.hostname or "")
        for name in (host, f"{host}:{port}")
    }
    server = child(body, "x-claw", "mcp-stdio")
    arguments = _texts(child(server, "args"))
    ours = {
        "CLAW_MCP_COMMAND": "".join(_texts(child(server, "command"))),
        "CLAW_MCP_ARGS": json.dumps(
            [None if "$" in text else text for text in arguments], ensure_ascii=False
        ),
        **{f"CLAW_MCP_ARG_{index}": text for index, text in enumerate(arguments) if "$" in text},
        "CLAW_MCP_ALLOWED_HOSTS": escape_dollars(",".join(names)),
        "LISTEN_ADDR": f":{port}",
    }
    body = add_environment(body, ours)
    if is_absent(body.value("healthcheck")):
        probe: dict[str, Data] = {
            "test": ["CMD", "python", "-c", HEALTH.format(port=port)],
            **_TIMES,
        }
        body = set_key(body, "healthcheck", probe)
    return body


def _texts(node: object) -> list[str]:
    """Return scalars as they are written, references to variables included."""
    scalars = node.items if isinstance(node, ListNode) else (node,)
    return [each.text for each in scalars if isinstance(each, ScalarNode)]


def add_environment(body: MapNode, ours: Mapping[str, str]) -> MapNode:
    """Return the service with more variables; its own win."""
    node = body.value("environment")
    own = {variable.name for variable in variables(node, lambda _name: None)}
    added = {name: value for name, value in ours.items() if name not in own}
    if isinstance(node, ListNode):
        items = (*items_of(node), *(tree(f"{name}={value}") for name, value in added.items()))
        return set_key(body, "environment", ListNode(items, node.span, node.tag))
    return set_key(
        body, "environment", MapNode((*entries_of(node), *mapping(added).entries), body.span)
    )
