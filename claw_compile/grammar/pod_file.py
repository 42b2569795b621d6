"""The reader of a pod file: from its tree to a ``PodSpec``, the pod and each of its services.

The rules (docs/spec/compile.md, "Grammar"):

- Any Compose file is a pod file. What is outside of ``x-claw`` is Compose's to check.
- An unknown key under ``x-claw`` is an error: a misspelt limit must not go unnoticed.
- A key of the original system that nothing here acts on is carried into pod-manifest.json, with one
  warning.
"""

import re
from collections.abc import Mapping
from typing import Any

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Note, Result, quote
from claw_compile.grammar import shapes
from claw_compile.grammar.access import AUTH, MCP, SECRETS, SERVICE_AUTH, STDIO
from claw_compile.grammar.cllama import (
    BUDGET,
    CLLAMA,
    DEFAULT_CLLAMA,
    ENV,
    MODELS,
    read_default_env,
)
from claw_compile.grammar.pod import DELIVERIES, PodSpec, ServiceSpec
from claw_compile.grammar.prompt import (
    CONTEXT,
    DEFAULT_FEEDS,
    DEFAULT_SKILLS,
    FEEDS,
    MEMORY,
    SKILLS,
)
from claw_compile.grammar.reader import Reader, is_null
from claw_compile.grammar.tools import (
    DEFAULT_GRANTS,
    DEFAULT_SURFACES,
    GRANTS,
    SURFACES,
    TOOL_POLICY,
)
from claw_compile.grammar.tools_host import TOOLS_HOST
from claw_compile.parsing.environment import Lookup
from claw_compile.parsing.node import Entry, MapNode, Node, ScalarNode, entries_of
from claw_contract.manifest import Delivery
from claw_contract.names import is_agent_id

POD_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
MAX_COUNT = 1000
"""Each agent has a directory and a container of its own, so a larger number is a typing error."""

_ORIGINAL = "A key of the original system: carried into pod-manifest.json, and not acted on."


def _original_keys(*names: str) -> tuple[shapes.Key[Node], ...]:
    return tuple(shapes.Key(name, shapes.AnyValue(), _ORIGINAL, deprecated=True) for name in names)


_NAME = shapes.Key(
    "pod",
    shapes.Text(POD_NAME.pattern, "{shown} can't name a pod", codes.BAD_NAME),
    "The pod's name; it names the Compose project.",
    missing=shapes.MissingKey(
        message="the pod has no name: 'x-claw.pod'",
        help_text="a pod file begins with\n  x-claw:\n    pod: my-pod",
    ),
)
_POD_FIELDS: dict[str, shapes.Key[Any]] = {
    "name": _NAME,
    "cllama": shapes.Key("cllama-defaults", DEFAULT_CLLAMA, "The proxy of the agents."),
    "tools": shapes.Key(
        "tools-defaults",
        DEFAULT_GRANTS,
        "Grants for agents without 'tools', and where they write '...'.",
    ),
    "tool_policy": shapes.Key(
        "tool-policy-defaults",
        TOOL_POLICY,
        "Limits of a turn with tools, and how its answer streams.",
    ),
    "surfaces": shapes.Key(
        "surfaces-defaults",
        DEFAULT_SURFACES,
        "What agents reach directly, in addition to their tools.",
    ),
    "strict_surfaces": shapes.Key(
        "strict-surfaces", shapes.Flag(), "A grant without a surface is an error.", default=False
    ),
    "feeds": shapes.Key("feeds-defaults", DEFAULT_FEEDS, "Live data for agents' prompts."),
    "skills": shapes.Key("skills-defaults", DEFAULT_SKILLS, "Files that agents may read."),
    "models": shapes.Key("models-defaults", MODELS, "Which models agents may use, by slot."),
    "spending": shapes.Key("budget-defaults", BUDGET, "What an agent may spend."),
    "memory": shapes.Key("memory-defaults", MEMORY, "The service that remembers for agents."),
    "secrets": shapes.Key("secrets", SECRETS, "Credentials by name, from variables or files."),
    "context": shapes.Key("context", CONTEXT, "Texts in every agent's prompts."),
}
"""The fields of a ``PodSpec`` that are one key each."""
POD_KEYS = tuple(_POD_FIELDS.values())
ORIGINAL_POD_KEYS = _original_keys(
    *(
        "handles-defaults",
        "channel-memory",
        "principals",
        "master",
        "alert-webhooks",
        "alert-mentions",
    ),
    *("sequential-conformance", "claw-api"),
)
POD: shapes.Record[shapes.Members] = shapes.Record(
    (*POD_KEYS, *ORIGINAL_POD_KEYS), lambda members: members, "the pod's x-claw", required=(_NAME,)
)

