"""Credential leaks: no agent holds anything with which it could bypass its proxy.

What an agent may hold (docs/spec/compile.md, "Credential starvation"):

    its own token                               anywhere
    a secret of the proxy or of a service       nowhere, not even as part of a longer text
    a variable that holds a provider's key      in no value, nor by reference; empty is fine
    a text with the shape of a provider's key   nowhere

Each place gets one diagnostic, by the first rule of these that applies. No value is printed, and no
line that has one.
"""

import re
from collections.abc import Iterable, Iterator
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
# The shortest secret that is looked for in a text: a shorter one may be an ordinary word. In a
# variable, a short one counts if it is the whole value.
_MIN_IN_TEXT = 12
# The shortest text that counts as a key in a page for people.
_MIN_IN_PROSE = 24
_MAX_TEXTS = 4096


@dataclass(frozen=True)
class _HeldSecret:
    """A secret, and the words for it. ``owner`` is the agent that may have it, if any."""

    what: str
    value: str
    owner: str | None = None


@dataclass(frozen=True)
class _CredentialLeak:
    """A leak in ``text[start:end]`` of an input."""

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
        name = agent.name.text
        inputs = loaded.leak_inputs.get(name, ())
        own = tuple(secret.value for secret in secrets if secret.owner == name)

        # Most secrets occur in nothing that an agent has, so one search in all of it comes first.
        whole = "\0".join(each.text for each in inputs)
        candidates = [
            secret for secret in secrets if secret.owner != name and secret.value in whole
        ]

        for each in inputs:
            for leak in _first_of_each_line(each, _leaks(each, candidates, own)):
                message = f"{each.what} of {name} {leak.why}"
                at = each.place(leak.start, leak.end)
                yield leak.code.at(at, message, notes=each.notes)


def _first_of_each_line(
    item: LeakInput, leaks: Iterable[_CredentialLeak]
) -> Iterator[_CredentialLeak]:
    lines: set[int] = set()
    for leak in leaks:
        line = item.place(leak.start, leak.end).line
        if line not in lines:
            lines.add(line)
            yield leak


def _leaks(
    item: LeakInput, candidates: Iterable[_HeldSecret], own: Iterable[str]
) -> Iterator[_CredentialLeak]:
    """Yield the leaks of one input, in the order of the rules."""
    text = item.text
    for token in own:
        # The agent's own token is no leak. Blanks of the same length keep the places of the rest.
        text = text.replace(token, " " * len(token))

    for secret in candidates:
        if not _is_long_enough(item, secret.value):
            continue
        for match in re.finditer(re.escape(secret.value), text):
            why = f"holds {secret.what}"
            yield _CredentialLeak(codes.TOKEN_VISIBLE_TO_AGENT, why, *match.span())

    yield from _named_keys(item, text)

    for match in _key_shapes(text):
        # "Keys begin with sk-ant-" in a page is no key.
        if item.kind == "prose" and len(match[0]) < _MIN_IN_PROSE:
            continue
        why = "holds what looks like a provider's key"
        yield _CredentialLeak(codes.PROVIDER_KEY_VALUE, why, *match.span())


def _is_long_enough(item: LeakInput, value: str) -> bool:
    """Return whether an occurrence of the secret in the input can be no coincidence."""
    if item.kind != "variable":
        return len(value) >= _MIN_IN_TEXT
    return len(value) >= MIN_REDACTED or item.text == value


def _named_keys(item: LeakInput, text: str) -> Iterator[_CredentialLeak]:
    """Yield variables of providers' keys: the input itself, what it refers to, what a file sets.

    ``text`` is the input without the agent's own token.
    """
    code = codes.PROVIDER_KEY_VARIABLE

    # ``OPENAI_API_KEY`` with the agent's own token is how a runner reaches its proxy, and no leak.
    had_text = bool(item.text.strip())
    is_only_own_token = had_text and not text.strip()
    if not is_only_own_token:
        has_value = bool(text or item.refers)
        key = next(filter(is_key_variable, item.refers), None)
        if item.kind == "variable" and is_key_variable(item.name) and has_value:
            yield _CredentialLeak(code, "is a variable of a provider's key")
        elif key is not None:
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
    """Return the secrets of the proxy and the services, each value once."""
    secrets = list(_service_secrets(loaded, connections))
    for name, value in sorted(loaded.secrets.items()):
        secrets.append(_HeldSecret(f"the pod's secret {name}", value))

    for name, variable in resolved.proxy_env.items():
        if provider_of(name) is not None or _CONFIDENTIAL.search(name):
            secrets.append(_HeldSecret(f"the proxy's {name}", variable.value))

    secrets += _derived_secrets(loaded, resolved)

    # Of equal values the first one stays: going backwards, it is set last.
    distinct: dict[str, _HeldSecret] = {}
    for secret in reversed(secrets):
        if secret.value:
            distinct[secret.value] = secret
    return tuple(reversed(distinct.values()))


def _derived_secrets(loaded: LoadedPod, resolved: ResolvedPod) -> Iterator[_HeldSecret]:
    """Yield the master secret, and the tokens that are derived from it (decision 0007)."""
    master = loaded.master
    if master is None:
        return

    yield _HeldSecret("the pod's master secret", master.reveal())
    epochs = loaded.lock.content.epochs if loaded.lock else {}
    for agent in resolved.agents:
        epoch = epochs.get(agent.id, 0)

        # The agents of a counted service are given the same things, so these may hold the token of
        # none of them.
        owner = agent.spec.name.text if agent.spec.count == 1 else None
        token = agent_token(master, agent.id, epoch).reveal()
        yield _HeldSecret(f"the token of the agent {agent.id}", token, owner)

        for service in _tools_hosts(loaded, agent):
            token = host_token(master, service, agent.id, epoch).reveal()
            yield _HeldSecret(f"the token of {agent.id} at {service}", token)


def _tools_hosts(loaded: LoadedPod, agent: Agent) -> Iterator[str]:
    for name in agent.tool_services:
        service = loaded.pod.service(name)
        if service is not None and service.tools_host is not None:
            yield name


def _service_secrets(loaded: LoadedPod, connections: Connections) -> Iterator[_HeldSecret]:
    for name, auth in _credentials(loaded, connections):
        secret = secret_of(auth)
        if isinstance(secret, Secret):
            yield _HeldSecret(f"the token of {name}", secret.reveal())
        elif secret is not None:
            value = loaded.secrets.get(secret.secret, "")
            yield _HeldSecret(f"the token of {name}", value)


def _credentials(loaded: LoadedPod, connections: Connections) -> Iterator[tuple[str, Auth]]:
    """Yield the credential of every service, and of every agent at a service, with words for it.

    A service that nobody has a grant for is among them: no agent may have its token either.
    """
    for service in sorted(loaded.pod.services, key=lambda service: service.name.text):
        name = service.name.text
        called = connections.services.get(name)
        auth: Auth | None
        if called is not None:
            auth = called.auth
        else:
            # No agent needs this credential, so a mistake in it is not reported.
            service_descriptor = loaded.descriptors.get(name)
            auth = project_auth(
                loaded.pod, service, service_descriptor, loaded.variables.lookup, []
            )
        if auth is not None:
            yield name, auth

    for agent, own in sorted(connections.principals.items()):
        for name, principal in sorted(own.items()):
            yield f"{agent} at {name}", principal.auth
