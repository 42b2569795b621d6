"""The whole schema: Compose's own, with ``x-claw`` in it at the pod and at each service (decision 0022).

Rules. It says what the grammar says of one place, and no more: what relates places (a service that must exist, ``...`` twice)
is ``claw check``'s. Everything that the grammar takes, it takes. The same bytes each time.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from claw_compile.grammar.pod import DELIVERIES
from claw_compile.grammar.read_access import AUTH_TYPES
from claw_compile.grammar.read_count import MOST
from claw_compile.grammar.read_original import ORIGINAL_POD_KEYS, ORIGINAL_SERVICE_KEYS
from claw_compile.grammar.read_service import AGENT_KEYS
from claw_compile.schema.relations import (
    budget,
    cllama,
    context,
    env,
    feed,
    grant,
    memory,
    models,
    policy,
    spread,
    surface,
)
from claw_compile.schema.shapes import (
    Schema,
    choice,
    described,
    either,
    flag,
    limit,
    listed,
    mapping,
    named,
    nullable,
    text,
)

COMPOSE_SPEC = "compose-spec.json"
_SECRET = "[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"  # noqa: S105 - the form of a name
_VARIABLE = "[A-Za-z_][A-Za-z0-9_]*"
_CREDENTIAL: Schema = {
    "env": described("The variable that holds it, of the service that is called.", text()),
    "secret": described("One of the pod's secrets.", text(_SECRET)),
}
_ORIGINAL = "A key of the original system: carried into pod-manifest.json, and not acted on."


def editor_schema() -> Schema:
    """The schema of a pod file."""
    schema: Schema = json.loads(resources.files(__package__).joinpath(COMPOSE_SPEC).read_text(encoding="utf-8"))
    del schema["$id"]
    schema["title"] = "A pod: Compose, and what its agents may do"
    schema["description"] = "A Compose file with x-claw blocks, as claw compile takes it."
    schema["required"] = ["x-claw"]
    schema["properties"]["x-claw"] = {"$ref": "#/definitions/claw_pod"}
    schema["definitions"]["service"]["properties"]["x-claw"] = {"$ref": "#/definitions/claw_service"}
    schema["definitions"] |= {"claw_pod": pod(), "claw_service": service()}
    return schema


def as_text(schema: Schema) -> str:
    """As it is printed."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def pod() -> Schema:
    """``x-claw`` of the pod."""
    keys: dict[str, Schema] = {
        "pod": described("The pod's name; it names the Compose project.", text("[a-z0-9][a-z0-9_-]*")),
        "cllama-defaults": described("The proxy that stands before agents.", cllama(default=True)),
        "tools-defaults": described(
            "Grants for agents without 'tools', and where they write '...'.", spread(grant(), default=True)
        ),
        "tool-policy-defaults": described("Limits of a turn with tools.", policy()),
        "surfaces-defaults": described("What agents reach beside their tools.", spread(surface(), default=True)),
        "strict-surfaces": described("A grant without a surface is an error.", flag(), default=False),
        "feeds-defaults": described("Live data for agents' prompts.", spread(feed(), default=True)),
        "skills-defaults": described("Files that agents may read.", spread(text(), default=True)),
        "models-defaults": described("Which models agents may use, by slot.", models()),
        "budget-defaults": described("What an agent may spend.", budget()),
        "memory-defaults": described("The service that remembers for agents.", memory()),
        "secrets": described("Credentials by name, from variables or files.", _secrets()),
        "context": described("What stands in every agent's prompts.", context()),
    }
    return described("What the agents of this pod have in common.", mapping(keys | _original(ORIGINAL_POD_KEYS), "pod"))


def service() -> Schema:
    """``x-claw`` of a service: an agent, or one that agents use."""
    keys: dict[str, Schema] = {
        "agent": described("The agent's contract, beside the pod file; makes the service an agent.", text()),
        "type": described("The type of the runner.", text(), default="generic"),
        "cllama": described("The proxy before the agent; null for none.", cllama(default=False)),
        "cllama-env": described("More of the proxy's environment.", env()),
        "count": described("How many of this agent there are: name-0, name-1 ….", limit(MOST), default=1),
        "models": described("Which models it may use, by slot; over the pod's.", models()),
        "surfaces": described("What it reaches beside its tools.", spread(surface(), default=False)),
        "tools": described(
            "What it may call; deny by default. [] takes the pod's away.", spread(grant(), default=False)
        ),
        "tool-policy": described("Limits of a turn with tools; replaces the pod's.", policy()),
        "feeds": described("Live data for its prompts.", spread(feed(), default=False)),
        "skills": described("Files that it may read.", spread(text(), default=False)),
        "memory": described("The service that remembers for it; null for none.", memory()),
        "budget": described("What it may spend; null for no budget.", budget()),
        "context": described("What stands in its prompts.", context()),
        "delivery": described("How its tools come to it.", choice(DELIVERIES), default="mediated"),
        "service-auth": described("Its own credentials at services.", listed(_principal())),
        "describe-file": described("What the service says of itself: its descriptor.", text()),
        "mcp-stdio": described("The stdio server that this service wraps.", _stdio()),
        "mcp": described("The service speaks MCP over HTTP.", nullable(mapping({"path": _mcp_path()}))),
        "base-url": described("Where the proxy reaches the service; default: its first TCP port.", text()),
        "auth": described("The credential that the service wants; over its descriptor's.", _auth()),
    }
    needs: dict[str, Any] = {"dependencies": {key: ["agent"] for key in AGENT_KEYS}}
    needs["not"] = {"required": ["agent", "mcp-stdio"]}
    schema = mapping(keys | _original(ORIGINAL_SERVICE_KEYS), **needs)
    return described("What this service is to the pod: an agent, or one that agents use.", nullable(schema))


def _original(keys: tuple[str, ...]) -> dict[str, Schema]:
    return {key: described(_ORIGINAL, {}, deprecated=True) for key in keys}


def _secrets() -> Schema:
    keys = {
        "env": described("The variable that holds it.", text(_VARIABLE)),
        "file": described("The file that holds it, beside the pod file.", text()),
    }
    return named(mapping(keys, **either("env", "file")), _SECRET)


def _principal() -> Schema:
    keys = {
        "service": described("The service.", text()),
        **_CREDENTIAL,
        "principal": described("Who the agent is there.", text()),
    }
    return mapping(keys, "service", **either("env", "secret"))


def _stdio() -> Schema:
    keys = {
        "command": described("What is run; no shell reads it.", text()),
        "args": described("Its arguments.", listed(text())),
    }
    return mapping(keys, "command")


def _mcp_path() -> Schema:
    return described("Where it listens.", text(r"/(?!(?:[^\s]*/)?\.\.?(?:/|$))[^\s?#\\]*"), default="/mcp")


def _auth() -> Schema:
    keys = {
        "type": described("How it is sent.", choice(AUTH_TYPES)),
        **_CREDENTIAL,
        "header": described("The header that carries it.", text("[A-Za-z0-9-]{1,64}")),
        "username": described("Who it belongs to; it is the password.", text("[!-9;-~]{1,200}")),
    }
    rules = [
        _when(["bearer", "header", "basic"], either("env", "secret")),
        _when(["header"], {"required": ["header"]}),
        _when(["basic"], {"required": ["username"]}),
    ]
    return mapping(keys, "type", allOf=rules)


def _when(types: list[str], then: Schema) -> Schema:
    return {"if": {"properties": {"type": {"enum": types}}, "required": ["type"]}, "then": then}