_AGENT = shapes.Key(
    "agent",
    shapes.Text(),
    "The agent's contract, relative to the pod file; makes the service an agent.",
)
_TYPE = shapes.Key("type", shapes.Text(), "The type of the runner.", "generic")
_COUNT = shapes.Key(
    "count", shapes.Limit(MAX_COUNT), "How many of this agent there are: name-0, name-1 ….", 1
)
_DESCRIBE_FILE = shapes.Key(
    "describe-file",
    shapes.Text(),
    "The service's descriptor: the tools, feeds and memory that it provides.",
)
_MCP_STDIO = shapes.Key("mcp-stdio", STDIO, "The stdio server that this service wraps.")
_TOOLS_HOST = shapes.Key(
    "tools-host",
    TOOLS_HOST,
    "The service is a tools host: files, commands, memory and the web for agents.",
)
_AGENT_FIELDS: dict[str, shapes.Key[Any]] = {
    "cllama": shapes.Key("cllama", CLLAMA, "The agent's proxy; null for none."),
    "cllama_env": shapes.Key("cllama-env", ENV, "Additions to the proxy's environment."),
    "count": _COUNT,
    "models": shapes.Key(
        "models", MODELS, "Which models it may use, by slot; overrides the pod's."
    ),
    "surfaces": shapes.Key(
        "surfaces", SURFACES, "What it reaches directly, in addition to its tools."
    ),
    "tools": shapes.Key(
        "tools", GRANTS, "What it may call; nothing by default. [] removes the pod's."
    ),
    "tool_policy": shapes.Key(
        "tool-policy",
        TOOL_POLICY,
        "Limits of a turn with tools, and how its answer streams; replaces the pod's.",
    ),
    "feeds": shapes.Key("feeds", FEEDS, "Live data for its prompts."),
    "skills": shapes.Key("skills", SKILLS, "Files that it may read."),
    "memory": shapes.Key("memory", MEMORY, "The service that remembers for it; null for none."),
    "spending": shapes.Key("budget", BUDGET, "What it may spend; null for no budget."),
    "context": shapes.Key("context", CONTEXT, "Texts in its prompts."),
    "delivery": shapes.Key(
        "delivery",
        shapes.Choice[Delivery](DELIVERIES),
        (
            "How it gets its tools: the proxy offers them to the model, or the runner "
            "calls them over MCP."
        ),
        "mediated",
    ),
    "principals": shapes.Key("service-auth", SERVICE_AUTH, "Its own credentials at services."),
}
_PROVIDER_FIELDS: dict[str, shapes.Key[Any]] = {
    "describe_file": _DESCRIBE_FILE,
    "stdio": _MCP_STDIO,
    "tools_host": _TOOLS_HOST,
    "mcp_path": shapes.Key("mcp", MCP, "The service speaks MCP over HTTP."),
    "base_url": shapes.Key(
        "base-url",
        shapes.Text(),
        "Where the proxy reaches the service; default: its first TCP port.",
    ),
    "auth": shapes.Key(
        "auth", AUTH, "The credential that the service requires; overrides its descriptor's."
    ),
}
_DECIDED = (_MCP_STDIO, _PROVIDER_FIELDS["mcp_path"], _PROVIDER_FIELDS["auth"])
"""Keys that the compiler sets itself for a tools host."""
AGENT_KEYS, PROVIDER_KEYS = tuple(_AGENT_FIELDS.values()), tuple(_PROVIDER_FIELDS.values())
ORIGINAL_SERVICE_KEYS = _original_keys(
    "handles", "invoke", "persona", "include", "channel-memory", "claw-api", "hermes"
)
SERVICE: shapes.Record[shapes.Members] = shapes.Record(
    (_AGENT, _TYPE, *AGENT_KEYS, *PROVIDER_KEYS, *ORIGINAL_SERVICE_KEYS),
    lambda members: members,
    "a service's x-claw",
    is_nullable=True,
    rules={
        "dependencies": {key.name: [_AGENT.name] for key in AGENT_KEYS},
        "not": {
            "anyOf": [
                *({"required": [_AGENT.name, key.name]} for key in (_MCP_STDIO, _TOOLS_HOST)),
                *({"required": [_TOOLS_HOST.name, key.name]} for key in _DECIDED),
            ]
        },
    },
)


