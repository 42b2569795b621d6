"""Where a service is and whose credential it wants: ``auth``, ``service-auth``, ``secrets``, ``mcp``, ``mcp-stdio``."""

from __future__ import annotations

import re
from typing import Literal

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Note, Span, quoted
from claw_compile.grammar.pod import ProviderAuth
from claw_compile.grammar.reader import Reading
from claw_compile.grammar.relations import PodSecret, Principal, Stdio
from claw_compile.parsing.node import Entry, Node, ScalarNode

AUTH_TYPES: tuple[Literal["none", "bearer", "header", "basic"], ...] = ("none", "bearer", "header", "basic")
MCP_PATH = "/mcp"
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_USERNAME = re.compile(r"[!-9;-~]{1,200}")
_SECRET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MCP_PATH = re.compile(r"/[^\s?#\\]*")


def read_auth(reading: Reading, entry: Entry) -> ProviderAuth | None:
    """``auth {type, env|secret, header, username}``."""
    entries = reading.keys(entry.value, "'auth'", ("type", "env", "secret", "header", "username"))
    span = entry.key.span
    if "type" not in entries:
        reading.found.append(codes.MISSING_KEY.at(span, f"'auth' needs 'type': {', '.join(AUTH_TYPES)}"))
        return None
    kind_of = reading.choice(entries["type"].value, "'type'", AUTH_TYPES)
    if kind_of is None or kind_of == "none":
        return ProviderAuth("none", span) if kind_of else None
    env, secret = reading.optional_text(entries.get("env")), _secret_name(reading, entries.get("secret"))
    header = _matching(reading, entries.get("header"), _HEADER, "'header' is the name of an HTTP header")
    username = _matching(reading, entries.get("username"), _USERNAME, "'username' has visible characters, and no ':'")
    sound = reading.one_of(entries, span, "'auth'", "env", "secret") and (env is None) != (secret is None)
    needed = {"header": header, "basic": username}.get(kind_of, env or secret)
    key = {"header": "header", "basic": "username"}.get(kind_of, "type")
    if not reading.require(entries, span, f"'auth' of type {kind_of}", key) or needed is None or not sound:
        return None
    return ProviderAuth(kind_of, span, env, secret, header, username)


def _matching(reading: Reading, entry: Entry | None, pattern: re.Pattern[str], message: str) -> ScalarNode | None:
    text = reading.optional_text(entry)
    if text is None or pattern.fullmatch(text.text):
        return text
    reading.found.append(codes.BAD_VALUE.at(text.span, message))
    return None


def _secret_name(reading: Reading, entry: Entry | None) -> ScalarNode | None:
    return _matching(reading, entry, _SECRET, "'secret' is the name of one of the pod's secrets")


def read_principals(reading: Reading, entry: Entry) -> tuple[Principal, ...]:
    """``service-auth``: an agent's own credentials, one for each service."""
    principals: dict[str, Principal] = {}
    for item in reading.items(entry.value, "'service-auth'"):
        principal = _principal(reading, item)
        if principal is None:
            continue
        first = principals.setdefault(principal.service.text, principal)
        if first is not principal:
            notes = [Note(first.span, "the first one is here")]
            message = f"two credentials for {quoted(principal.service.shown)}"
            reading.found.append(codes.BAD_VALUE.at(principal.service.span, message, notes=notes))
    return tuple(principals.values())


def _principal(reading: Reading, node: Node) -> Principal | None:
    what = "an entry of 'service-auth'"
    entries = reading.members(node, what, ("service", "secret", "env", "principal"))
    if entries is None or not reading.require(entries, node.span, what, "service"):
        return None
    service = reading.text(entries["service"].value, "'service'")
    env, secret = reading.optional_text(entries.get("env")), _secret_name(reading, entries.get("secret"))
    principal = reading.optional_text(entries.get("principal"))
    if not reading.one_of(entries, node.span, what, "env", "secret") or service is None:
        return None
    name = principal.text if principal else ""
    if env is not None:
        return Principal(service, "env", env, name, node.span)
    return Principal(service, "secret", secret, name, node.span) if secret is not None else None


def read_secrets(reading: Reading, entry: Entry) -> tuple[PodSecret, ...]:
    """``secrets {NAME: {env: VARIABLE} | {file: ./path}}``."""
    mapping = reading.mapping(entry.value, "'secrets'")
    read = (_pod_secret(reading, each) for each in mapping.entries) if mapping is not None else ()
    return tuple(secret for secret in read if secret is not None)


def _pod_secret(reading: Reading, entry: Entry) -> PodSecret | None:
    what = f"the secret {quoted(entry.key.text)}"
    entries = reading.members(entry.value, what, ("env", "file"))
    if not _SECRET.fullmatch(entry.key.text):
        message = f"{quoted(entry.key.text)} can't name a secret: [A-Za-z0-9_][A-Za-z0-9._-]*"
        reading.found.append(codes.BAD_VALUE.at(entry.key.span, message))
        return None
    at: Span = entry.key.span
    if entries is None or not reading.one_of(entries, at, what, "env", "file"):
        return None
    env, file = reading.optional_text(entries.get("env")), reading.optional_text(entries.get("file"))
    if env is not None and not _VARIABLE.fullmatch(env.text):
        reading.found.append(codes.BAD_VALUE.at(env.span, "'env' is the name of a variable"))
        return None
    if env is not None:
        if not reading.lookup(env.text):
            help_text = "set it in the environment or in '.env', or remove the secret"
            reading.found.append(codes.UNSET_VARIABLE.at(env.span, f"{env.shown} is not set", help_text=help_text))
        return PodSecret(entry.key, "env", env)
    return PodSecret(entry.key, "file", file) if file is not None else None


def read_mcp(reading: Reading, entry: Entry) -> ScalarNode | None:
    """``mcp {path}``: the service speaks MCP over HTTP, at ``/mcp`` unless it says otherwise."""
    entries = reading.keys(entry.value, "'mcp'", ("path",))
    if "path" not in entries:
        return ScalarNode(MCP_PATH, entry.key.span)
    path = reading.text(entries["path"].value, "'path'")
    if path is not None and (not _MCP_PATH.fullmatch(path.text) or {".", ".."} & set(path.text.split("/"))):
        reading.found.append(codes.BAD_PATH.at(path.span, f"{quoted(path.shown)} is no path of a service"))
        return None
    return path


def read_stdio(reading: Reading, entry: Entry) -> Stdio | None:
    """``mcp-stdio {command, args}``: no shell reads it."""
    entries = reading.keys(entry.value, "'mcp-stdio'", ("command", "args"))
    if not reading.require(entries, entry.key.span, "'mcp-stdio'", "command"):
        return None
    command = reading.text(entries["command"].value, "'command'")
    args = reading.texts(entries["args"].value, "'args'") if "args" in entries else ()
    return Stdio(command, args) if command else None
