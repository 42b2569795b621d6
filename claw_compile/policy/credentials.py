"""The credential that a tool call carries (docs/spec/compile.md "Auth").

Rules. The provider's ``x-claw.auth`` wins over its descriptor's ``auth``; ``env`` is read from the
*provider's* environment, and a descriptor's may also be the name of one of the pod's secrets. No
value is ever printed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, assert_never

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, did_you_mean, quote
from claw_compile.grammar.pod import PodSpec, ProviderAuth, ServiceSpec
from claw_compile.grammar.reader import problem_at
from claw_compile.identity import host_secret
from claw_compile.parsing.environment import Lookup, variables
from claw_compile.parsing.node import ScalarNode, span_at
from claw_compile.policy.agent import Agent
from claw_contract.descriptor import DescriptorAuth
from claw_contract.manifest import Auth, BasicAuth, BearerAuth, HeaderAuth, NoAuth
from claw_contract.secret import Secret, SecretRef

HEADER_VALUE = re.compile(r"[!-~]+( [!-~]+)*")


@dataclass(frozen=True)
class PrincipalAuth:
    """An agent's own credential at a service; ``principal`` is its name there."""

    auth: BearerAuth
    principal: str


type Principals = Mapping[str, Mapping[str, PrincipalAuth]]  # Agent → service → credential


def resolve_principals(
    pod: PodSpec, agents: Iterable[Agent], lookup: Lookup, diagnostics: list[Diagnostic]
) -> Principals:
    """Return every agent's ``service-auth``, and its token at each tools host,
    which is a secret of the compiler's.

    A variable is read from the environment of the service, never from the agent's.
    """
    own: dict[str, dict[str, PrincipalAuth]] = {}
    for agent in agents:
        for entry in agent.spec.principals:
            service = pod.service(entry.service.text)
            token: Secret | SecretRef | None = None
            if service is None:
                hint = did_you_mean(entry.service.text, [each.name.text for each in pod.services])
                message = f"no service {quote(entry.service.shown)}"
                diagnostics.append(codes.UNKNOWN_SERVICE.at(entry.service.span, message, hint=hint))
            elif service.tools_host is not None:
                continue  # reported elsewhere
            elif entry.source == "secret":
                token = SecretRef(secret=entry.reference.text)
            else:
                token = _token(service, entry.reference, lookup, diagnostics)
            if token is not None:
                auth = PrincipalAuth(BearerAuth(type="bearer", token=token), entry.principal)
                own.setdefault(agent.id, {})[entry.service.text] = auth
        for name in agent.tool_services:
            service = pod.service(name)
            if service is not None and service.tools_host is not None:
                token = SecretRef(secret=host_secret(name, agent.id))
                own.setdefault(agent.id, {})[name] = PrincipalAuth(
                    BearerAuth(type="bearer", token=token), agent.id
                )
    return own


def project_auth(
    pod: PodSpec,
    service: ServiceSpec,
    described: ServiceDescriptor | None,
    lookup: Lookup,
    diagnostics: list[Diagnostic],
) -> Auth | None:
    """Return the ``auth`` of the service's tools; None, and a diagnostic, when its
    credential is missing.
    """
    if service.auth is not None:
        return _pod_auth(service, service.auth, lookup, diagnostics)
    auth = described.descriptor.auth if described is not None else None
    if described is None or auth is None or auth.type == "none":
        return NoAuth(type="none")
    at = span_at(described.root, ("auth",))
    lacks = _missing_part(auth)
    if auth.env is None or lacks is not None:
        help_text = f"or set 'x-claw.auth' of {service.name.text}"
        diagnostics.append(
            codes.TOKEN_MISSING.at(
                at, f"the descriptor's 'auth' lacks {lacks}", help_text=help_text
            )
        )
        return None
    token: Secret | SecretRef | None
    names = {variable.name for variable in variables(service.environment, lookup)}
    if auth.env in names or auth.env not in {secret.name.text for secret in pod.secrets}:
        wanted = ScalarNode(auth.env, span_at(described.root, ("auth", "env")))
        token = _token(service, wanted, lookup, diagnostics)
    else:
        token = SecretRef(secret=auth.env)
    return None if token is None else _auth(auth.type, token, auth.header, auth.username)


def _missing_part(auth: DescriptorAuth) -> str | None:
    if auth.env is None:
        return "'env', the variable that holds the token"
    if auth.type == "header" and auth.header is None:
        return "'header'"
    return "'username'" if auth.type == "basic" and auth.username is None else None


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
    header, username = (node.text if node else None for node in (auth.header, auth.username))
    return None if token is None else _auth(auth.type, token, header, username)


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
    name = wanted.shown
    known = {variable.name: variable for variable in variables(service.environment, lookup)}
    variable = known.get(wanted.text)
    notes = [Note(wanted.span, "it is asked for here")]
    if variable is None:
        message = f"the environment of {service.name.text} has no {name}"
        hint = did_you_mean(wanted.text, known)
        diagnostics.append(
            codes.TOKEN_MISSING.at(service.name.span, message, hint=hint, notes=notes)
        )
        return None
    if variable.value.problems:
        diagnostics.extend(
            problem_at(variable.node, problem) for problem in variable.value.problems
        )
        return None
    if not variable.value.text:
        message = f"{name} of {service.name.text} is empty"
        diagnostics.append(codes.TOKEN_MISSING.at(variable.key, message, notes=notes))
        return None
    if not HEADER_VALUE.fullmatch(variable.value.text):
        diagnostics.append(
            codes.BAD_TOKEN.at(variable.key, f"{name} can't be sent in a header", notes=notes)
        )
        return None
    return Secret(variable.value.text)


def secret_of(auth: Auth) -> Secret | SecretRef | None:
    match auth:
        case NoAuth():
            return None
        case BearerAuth(token=secret) | HeaderAuth(token=secret) | BasicAuth(password=secret):
            return secret
    assert_never(auth)