def read_pod(file: str, root: MapNode, lookup: Lookup) -> Result[PodSpec]:
    """Return everything that the file says. What can't be read is reported and left out."""
    reader = Reader(lookup)
    members = _read_members(reader, root)

    services = root.value("services")
    mapping = reader.mapping(services, "'services'") if services is not None else None
    service_specs = tuple(_read_service(reader, entry) for entry in entries_of(mapping))

    # ``env`` of the defaults stays when the rest of them can't be read.
    cllama = members.entries.get("cllama-defaults")
    cllama_env = read_default_env(reader, cllama.value) if cllama else {}

    pod = PodSpec(
        file,
        root,
        service_specs,
        cllama_env=cllama_env,
        carried=_read_original(members, ORIGINAL_POD_KEYS),
        **members.fields(_POD_FIELDS),
    )
    if not pod.agents:
        at = services.span if services is not None else root.span
        reader.report(codes.NO_AGENTS, at, "no service has 'x-claw.agent'")

    return Result(pod, (*reader.diagnostics, *reader.carry_warnings()))


def _read_members(reader: Reader, root: MapNode) -> shapes.Members:
    """Return the entries of the pod's ``x-claw``.

    Without an ``x-claw`` there are none, and the pod's missing name is reported.
    """
    claw = root.get("x-claw")
    if claw is None or is_null(claw.value):
        place = shapes.ValuePlace(POD.name, claw.key.span if claw else root.span)
        members = shapes.Members(reader, {}, root, place)
        members.require(_NAME)
        return members

    place = shapes.ValuePlace(POD.name, claw.key.span)
    pod_members = POD.read(reader, claw.value, place)
    return pod_members or shapes.Members(reader, {}, claw.value, place)


def _read_service(reader: Reader, entry: Entry) -> ServiceSpec:
    """Return everything that a service says; only its name if it can't be read."""
    name = entry.key
    body = reader.mapping(entry.value, "a service")
    if body is None:
        return ServiceSpec(name)

    place = shapes.ValuePlace(SERVICE.name, name.span)
    members: shapes.Members | None = None
    claw = body.value("x-claw")
    if claw is not None:
        members = SERVICE.read(reader, claw, place)
    if members is None:
        members = shapes.Members(reader, {}, body, place)

    _check_role(members, name)
    runner = members[_TYPE]
    count = members.entries.get(_COUNT.name)

    # ``_read_count`` reads ``count``. A second reading would report its mistakes again.
    fields = {**_AGENT_FIELDS, **_PROVIDER_FIELDS}
    del fields["count"]

    return ServiceSpec(
        name,
        members[_AGENT],
        runner.text if runner else _TYPE.default,
        count=_read_count(members, name, body) if _AGENT in members else 1,
        count_key=count.key.span if count else None,
        names_descriptor=_DESCRIBE_FILE in members,
        wraps_stdio=_MCP_STDIO in members,
        carried=_read_original(members, ORIGINAL_SERVICE_KEYS),
        body=body,
        environment=body.value("environment"),
        expose=body.value("expose"),
        ports=body.value("ports"),
        **members.fields(fields),
    )


