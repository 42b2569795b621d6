"""One Compose service → a ``ServiceSpec``: an agent, a provider, or neither (docs/spec/compile.md "Grammar").

Rules. Keys of the original system that nothing here acts on are carried into pod-manifest.json, with one warning each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Note, quote
from claw_compile.grammar.access import AUTH, MCP, PRINCIPALS, STDIO
from claw_compile.grammar.cllama import CLLAMA, ENV
from claw_compile.grammar.models import BUDGET, MODELS
from claw_compile.grammar.pod import DELIVERIES, Delivery, ServiceSpec
from claw_compile.grammar.prompt import CONTEXT, FEEDS, MEMORY, SKILLS
from claw_compile.grammar.reader import Reader
from claw_compile.grammar.shapes import AnyValue, Choice, Conversion, Key, Limit, Members, Place, Record, Text
from claw_compile.grammar.surfaces import SURFACES
from claw_compile.grammar.tools import GRANTS, LIMITS
from claw_compile.parsing.node import Entry, MapNode, Node, ScalarNode
from claw_contract.names import is_agent_id

MAX_COUNT = 1000
"""Each has a directory and a container of its own: more is a slip of the finger."""
COUNT = Key("count", Limit(MAX_COUNT), "How many of this agent there are: name-0, name-1 ….", 1)
_ORIGINAL = "A key of the original system: carried into pod-manifest.json, and not acted on."


def _keys(*names: str) -> tuple[Key[Node], ...]:
    return tuple(Key(name, AnyValue(), _ORIGINAL, deprecated=True) for name in names)


ORIGINAL_POD_KEYS = _keys(
    *("handles-defaults", "channel-memory", "principals", "master", "alert-webhooks", "alert-mentions"),
    *("sequential-conformance", "claw-api"),
)
ORIGINAL_SERVICE_KEYS = _keys("handles", "invoke", "persona", "include", "channel-memory", "claw-api", "hermes")


def _delivery(reader: Reader, delivery: Delivery, node: Node) -> Delivery:
    if delivery == "native":
        message = "'native' is compiled, and the agent's tools are mediated: the proxy has no MCP endpoint yet"
        reader.report(codes.NATIVE_IS_MEDIATED, node.span, message)
    return delivery


_AGENT = Key("agent", Text(), "The agent's contract, beside the pod file; makes the service an agent.")
_TYPE = Key("type", Text(), "The type of the runner.", "generic")
_CLLAMA = Key("cllama", CLLAMA, "The proxy before the agent; null for none.")
_CLLAMA_ENV = Key("cllama-env", ENV, "More of the proxy's environment.")
_MODELS = Key("models", MODELS, "Which models it may use, by slot; over the pod's.")
_SURFACES = Key("surfaces", SURFACES, "What it reaches beside its tools.")
_TOOLS = Key("tools", GRANTS, "What it may call; deny by default. [] takes the pod's away.")
_TOOL_POLICY = Key("tool-policy", LIMITS, "Limits of a turn with tools; replaces the pod's.")
_FEEDS = Key("feeds", FEEDS, "Live data for its prompts.")
_SKILLS = Key("skills", SKILLS, "Files that it may read.")
_MEMORY = Key("memory", MEMORY, "The service that remembers for it; null for none.")
_BUDGET = Key("budget", BUDGET, "What it may spend; null for no budget.")
_CONTEXT = Key("context", CONTEXT, "What stands in its prompts.")
_DELIVERY = Key[Delivery](
    "delivery",
    Conversion[Delivery, Delivery](Choice[Delivery](DELIVERIES), _delivery),
    "How its tools come to it.",
    "mediated",
)
_SERVICE_AUTH = Key("service-auth", PRINCIPALS, "Its own credentials at services.")
_DESCRIBE_FILE = Key("describe-file", Text(), "What the service says of itself: its descriptor.")
_MCP_STDIO = Key("mcp-stdio", STDIO, "The stdio server that this service wraps.")
_MCP = Key("mcp", MCP, "The service speaks MCP over HTTP.")
_BASE_URL = Key("base-url", Text(), "Where the proxy reaches the service; default: its first TCP port.")
_AUTH = Key("auth", AUTH, "The credential that the service wants; over its descriptor's.")

AGENT_KEYS: tuple[Key[Any], ...] = (
    *(_CLLAMA, _CLLAMA_ENV, COUNT, _MODELS, _SURFACES, _TOOLS, _TOOL_POLICY, _FEEDS, _SKILLS, _MEMORY),
    *(_BUDGET, _CONTEXT, _DELIVERY, _SERVICE_AUTH),
)
PROVIDER_KEYS: tuple[Key[Any], ...] = (_DESCRIBE_FILE, _MCP_STDIO, _MCP, _BASE_URL, _AUTH)
SERVICE: Record[Members] = Record(
    (_AGENT, _TYPE, *AGENT_KEYS, *PROVIDER_KEYS, *ORIGINAL_SERVICE_KEYS),
    lambda members: members,
    "a service's x-claw",
    is_nullable=True,
    rules={
        "dependencies": {key.name: [_AGENT.name] for key in AGENT_KEYS},
        "not": {"required": [_AGENT.name, _MCP_STDIO.name]},
    },
)


def read_service(reader: Reader, entry: Entry) -> ServiceSpec:
    """Return all that a service says; of one that can't be read, its name."""
    body = reader.mapping(entry.value, "a service")
    if body is None:
        return ServiceSpec(entry.key)
    claw = body.value("x-claw")
    place = Place(SERVICE.name, entry.key.span)
    members = (SERVICE.read(reader, claw, place) if claw is not None else None) or Members(reader, {}, body, place)
    _check_role(members, entry.key)
    runner, count = members[_TYPE], members.entries.get(COUNT.name)
    return ServiceSpec(
        name=entry.key,
        agent=members[_AGENT],
        runner=runner.text if runner else _TYPE.default,
        count=_read_count(members, entry.key, body) if _AGENT in members else 1,
        count_key=count.key.span if count else None,
        cllama=members[_CLLAMA],
        cllama_env=members[_CLLAMA_ENV] or {},
        tools=members[_TOOLS],
        surfaces=members[_SURFACES],
        limits=members[_TOOL_POLICY],
        feeds=members[_FEEDS],
        skills=members[_SKILLS],
        models=members[_MODELS],
        spending=members[_BUDGET],
        memory=members[_MEMORY],
        context=members[_CONTEXT],
        delivery=members[_DELIVERY] or "mediated",
        principals=members[_SERVICE_AUTH] or (),
        describe_file=members[_DESCRIBE_FILE],
        names_descriptor=_DESCRIBE_FILE in members,
        stdio=members[_MCP_STDIO],
        wraps_stdio=_MCP_STDIO in members,
        mcp_path=members[_MCP],
        base_url=members[_BASE_URL],
        auth=members[_AUTH],
        carried=read_original(members, ORIGINAL_SERVICE_KEYS),
        body=body,
        environment=body.value("environment"),
        expose=body.value("expose"),
        ports=body.value("ports"),
    )


