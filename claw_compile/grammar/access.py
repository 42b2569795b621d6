"""Addresses and credentials of services: ``auth``, ``service-auth``, ``secrets``,
``mcp``, ``mcp-stdio``.
"""

from typing import Literal

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Note, quote
from claw_compile.grammar import shapes
from claw_compile.grammar.pod import PodSecret, ProviderAuth, ServiceCredential, Stdio
from claw_compile.grammar.reader import Reader
from claw_compile.parsing.node import Node, ScalarNode

type AuthType = Literal["none", "bearer", "header", "basic"]
AUTH_TYPES: tuple[AuthType, ...] = ("none", "bearer", "header", "basic")
VARIABLE_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_DEFAULT_MCP_PATH = "/mcp"
_SECRET_NAME = "[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"  # noqa: S105 - the form of a name
_MCP_PATH = r"/(?!(?:[^\s]*/)?\.\.?(?:/|$))[^\s?#\\]*"

_TYPE = shapes.Key[AuthType](
    "type",
    shapes.Choice[AuthType](AUTH_TYPES),
    "How it is sent.",
    missing=shapes.MissingKey(message=f"'auth' needs 'type': {', '.join(AUTH_TYPES)}"),
)
_ENV = shapes.Key(
    "env", shapes.Text(), "The variable that holds it, of the service that is called."
)
_SECRET = shapes.Key(
    "secret",
    shapes.Text(_SECRET_NAME, "'secret' is the name of one of the pod's secrets"),
    "One of the pod's secrets.",
)
_HEADER = shapes.Key(
    "header",
    shapes.Text("[A-Za-z0-9-]{1,64}", "'header' is the name of an HTTP header"),
    "The header that carries it.",
)
_USERNAME = shapes.Key(
    "username",
    shapes.Text("[!-9;-~]{1,200}", "'username' has visible characters, and no ':'"),
    "Who it belongs to; it is the password.",
)


def _build_auth(members: shapes.Members) -> ProviderAuth | None:
    kind, span = members[_TYPE], members.place.span
    if kind is None or kind == "none":
        return ProviderAuth("none", span) if kind else None
    env, secret, header, username = (
        members[_ENV],
        members[_SECRET],
        members[_HEADER],
        members[_USERNAME],
    )
    members.require_one(_ENV, _SECRET)
    needed = {"header": _HEADER, "basic": _USERNAME}.get(kind, _TYPE)
    if needed not in members:
        message = f"'auth' of type {kind} needs {quote(needed.name)}"
        members.reader.report(codes.MISSING_KEY, span, message)
    is_sound = (env is None) != (secret is None) and {"header": header, "basic": username}.get(
        kind, kind
    ) is not None
    return ProviderAuth(kind, span, env, secret, header, username) if is_sound else None


def _when(types: list[str], then: shapes.Schema) -> shapes.Schema:
    return {"if": {"properties": {"type": {"enum": types}}, "required": ["type"]}, "then": then}


AUTH = shapes.Record(
    (_TYPE, _ENV, _SECRET, _HEADER, _USERNAME),
    _build_auth,
    required=(_TYPE,),
    rules={
        "allOf": [
            _when(["bearer", "header", "basic"], shapes.one_of("env", "secret")),
            _when(["header"], {"required": ["header"]}),
            _when(["basic"], {"required": ["username"]}),
        ]
    },
)

_SERVICE = shapes.Key("service", shapes.Text(), "The service.")
_PRINCIPAL = shapes.Key("principal", shapes.Text(), "Who the agent is there.")


def _build_principal(members: shapes.Members) -> ServiceCredential | None:
    service, env, secret, principal = (
        members[_SERVICE],
        members[_ENV],
        members[_SECRET],
        members[_PRINCIPAL],
    )
    name, span = principal.text if principal else "", members.place.span
    reference = env or secret
    if service is None or reference is None or (env and secret):
        return None
    return ServiceCredential(service, "env" if env else "secret", reference, name, span)


def _one_for_each_service(
    reader: Reader, principals: tuple[ServiceCredential, ...], _node: Node
) -> tuple[ServiceCredential, ...]:
    by_service: dict[str, ServiceCredential] = {}
    for principal in principals:
        first = by_service.setdefault(principal.service.text, principal)
        if first is not principal:
            notes = [Note(first.span, "the first one is here")]
            message = f"two credentials for {quote(principal.service.shown)}"
            reader.report(codes.BAD_VALUE, principal.service.span, message, notes=notes)
    return tuple(by_service.values())


_PRINCIPAL_ENTRY = shapes.Record(
    (_SERVICE, _ENV, _SECRET, _PRINCIPAL),
    _build_principal,
    required=(_SERVICE,),
    either=(_ENV, _SECRET),
)
PRINCIPALS = shapes.Conversion(shapes.ListOf(_PRINCIPAL_ENTRY), _one_for_each_service)

_SECRET_ENV = shapes.Key(
    "env",
    shapes.Text(VARIABLE_NAME, "'env' is the name of a variable"),
    "The variable that holds it.",
)
_SECRET_FILE = shapes.Key("file", shapes.Text(), "The file that holds it, beside the pod file.")


def _build_source(members: shapes.Members) -> tuple[Literal["env", "file"], ScalarNode] | None:
    env, file = members[_SECRET_ENV], members[_SECRET_FILE]
    if (env is None) == (file is None):
        return None
    if file is not None:
        return "file", file
    assert env is not None
    if not members.reader.lookup(env.text):
        help_text = "set it in the environment or in '.env', or remove the secret"
        members.reader.report(
            codes.UNSET_VARIABLE, env.span, f"{env.shown} is not set", help_text=help_text
        )
    return "env", env


_SOURCE = shapes.Record(
    (_SECRET_ENV, _SECRET_FILE), _build_source, either=(_SECRET_ENV, _SECRET_FILE)
)
SECRETS = shapes.Conversion(
    shapes.Table("secret", _SECRET_NAME, _SOURCE),
    lambda _reader, pairs, _node: tuple(
        PodSecret(name, source, of) for name, (source, of) in pairs
    ),
)

_PATH = shapes.Key(
    "path",
    shapes.Text(_MCP_PATH, "{shown} is no path of a service", codes.BAD_PATH),
    "Where it listens.",
    _DEFAULT_MCP_PATH,
)


def _build_mcp(members: shapes.Members) -> ScalarNode | None:
    return members[_PATH] if _PATH in members else ScalarNode(_DEFAULT_MCP_PATH, members.place.span)


MCP = shapes.Record((_PATH,), _build_mcp, is_nullable=True)

_COMMAND = shapes.Key("command", shapes.Text(), "What is run; no shell reads it.")
_ARGS = shapes.Key("args", shapes.ListOf(shapes.Text()), "Its arguments.")


def _build_stdio(members: shapes.Members) -> Stdio | None:
    command, args = members[_COMMAND], members[_ARGS]
    return Stdio(command, args or ()) if command else None


STDIO = shapes.Record((_COMMAND, _ARGS), _build_stdio, required=(_COMMAND,))