def _check_role(members: shapes.Members, name: ScalarNode) -> None:
    """Report keys that contradict what the service is: an agent, or none."""
    report = members.reader.report
    entries = members.entries

    if _AGENT not in members:
        help_text = "an agent has a contract: 'agent: ./AGENTS.md'"
        for key in AGENT_KEYS:
            if key in members:
                message = f"{quote(key.name)} on {quote(name.text)}, which is no agent"
                at = entries[key.name].key.span
                report(codes.NOT_AN_AGENT, at, message, help_text=help_text)
        _check_tools_host(members, name)
        return

    if not is_agent_id(name.text):
        report(codes.BAD_AGENT_ID, name.span, f"{quote(name.text)} can't name an agent")

    help_text = "give the server a service of its own, and grant its tools to the agent"
    for key, what in ((_MCP_STDIO, "wraps a stdio server"), (_TOOLS_HOST, "is a tools host")):
        if key in members:
            message = f"{quote(name.text)} {what}, and so is no agent"
            at = entries[_AGENT.name].key.span
            report(codes.NOT_AN_AGENT, at, message, help_text=help_text)


def _check_tools_host(members: shapes.Members, name: ScalarNode) -> None:
    """Report keys that the compiler itself sets for a tools host.

    Of a service that is none, report ``type: tools-host``, which is written where ``tools-host:
    {}`` is meant.
    """
    report = members.reader.report
    entries = members.entries

    if _TOOLS_HOST in members:
        for key in _DECIDED:
            if key in members:
                message = f"{quote(key.name)} beside 'tools-host', for which the compiler sets it"
                report(codes.TOOLS_HOST_CONFLICT, entries[key.name].key.span, message)
        return

    entry = entries.get(_TYPE.name)
    runner_type = entry.value if entry is not None else None
    if isinstance(runner_type, ScalarNode) and runner_type.text == _TOOLS_HOST.name:
        message = f"'type' is the type of an agent's runner, and {quote(name.text)} is no agent"
        help_text = "write 'tools-host: {}' in its place"
        report(codes.BAD_VALUE, runner_type.span, message, help_text=help_text)


def _read_count(members: shapes.Members, name: ScalarNode, body: MapNode) -> int:
    count = members[_COUNT] or 1

    # The last ordinal is the longest.
    last = f"{name.text}-{count - 1}"
    if count > 1 and is_agent_id(name.text) and not is_agent_id(last):
        message = f"{quote(last)} is too long for an agent's name"
        members.reader.report(codes.BAD_AGENT_ID, name.span, message)

    count_entry = members.entries[_COUNT.name] if count > 1 else None
    _check_replicas(members.reader, count_entry, body)
    return count


def _check_replicas(reader: Reader, count: Entry | None, body: MapNode) -> None:
    """Report Compose's own ways to run several containers of an agent.

    Containers that Compose multiplies would share one name, token and history.
    """
    notes = [Note(count.key.span, "'count' is here")] if count else []
    container_name = body.get("container_name")
    if count is not None and container_name is not None:
        message = "'container_name' beside 'count': several containers can't have one name"
        reader.report(codes.COUNT_CONFLICT, container_name.key.span, message, notes=notes)

    deploy = body.value("deploy")
    replicas = deploy.get("replicas") if isinstance(deploy, MapNode) else None
    for what, entry in (("scale", body.get("scale")), ("deploy.replicas", replicas)):
        if entry is None or not isinstance(entry.value, ScalarNode):
            continue
        number = reader.fill(entry.value)
        if number is None:
            continue

        is_one_at_most = number.text.strip() in {"", "0", "1"}
        if count is None and is_one_at_most:
            continue

        message = f"{quote(what)} would give several containers one identity"
        help_text = "write 'count' under 'x-claw': each agent has a name and a token of its own"
        reader.report(
            codes.COUNT_CONFLICT, entry.key.span, message, notes=notes, help_text=help_text
        )


def _read_original(
    members: shapes.Members, keys: tuple[shapes.Key[Node], ...]
) -> Mapping[str, Node]:
    """Return the keys of the original system that a pod or service has, with their values."""
    carried: dict[str, Node] = {}
    for key in keys:
        entry = members.entries.get(key.name)
        if entry is not None:
            members.reader.carry(entry.key)
            carried[key.name] = entry.value

    # All of ``context`` is ours, except this key.
    context = members.entries.get("context")
    if context is not None and isinstance(context.value, MapNode):
        channel = context.value.get("channel")
        if channel is not None:
            members.reader.carry(channel.key, "context.channel")
            carried["context.channel"] = channel.value

    return carried
