"""The pod file's tree → a ``PodSpec`` (spec/compile.md "Grammar").

Rules. Any Compose file is a pod file: what is outside ``x-claw`` is not judged. An unknown key under ``x-claw`` is an error;
a key of the grammar, the original's included, that is not acted on yet is one warning.
"""

from __future__ import annotations

import re
from typing import Any

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Checked, quoted
from claw_compile.grammar.pod import PodSpec, ProviderAuth, ServiceSpec
from claw_compile.grammar.read_tools import read_cllama, read_grants, read_limits, read_surfaces
from claw_compile.grammar.reading import Reading
from claw_compile.reading.interpolation import Lookup
from claw_compile.reading.node import Entry, MapNode, Node, ScalarNode, kind
from claw_contract.names import is_agent_id

POD_KEYS = ("pod", "cllama-defaults", "tools-defaults", "tool-policy-defaults", "surfaces-defaults", "strict-surfaces")
POD_KEYS_LATER = (
    *("feeds-defaults", "skills-defaults", "models-defaults", "budget-defaults", "memory-defaults", "secrets"),
    *("handles-defaults", "context", "channel-memory", "principals", "master", "alert-webhooks", "alert-mentions"),
    *("sequential-conformance", "claw-api"),
)
SERVICE_KEYS = (
    *("agent", "type", "cllama", "tools", "tool-policy", "surfaces"),
    *("describe-file", "mcp-stdio", "base-url", "auth"),
)
SERVICE_KEYS_LATER = (
    *("cllama-env", "count", "models", "feeds", "skills", "memory", "budget", "context", "delivery", "service-auth"),
    *("mcp", "handles", "invoke", "persona", "include", "channel-memory", "claw-api", "hermes"),
)
AGENT_KEYS = ("cllama", "tools", "tool-policy")
AUTH_TYPES = ("none", "bearer", "header")
_POD_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_SECRET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
RESERVED_AGENT_IDS = {"cllama"}


def read_pod(file: str, root: MapNode, lookup: Lookup) -> Checked[PodSpec]:
    """Everything that the file says; what can't be read is reported and left out."""
    reading = Reading(lookup)
    claw = root.get("x-claw")
    entries = reading.keys(claw.value, "the pod's x-claw", POD_KEYS, POD_KEYS_LATER) if claw else {}
    name = _pod_name(reading, entries.get("pod"), claw.key if claw else None, root)
    services = root.value("services")
    bodies = services.entries if isinstance(services, MapNode) else ()
    if services is not None and not isinstance(services, MapNode) and not _is_null(services):
        reading.found.append(
            codes.WRONG_TYPE.at(services.span, f"'services' is a mapping, and this is {kind(services)}")
        )
    pod = PodSpec(
        file=file,
        name=name,
        cllama=read_cllama(reading, entries["cllama-defaults"]) if "cllama-defaults" in entries else None,
        tools=read_grants(reading, entries["tools-defaults"]) if "tools-defaults" in entries else None,
        surfaces=_surfaces(reading, entries.get("surfaces-defaults")),
        limits=read_limits(reading, entries["tool-policy-defaults"]) if "tool-policy-defaults" in entries else None,
        strict_surfaces="strict-surfaces" in entries
        and reading.flag(entries["strict-surfaces"].value, "'strict-surfaces'"),
        services=tuple(_service(reading, entry) for entry in bodies),
        document=root,
    )
    if not pod.agents:
        at = services.span if services is not None else root.span
        reading.found.append(codes.NO_AGENTS.at(at, "no service has 'x-claw.agent'"))
    return Checked(pod, (*reading.found, *reading.postponed()))


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.is_null


def _surfaces(reading: Reading, entry: Entry | None) -> Any:
    if entry is None:
        return None
    # Checked against grants; the networks that they ask for are not derived yet.
    reading.postpone(entry.key)
    return read_surfaces(reading, entry)


def _pod_name(reading: Reading, entry: Entry | None, claw: ScalarNode | None, root: MapNode) -> ScalarNode | None:
    if entry is None:
        at = claw.span if claw else root.span
        help_text = "a pod file begins with\n  x-claw:\n    pod: my-pod"
        reading.found.append(codes.MISSING_KEY.at(at, "the pod has no name: 'x-claw.pod'", help_text=help_text))
        return None
    name = reading.text(entry.value, "'pod'")
    if name is not None and not _POD_NAME.fullmatch(name.text):
        reading.found.append(codes.BAD_NAME.at(name.span, f"{quoted(name.shown)} can't name a pod"))
        return None
    return name


