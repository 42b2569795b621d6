"""Credential leaks: no agent holds what would take it past its proxy
(docs/spec/compile.md "Credential starvation").

    its own token                           may stand anywhere
    a secret of the proxy or of a service   nowhere, in whatever it is part of
    a variable of a provider's key          not in any value, nor by reference; empty is fine
    the shape of a provider's key           nowhere

One diagnostic for each place, by the first of these that applies. No value is printed, and no line
that holds one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Code, Diagnostic
from claw_compile.identity import agent_token, host_token
from claw_compile.loading.leak_inputs import LeakInput
from claw_compile.loading.load import LoadedPod
from claw_compile.policy.agent import Agent, ResolvedPod
from claw_compile.policy.connect import Connections
from claw_compile.policy.credentials import project_auth, secret_of
from claw_contract.known_providers import KEY_SHAPE, is_key_variable, provider_of
from claw_contract.manifest import Auth
from claw_contract.redaction.redactor import MIN_REDACTED
from claw_contract.secret import Secret

_ASSIGNMENT = re.compile(
    r"""^(?![ \t]*#).*?\b(?P<name>[A-Z][A-Z0-9_]+)["']?[ \t]*[=:][ \t]*["']?[^\s"']""", re.MULTILINE
)
"""A variable with a value, in any language."""
_CONFIDENTIAL = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|MASTER)(_|$)")
_MIN_IN_TEXT = 12  # A shorter secret may be a word, and counts in variables only
_MIN_IN_PROSE = 24
_MAX_TEXTS = 4096


@dataclass(frozen=True)
class _HeldSecret:
    """A secret, and what it is in words. ``owner``: the agent that may have it."""

    what: str
    value: str
    owner: str | None = None


@dataclass(frozen=True)
class _CredentialLeak:
    code: Code
    why: str
    start: int = 0
    end: int = 0


def find_credential_leaks(
    loaded: LoadedPod, resolved: ResolvedPod, connections: Connections
) -> Iterator[Diagnostic]:
    """Yield every place where an agent is given what it must not hold."""
    secrets = _secrets(loaded, resolved, connections)
    for agent in loaded.pod.agents:
        inputs = loaded.leak_inputs.get(agent.name.text, ())
        whole = "\0".join(each.text for each in inputs)
        own = tuple(each.value for each in secrets if each.owner == agent.name.text)
        # Most secrets are nowhere in what an agent has: each is looked for once.
        candidates = [
            each for each in secrets if each.value in whole and each.owner != agent.name.text
        ]
        for each in inputs:
            for finding in _first_of_each_line(each, _findings(each, candidates, own)):
                message = f"{each.what} of {agent.name.text} {finding.why}"
                yield finding.code.at(
                    each.place(finding.start, finding.end), message, notes=each.notes
                )


def _first_of_each_line(
    item: LeakInput, findings: Iterable[_CredentialLeak]
) -> Iterator[_CredentialLeak]:
    lines: set[int] = set()
    for finding in findings:
        line = item.place(finding.start, finding.end).line
        if line not in lines:
            lines.add(line)
            yield finding


def _findings(
    item: LeakInput, candidates: Iterable[_HeldSecret], own: Iterable[str]
) -> Iterator[_CredentialLeak]:
    text = item.text
    for token in own:
        # Of the same length, so that places stay.
        text = text.replace(token, " " * len(token))
    for secret in candidates:
        for match in (
            re.finditer(re.escape(secret.value), text)
            if _is_long_enough(item, secret.value)
            else ()
        ):
            yield _CredentialLeak(
                codes.TOKEN_VISIBLE_TO_AGENT, f"holds {secret.what}", *match.span()
            )
    yield from _by_name(item, text)
    for match in _key_shapes(text):
        if item.kind == "prose" and len(match[0]) < _MIN_IN_PROSE:
            continue  # "keys begin with sk-ant-" is no key
        yield _CredentialLeak(
            codes.PROVIDER_KEY_VALUE,
            "holds what looks like a provider's key",
            match.start(),
            match.end(),
        )


def _is_long_enough(item: LeakInput, value: str) -> bool:
    if item.kind == "variable" and len(value) < MIN_REDACTED:
        return item.text == value
    return len(value) >= (MIN_REDACTED if item.kind == "variable" else _MIN_IN_TEXT)