def _check_role(members: Members, name: ScalarNode) -> None:
    """Check that an agent has a contract and a name that can be a directory, and that it wraps no stdio server."""
    report, entries = members.reader.report, members.entries
    if _AGENT not in members:
        for key in AGENT_KEYS:
            if key in members:
                message = f"{quote(key.name)} on {quote(name.text)}, which is no agent"
                help_text = "an agent has a contract: 'agent: ./AGENTS.md'"
                report(codes.NOT_AN_AGENT, entries[key.name].key.span, message, help_text=help_text)
        return
    if not is_agent_id(name.text):
        report(codes.BAD_AGENT_ID, name.span, f"{quote(name.text)} can't name an agent")
    if _MCP_STDIO in members:
        message = f"{quote(name.text)} wraps a stdio server, and so is no agent"
        help_text = "give the server a service of its own, and grant its tools to the agent"
        report(codes.NOT_AN_AGENT, entries[_AGENT.name].key.span, message, help_text=help_text)


def _read_count(members: Members, name: ScalarNode, body: MapNode) -> int:
    """Return the number of agents, and check what Compose says of the same matter against it."""
    count = members[COUNT] or 1
    if count > 1 and is_agent_id(name.text) and not is_agent_id(f"{name.text}-{count - 1}"):
        message = f"{quote(f'{name.text}-{count - 1}')} is too long for an agent's name"
        members.reader.report(codes.BAD_AGENT_ID, name.span, message)
    _check_compose(members.reader, members.entries[COUNT.name] if count > 1 else None, body)
    return count


def _check_compose(reader: Reader, count: Entry | None, body: MapNode) -> None:
    notes = [Note(count.key.span, "'count' is here")] if count else []
    if count is not None and (container_name := body.get("container_name")) is not None:
        message = "'container_name' beside 'count': several containers can't have one name"
        reader.report(codes.COUNT_CONFLICT, container_name.key.span, message, notes=notes)
    for what, entry in _replicas(body):
        number = reader.fill(entry.value) if isinstance(entry.value, ScalarNode) else None
        if number is None or (count is None and number.text.strip() in {"", "0", "1"}):
            continue
        message = f"{quote(what)} would give several containers one identity"
        help_text = "write 'count' under 'x-claw': each agent has a name and a token of its own"
        reader.report(codes.COUNT_CONFLICT, entry.key.span, message, notes=notes, help_text=help_text)


def _replicas(body: MapNode) -> Iterator[tuple[str, Entry]]:
    deploy = body.value("deploy")
    places: Mapping[str, Entry | None] = {
        "scale": body.get("scale"),
        "deploy.replicas": deploy.get("replicas") if isinstance(deploy, MapNode) else None,
    }
    for what, entry in places.items():
        if entry is not None:
            yield what, entry


def read_original(members: Members, keys: tuple[Key[Node], ...]) -> Mapping[str, Node]:
    """Return what is carried of a pod or of a service, by key; ``context.channel`` too."""
    carried: dict[str, Node] = {}
    for key in keys:
        if (entry := members.entries.get(key.name)) is not None:
            members.reader.carry(entry.key)
            carried[key.name] = entry.value
    context = members.entries.get("context")
    channel = context.value.get("channel") if context and isinstance(context.value, MapNode) else None
    if channel is not None:
        members.reader.carry(channel.key, "context.channel")
        carried["context.channel"] = channel.value
    return carried