def _service(reading: Reading, entry: Entry) -> ServiceSpec:
    body = entry.value
    if not isinstance(body, MapNode):
        if not _is_null(body):
            reading.found.append(codes.WRONG_TYPE.at(body.span, f"a service is a mapping, and this is {kind(body)}"))
        return ServiceSpec(entry.key)
    claw = body.value("x-claw")
    entries = reading.keys(claw, "a service's x-claw", SERVICE_KEYS, SERVICE_KEYS_LATER) if claw is not None else {}
    _check_agent_keys(reading, entry.key, entries)
    runner = reading.optional_text(entries.get("type"))
    return ServiceSpec(
        name=entry.key,
        agent=reading.optional_text(entries.get("agent")),
        runner=runner.text if runner else "generic",
        cllama=read_cllama(reading, entries["cllama"]) if "cllama" in entries else None,
        tools=read_grants(reading, entries["tools"]) if "tools" in entries else None,
        surfaces=_surfaces(reading, entries.get("surfaces")),
        limits=read_limits(reading, entries["tool-policy"]) if "tool-policy" in entries else None,
        describe_file=reading.optional_text(entries.get("describe-file")),
        names_descriptor="describe-file" in entries,
        base_url=reading.optional_text(entries.get("base-url")),
        auth=_auth(reading, entries["auth"]) if "auth" in entries else None,
        wraps_stdio="mcp-stdio" in entries and _stdio(reading, entries["mcp-stdio"]),
        body=body,
        environment=body.value("environment"),
        expose=body.value("expose"),
        ports=body.value("ports"),
    )


def _check_agent_keys(reading: Reading, name: ScalarNode, entries: dict[str, Entry]) -> None:
    if "agent" not in entries:
        for key in AGENT_KEYS:
            if key in entries:
                message = f"{quoted(key)} on {quoted(name.text)}, which is no agent"
                help_text = "an agent has a contract: 'agent: ./AGENTS.md'"
                reading.found.append(codes.NOT_AN_AGENT.at(entries[key].key.span, message, help_text=help_text))
    elif not is_agent_id(name.text) or name.text in RESERVED_AGENT_IDS:
        reading.found.append(codes.BAD_AGENT_ID.at(name.span, f"{quoted(name.text)} can't name an agent"))


def _stdio(reading: Reading, entry: Entry) -> bool:
    """``mcp-stdio``: which command the wrapper runs. The wrapper reads it; what is compiled is the snapshot."""
    entries = reading.keys(entry.value, "'mcp-stdio'", ("command", "args"))
    if "command" not in entries:
        reading.found.append(codes.MISSING_KEY.at(entry.key.span, "'mcp-stdio' needs 'command'"))
    return True


def _auth(reading: Reading, entry: Entry) -> ProviderAuth | None:
    """``auth {type, env|secret, header}``."""
    entries = reading.keys(entry.value, "'auth'", ("type", "env", "secret", "header"))
    span = entry.key.span
    if "type" not in entries:
        reading.found.append(codes.MISSING_KEY.at(span, f"'auth' needs 'type': {', '.join(AUTH_TYPES)}"))
        return None
    kind_of = reading.choice(entries["type"].value, "'type'", AUTH_TYPES)
    env, secret = reading.optional_text(entries.get("env")), reading.optional_text(entries.get("secret"))
    header = reading.optional_text(entries.get("header"))
    if secret is not None and not _SECRET.fullmatch(secret.text):
        reading.found.append(codes.BAD_VALUE.at(secret.span, "'secret' is the name of a file of the secrets directory"))
        return None
    if header is not None and not _HEADER.fullmatch(header.text):
        reading.found.append(codes.BAD_VALUE.at(header.span, "'header' is the name of an HTTP header"))
        return None
    match kind_of:
        case None:
            return None
        case "none":
            return ProviderAuth("none", span)
        case "bearer":
            kept = ProviderAuth("bearer", span, env, secret)
        case _:
            if header is None:
                reading.found.append(codes.MISSING_KEY.at(span, "'auth' of type header needs 'header'"))
                return None
            kept = ProviderAuth("header", span, env, secret, header)
    if (env is None) == (secret is None):
        reading.found.append(codes.MISSING_KEY.at(span, "'auth' needs either 'env' or 'secret'"))
        return None
    return kept
