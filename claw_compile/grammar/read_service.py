"""One Compose service → a ``ServiceSpec``: an agent, a provider, or neither (spec/compile.md "Grammar")."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quoted
from claw_compile.grammar.pod import DELIVERIES, Delivery, ServiceSpec
from claw_compile.grammar.read_access import read_auth, read_mcp, read_principals, read_stdio
from claw_compile.grammar.read_cllama import read_cllama, read_env
from claw_compile.grammar.read_context import read_context
from claw_compile.grammar.read_count import read_count
from claw_compile.grammar.read_models import read_models, read_spending
from claw_compile.grammar.read_original import ORIGINAL_SERVICE_KEYS, read_original
from claw_compile.grammar.read_relations import read_feeds, read_memory, read_skills
from claw_compile.grammar.read_surfaces import read_surfaces
from claw_compile.grammar.read_tools import read_grants, read_limits
from claw_compile.grammar.reader import Reading
from claw_compile.parsing.node import Entry, ScalarNode
from claw_contract.names import is_agent_id

AGENT_KEYS = (
    *("cllama", "cllama-env", "count", "models", "surfaces", "tools", "tool-policy", "feeds", "skills", "memory"),
    *("budget", "context", "delivery", "service-auth"),
)
PROVIDER_KEYS = ("describe-file", "mcp-stdio", "mcp", "base-url", "auth")
SERVICE_KEYS = ("agent", "type", *AGENT_KEYS, *PROVIDER_KEYS)


def read_service(reading: Reading, entry: Entry) -> ServiceSpec:
    """Everything that a service says; of one that can't be read, its name."""
    body = reading.mapping(entry.value, "a service")
    if body is None:
        return ServiceSpec(entry.key)
    claw = body.value("x-claw")
    known = (*SERVICE_KEYS, *ORIGINAL_SERVICE_KEYS)
    entries = reading.keys(claw, "a service's x-claw", known) if claw is not None else {}
    _check_role(reading, entry.key, entries)
    is_agent = "agent" in entries

    def read[T](key: str, reader: Callable[[Reading, Entry], T]) -> T | None:
        return reader(reading, entries[key]) if key in entries else None

    runner = reading.optional_text(entries.get("type"))
    return ServiceSpec(
        name=entry.key,
        agent=reading.optional_text(entries.get("agent")),
        runner=runner.text if runner else "generic",
        count=read_count(reading, entry.key, entries.get("count"), body) if is_agent else 1,
        count_key=entries["count"].key.span if "count" in entries else None,
        cllama=read("cllama", read_cllama),
        cllama_env=read("cllama-env", read_env) or {},
        tools=read("tools", read_grants),
        surfaces=read("surfaces", read_surfaces),
        limits=read("tool-policy", read_limits),
        feeds=read("feeds", read_feeds),
        skills=read("skills", read_skills),
        models=read("models", read_models),
        spending=read("budget", read_spending),
        memory=read("memory", read_memory),
        context=read("context", read_context),
        delivery=read("delivery", _delivery) or "mediated",
        principals=read("service-auth", read_principals) or (),
        describe_file=reading.optional_text(entries.get("describe-file")),
        names_descriptor="describe-file" in entries,
        stdio=read("mcp-stdio", read_stdio),
        wraps_stdio="mcp-stdio" in entries,
        mcp_path=read("mcp", read_mcp),
        base_url=reading.optional_text(entries.get("base-url")),
        auth=read("auth", read_auth),
        carried=read_original(reading, entries, ORIGINAL_SERVICE_KEYS),
        body=body,
        environment=body.value("environment"),
        expose=body.value("expose"),
        ports=body.value("ports"),
    )


def _delivery(reading: Reading, entry: Entry) -> Delivery:
    delivery = reading.choice(entry.value, "'delivery'", DELIVERIES) or "mediated"
    if delivery == "native":
        message = "'native' is compiled, and the agent's tools are mediated: the proxy has no MCP endpoint yet"
        reading.found.append(codes.NATIVE_IS_MEDIATED.at(entry.value.span, message))
    return delivery


def _check_role(reading: Reading, name: ScalarNode, entries: Mapping[str, Entry]) -> None:
    """An agent has a contract and a name that can be a directory; a wrapper of a stdio server is no agent."""
    if "agent" not in entries:
        for key in AGENT_KEYS:
            if key in entries:
                message = f"{quoted(key)} on {quoted(name.text)}, which is no agent"
                help_text = "an agent has a contract: 'agent: ./AGENTS.md'"
                reading.found.append(codes.NOT_AN_AGENT.at(entries[key].key.span, message, help_text=help_text))
        return
    if not is_agent_id(name.text):
        reading.found.append(codes.BAD_AGENT_ID.at(name.span, f"{quoted(name.text)} can't name an agent"))
    if "mcp-stdio" in entries:
        message = f"{quoted(name.text)} wraps a stdio server, and so is no agent"
        help_text = "give the server a service of its own, and grant its tools to the agent"
        reading.found.append(codes.NOT_AN_AGENT.at(entries["agent"].key.span, message, help_text=help_text))
