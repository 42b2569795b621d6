"""The credentials that the proxy sends to services (docs/spec/compile.md, "Auth").

``x-claw.auth`` of a service wins over its descriptor's ``auth``. ``env`` is read from the
environment of the *service*, never from the agent's; a descriptor's ``env`` may also name one of
the pod's secrets. No value is ever printed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, assert_never

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, did_you_mean, quote
from claw_compile.grammar.pod import PodSpec, ProviderAuth, ServiceCredential, ServiceSpec
from claw_compile.grammar.reader import problem_at
from claw_compile.identity import host_secret
from claw_compile.parsing.environment import Lookup, variables
from claw_compile.parsing.node import ScalarNode, span_at
from claw_compile.policy.agent import Agent
from claw_contract.descriptor import DescriptorAuth
from claw_contract.manifest import Auth, BasicAuth, BearerAuth, HeaderAuth, NoAuth
from claw_contract.secret import Secret, SecretRef

# Of the values that RFC 9110, 5.5 allows in a header: visible ASCII, with single blanks inside.
HEADER_VALUE = re.compile(r"[!-~]+( [!-~]+)*")


@dataclass(frozen=True)
class PrincipalAuth:
    """An agent's own credential at a service; ``principal`` is the agent's name there."""

    auth: BearerAuth
    principal: str


type Principals = Mapping[str, Mapping[str, PrincipalAuth]]
"""Agent → service → credential."""


def resolve_principals(
    pod: PodSpec, agents: Iterable[Agent], lookup: Lookup, diagnostics: list[Diagnostic]
) -> Principals:
    """Return every agent's own credentials.

    They come from ``service-auth``, and for each tools host from a secret that the compiler makes.
    """
    principals: dict[str, dict[str, PrincipalAuth]] = {}
    for agent in agents:
        own: dict[str, PrincipalAuth] = {}

        for entry in agent.spec.principals:
            token = _own_token(pod, entry, lookup, diagnostics)
            if token is not None:
                auth = BearerAuth(type="bearer", token=token)
                own[entry.service.text] = PrincipalAuth(auth, entry.principal)

        for name in agent.tool_services:
            service = pod.service(name)
            if service is not None and service.tools_host is not None:
                secret = SecretRef(secret=host_secret(name, agent.id))
                own[name] = PrincipalAuth(BearerAuth(type="bearer", token=secret), agent.id)

        if own:
            principals[agent.id] = own

    return principals


def _own_token(
    pod: PodSpec, entry: ServiceCredential, lookup: Lookup, diagnostics: list[Diagnostic]
) -> Secret | SecretRef | None:
    service = pod.service(entry.service.text)
    if service is None:
        message = f"no service {quote(entry.service.shown)}"
        hint = did_you_mean(entry.service.text, [each.name.text for each in pod.services])
        diagnostics.append(codes.UNKNOWN_SERVICE.at(entry.service.span, message, hint=hint))
        return None

    # ``check_principals`` reports it: the compiler itself makes a token there.
    if service.tools_host is not None:
        return None

    if entry.source == "secret":
        return SecretRef(secret=entry.reference.text)
    return _token(service, entry.reference, lookup, diagnostics)


def project_auth(
    pod: PodSpec,
    service: ServiceSpec,
    service_descriptor: ServiceDescriptor | None,
    lookup: Lookup,
    diagnostics: list[Diagnostic],
) -> Auth | None:
    """Return the credential for calls to the service; report a missing one and return None."""
    if service.auth is not None:
        return _pod_auth(service, service.auth, lookup, diagnostics)

    auth = service_descriptor.descriptor.auth if service_descriptor is not None else None
    if service_descriptor is None or auth is None or auth.type == "none":
        return NoAuth(type="none")

    lacks = _missing_part(auth)
    if auth.env is None or lacks is not None:
        message = f"the descriptor's 'auth' lacks {lacks}"
        at = span_at(service_descriptor.root, ("auth",))
        help_text = f"or set 'x-claw.auth' of {service.name.text}"
        diagnostics.append(codes.TOKEN_MISSING.at(at, message, help_text=help_text))
        return None

    # A variable of the service wins over a secret of the pod with that name.
    variable_names = {variable.name for variable in variables(service.environment, lookup)}
    secret_names = {secret.name.text for secret in pod.secrets}
    token: Secret | SecretRef | None
    if auth.env in secret_names and auth.env not in variable_names:
        token = SecretRef(secret=auth.env)
    else:
        wanted = ScalarNode(auth.env, span_at(service_descriptor.root, ("auth", "env")))
        token = _token(service, wanted, lookup, diagnostics)

    if token is None:
        return None
    return _auth(auth.type, token, auth.header, auth.username)


def _missing_part(auth: DescriptorAuth) -> str | None:
    if auth.env is None:
        return "'env', the variable that holds the token"
    if auth.type == "header" and auth.header is None:
        return "'header'"
    if auth.type == "basic" and auth.username is None:
        return "'username'"
    return None


def _pod_auth(
    service: ServiceSpec, auth: ProviderAuth, lookup: Lookup, diagnostics: list[Diagnostic]
) -> Auth | None:
    if auth.type == "none":
        return NoAuth(type="none")

    token: Secret | SecretRef | None
    if auth.secret is not None:
        token = SecretRef(secret=auth.secret.text)
    else:
        assert auth.env is not None
        token = _token(service, auth.env, lookup, diagnostics)
    if token is None:
        return None

    header = auth.header.text if auth.header else None
    username = auth.username.text if auth.username else None
    return _auth(auth.type, token, header, username)


def _auth(
    kind: Literal["bearer", "header", "basic"],
    token: Secret | SecretRef,
    header: str | None,
    username: str | None,
) -> Auth:
    match kind:
        case "bearer":
            return BearerAuth(type="bearer", token=token)
        case "header":
            assert header is not None
            return HeaderAuth(type="header", header=header, token=token)
        case "basic":
            assert username is not None
            return BasicAuth(type="basic", username=username, password=token)


def _token(
    service: ServiceSpec, wanted: ScalarNode, lookup: Lookup, diagnostics: list[Diagnostic]
) -> Secret | None:
    """Return a variable of the service's environment; report one that can't be sent."""
    name = wanted.shown
    known = {variable.name: variable for variable in variables(service.environment, lookup)}
    variable = known.get(wanted.text)
    notes = [Note(wanted.span, "it is asked for here")]

    if variable is None:
        message = f"the environment of {service.name.text} has no {name}"
        hint = did_you_mean(wanted.text, known)
        diagnostic = codes.TOKEN_MISSING.at(service.name.span, message, hint=hint, notes=notes)
        diagnostics.append(diagnostic)
        return None

    problems = variable.value.problems
    if problems:
        diagnostics.extend(problem_at(variable.node, problem) for problem in problems)
        return None

    token = variable.value.text
    if not token:
        message = f"{name} of {service.name.text} is empty"
        diagnostics.append(codes.TOKEN_MISSING.at(variable.key, message, notes=notes))
        return None

    # A line break in a token would end the header, and begin another one.
    if not HEADER_VALUE.fullmatch(token):
        message = f"{name} can't be sent in a header"
        diagnostics.append(codes.BAD_TOKEN.at(variable.key, message, notes=notes))
        return None

    return Secret(token)


def secret_of(auth: Auth) -> Secret | SecretRef | None:
    match auth:
        case NoAuth():
            return None
        case BearerAuth(token=secret) | HeaderAuth(token=secret) | BasicAuth(password=secret):
            return secret
    assert_never(auth)