def _by_name(item: LeakInput, text: str) -> Iterator[_CredentialLeak]:
    code = codes.PROVIDER_KEY_VARIABLE
    is_own = not text.strip() and bool(item.text.strip())
    if (
        item.kind == "variable"
        and is_key_variable(item.name)
        and not is_own
        and (text or item.refers)
    ):
        yield _CredentialLeak(code, "is a variable of a provider's key")
    elif not is_own and (key := next(filter(is_key_variable, item.refers), None)) is not None:
        yield _CredentialLeak(code, f"is made of {key}, a variable of a provider's key")
    if item.kind == "file":
        for match in _key_assignments(text):
            why = f"sets {match['name']}, a variable of a provider's key"
            yield _CredentialLeak(code, why, match.start("name"), match.end("name"))


# Many agents may have the same large folder: each text is searched once for all of them.
@lru_cache(maxsize=_MAX_TEXTS)
def _key_shapes(text: str) -> tuple[re.Match[str], ...]:
    return tuple(KEY_SHAPE.finditer(text))


@lru_cache(maxsize=_MAX_TEXTS)
def _key_assignments(text: str) -> tuple[re.Match[str], ...]:
    return tuple(match for match in _ASSIGNMENT.finditer(text) if is_key_variable(match["name"]))


def _secrets(
    loaded: LoadedPod, resolved: ResolvedPod, connections: Connections
) -> tuple[_HeldSecret, ...]:
    """Return the secrets of the proxy and the services, each value once, by the
    first word for it.
    """
    secret = [
        _HeldSecret(f"the token of {name}", value)
        for name, value in _tokens(_services(loaded, connections), loaded.secrets)
    ]
    secret += [
        _HeldSecret(f"the pod's secret {name}", value)
        for name, value in sorted(loaded.secrets.items())
    ]
    for name, setting in resolved.proxy_env.items():
        if provider_of(name) is not None or _CONFIDENTIAL.search(name):
            secret.append(_HeldSecret(f"the proxy's {name}", setting.value))
    if loaded.master is not None:
        secret.append(_HeldSecret("the pod's master secret", loaded.master.reveal()))
        epochs = loaded.lock.content.epochs if loaded.lock else {}
        for agent in resolved.agents:
            token = agent_token(loaded.master, agent.id, epochs.get(agent.id, 0)).reveal()
            # What a counted service is given, all of its agents have.
            owner = agent.spec.name.text if agent.spec.count == 1 else None
            secret.append(_HeldSecret(f"the token of the agent {agent.id}", token, owner))
            for service in _hosts(loaded, agent):
                token = host_token(
                    loaded.master, service, agent.id, epochs.get(agent.id, 0)
                ).reveal()
                secret.append(_HeldSecret(f"the token of {agent.id} at {service}", token))
    return tuple({each.value: each for each in reversed(secret) if each.value}.values())[::-1]


def _hosts(loaded: LoadedPod, agent: Agent) -> Iterator[str]:
    for name in agent.tool_services:
        service = loaded.pod.service(name)
        if service is not None and service.tools_host is not None:
            yield name


def _services(loaded: LoadedPod, connections: Connections) -> Iterator[tuple[str, Auth]]:
    """Yield all services, also those that nobody has a grant of: their tokens are
    no agent's either.
    """
    for service in sorted(loaded.pod.services, key=lambda service: service.name.text):
        name = service.name.text
        provider = connections.providers.get(name)
        service_descriptor, lookup = loaded.descriptors.get(name), loaded.variables.lookup
        # What is wrong with a credential that nobody asks for is nobody's matter.
        auth = (
            provider.auth
            if provider
            else project_auth(loaded.pod, service, service_descriptor, lookup, [])
        )
        if auth is not None:
            yield name, auth
    for agent, own in sorted(connections.principals.items()):
        for name, principal in sorted(own.items()):
            yield f"{agent} at {name}", principal.auth


def _tokens(
    auths: Iterable[tuple[str, Auth]], secrets: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    for name, auth in auths:
        secret = secret_of(auth)
        if secret is not None:
            yield (
                name,
                secret.reveal() if isinstance(secret, Secret) else secrets.get(secret.secret, ""),
            )
