"""Addresses and credentials of services.

The keys are ``auth``, ``service-auth``, ``secrets``, ``mcp`` and ``mcp-stdio``.

A credential is never written into a pod file. A key names where it is: ``env`` a variable of the
service that is called, ``secret`` one of the pod's secrets.
"""

from typing import Literal

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Note, quote
from claw_compile.grammar import shapes
from claw_compile.grammar.pod import PodSecret, ProviderAuth, ServiceCredential, Stdio
from claw_compile.grammar.reader import Reader
from claw_compile.parsing.node import Node, ScalarNode
from claw_contract.toolhost_file import VARIABLE_NAME

type AuthType = Literal["none", "bearer", "header", "basic"]
AUTH_TYPES: tuple[AuthType, ...] = ("none", "bearer", "header", "basic")
_DEFAULT_MCP_PATH = "/mcp"
_SECRET_NAME = "[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"  # noqa: S105 - the form of a name
# A path without query, fragment, or a segment ``.`` or ``..``, which a client would resolve away.
_MCP_PATH = r"/(?!(?:[^\s]*/)?\.\.?(?:/|$))[^\s?#\\]*"

_TYPE = shapes.Key[AuthType](
    "type",
    shapes.Choice[AuthType](AUTH_TYPES),
    "How the credential is sent.",
    missing=shapes.MissingKey(message=f"'auth' needs 'type': {', '.join(AUTH_TYPES)}"),
)
_ENV = shapes.Key(
    "env",
    shapes.Text(),
    "The variable with the credential, in the environment of the service that is called.",
)
_SECRET = shapes.Key(
    "secret",
    shapes.Text(_SECRET_NAME, "'secret' is the name of one of the pod's secrets"),
    "The pod's secret with the credential.",
)
_HEADER = shapes.Key(
    "header",
    shapes.Text("[A-Za-z0-9-]{1,64}", "'header' is the name of an HTTP header"),
    "The header that carries the credential.",
)
_USERNAME = shapes.Key(
    "username",
    shapes.Text("[!-9;-~]{1,200}", "'username' has visible characters, and no ':'"),
    "The user's name; the credential is the password.",
)


def _build_auth(members: shapes.Members) -> ProviderAuth | None:
    kind = members[_TYPE]
    span = members.place.span
    if kind is None:
        return None
    if kind == "none":
        return ProviderAuth("none", span)

    env = members[_ENV]
    secret = members[_SECRET]
    header = members[_HEADER]
    username = members[_USERNAME]
    members.require_one(_ENV, _SECRET)

    lacks = None
    if kind == "header" and header is None:
        lacks = _HEADER
    elif kind == "basic" and username is None:
        lacks = _USERNAME

    # A key that is there and has a bad value is reported already.
    if lacks is not None and lacks not in members:
        message = f"'auth' of type {kind} needs {quote(lacks.name)}"
        members.reader.report(codes.MISSING_KEY, span, message)

    has_one_source = (env is None) != (secret is None)
    if lacks is not None or not has_one_source:
        return None
    return ProviderAuth(kind, span, env, secret, header, username)


def _when(types: list[str], then: shapes.Schema) -> shapes.Schema:
    """Return the rule that ``then`` holds for the given types of ``auth``."""
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
_PRINCIPAL = shapes.Key("principal", shapes.Text(), "The agent's name at the service.")


def _build_credential(members: shapes.Members) -> ServiceCredential | None:
    service = members[_SERVICE]
    env = members[_ENV]
    secret = members[_SECRET]
    principal = members[_PRINCIPAL]

    name = principal.text if principal else ""
    span = members.place.span
    if service is None or (env is not None and secret is not None):
        return None
    if env is not None:
        return ServiceCredential(service, "env", env, name, span)
    if secret is not None:
        return ServiceCredential(service, "secret", secret, name, span)
    return None


def _one_for_each_service(
    reader: Reader, credentials: tuple[ServiceCredential, ...], _node: Node
) -> tuple[ServiceCredential, ...]:
    by_service: dict[str, ServiceCredential] = {}
    for credential in credentials:
        first = by_service.setdefault(credential.service.text, credential)
        if first is not credential:
            notes = [Note(first.span, "the first one is here")]
            message = f"two credentials for {quote(credential.service.shown)}"
            reader.report(codes.BAD_VALUE, credential.service.span, message, notes=notes)

    return tuple(by_service.values())


_CREDENTIAL = shapes.Record(
    (_SERVICE, _ENV, _SECRET, _PRINCIPAL),
    _build_credential,
    required=(_SERVICE,),
    either=(_ENV, _SECRET),
)
SERVICE_AUTH = shapes.Conversion(shapes.ListOf(_CREDENTIAL), _one_for_each_service)

_SECRET_ENV = shapes.Key(
    "env",
    shapes.Text(VARIABLE_NAME, "'env' is the name of a variable"),
    "The variable with the secret.",
)
_SECRET_FILE = shapes.Key(
    "file", shapes.Text(), "The file with the secret, relative to the pod file."
)


def _build_source(members: shapes.Members) -> tuple[Literal["env", "file"], ScalarNode] | None:
    env = members[_SECRET_ENV]
    file = members[_SECRET_FILE]
    if env is not None and file is not None:
        return None
    if file is not None:
        return "file", file
    if env is None:
        return None

    if not members.reader.lookup(env.text):
        message = f"{env.shown} is not set"
        help_text = "set it in the environment or in '.env', or remove the secret"
        members.reader.report(codes.UNSET_VARIABLE, env.span, message, help_text=help_text)
    return "env", env


_SOURCE = shapes.Record(
    (_SECRET_ENV, _SECRET_FILE), _build_source, either=(_SECRET_ENV, _SECRET_FILE)
)


def _secrets(
    _reader: Reader,
    pairs: tuple[tuple[ScalarNode, tuple[Literal["env", "file"], ScalarNode]], ...],
    _node: Node,
) -> tuple[PodSecret, ...]:
    return tuple(PodSecret(name, source, reference) for name, (source, reference) in pairs)


SECRETS = shapes.Conversion(shapes.Table("secret", _SECRET_NAME, _SOURCE), _secrets)

_PATH = shapes.Key(
    "path",
    shapes.Text(_MCP_PATH, "{shown} is no path of a service", codes.BAD_PATH),
    "The path of the MCP server.",
    _DEFAULT_MCP_PATH,
)


def _build_mcp(members: shapes.Members) -> ScalarNode | None:
    if _PATH in members:
        return members[_PATH]
    return ScalarNode(_DEFAULT_MCP_PATH, members.place.span)


MCP = shapes.Record((_PATH,), _build_mcp, is_nullable=True)

_COMMAND = shapes.Key("command", shapes.Text(), "The program to run; no shell is involved.")
_ARGS = shapes.Key("args", shapes.ListOf(shapes.Text()), "Its arguments.")


def _build_stdio(members: shapes.Members) -> Stdio | None:
    command = members[_COMMAND]
    args = members[_ARGS]
    return Stdio(command, args or ()) if command else None


STDIO = shapes.Record((_COMMAND, _ARGS), _build_stdio, required=(_COMMAND,))
