"""The secrets that nobody may see: those of the whole pod, and those of one agent's requests."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from claw_contract.redaction.redactor import LongTextError, Redactor
from claw_contract.secret import Secret
from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import AgentDirectory
from claw_mediate.core.model_policy import Provider
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.providers.registry import ProviderRegistry
from claw_mediate.telemetry.event_log import EventLog

_MAX_INLINE_BYTES = 256 << 10
"""Bytes of a body that are redacted in the event loop; a longer body is redacted in a thread."""
_MAX_REDACTED_TEXT = 1 << 20
"""Bytes of a text that is decoded to redact it, in a body of more than 4 MiB."""
_LONG_TEXT = "a text of more than 1 MiB holds the agent's own token: take the token out of it"


class _RequestRedactor(NamedTuple):
    """The redactor of an agent's latest request, with what it was made of."""

    providers: Mapping[str, Provider]
    admitted: Identity
    redactor: Redactor

    def is_of(self, admitted: Identity, providers: Mapping[str, Provider]) -> bool:
        """Return whether it was made of the same providers, files and token."""
        own = self.admitted
        return (
            self.providers is providers
            and own.agent is admitted.agent
            and own.token == admitted.token
            and own.secret == admitted.secret
        )


class Redactors:
    """The redactors of one pod and of its agents' requests."""

    def __init__(self, registry: ProviderRegistry, agents: AgentDirectory, log: EventLog) -> None:
        self._registry = registry
        self._agents = agents
        self._log = log
        self._secrets: set[Secret] = set()
        self._of_pod = Redactor(())
        self._of_requests: dict[str, _RequestRedactor] = {}
        """Those of each agent's latest request."""

    def of_pod(self) -> Redactor:
        """Return the redactor of all secrets of the pod: its providers' and all of its agents'."""
        # No secret is forgotten when its file is gone or can't be read: it may still be valid.
        secrets = set(self._registry.secrets())
        for agent in self._agents.readable():
            secrets.update(agent.secrets)
        if not secrets <= self._secrets:
            self._secrets |= secrets
            self._of_pod = Redactor(self._secrets)
        return self._of_pod

    def of_request(self, admitted: Identity) -> Redactor:
        """Return the redactor of a request, which knows all of its secrets.

        No service, prompt, runner, history or log may see one of them. The redactor is made again
        when the providers, the agent's files or its token have changed.
        """
        agent, providers = admitted.agent, self._registry.all()
        latest = self._of_requests.get(agent.id)
        if latest is None or not latest.is_of(admitted, providers):
            latest = _RequestRedactor(providers, admitted, Redactor(self.secrets(admitted)))
            self._of_requests[agent.id] = latest
        return latest.redactor

    def secrets(self, admitted: Identity) -> list[Secret]:
        """Return the secrets of a request: its providers' and its agent's.

        The log redacts them from now on.
        """
        secrets = [
            *self._registry.secrets(),
            *admitted.agent.secrets,
            admitted.token,
            admitted.secret,
        ]
        self._log.protect(secrets)
        return secrets


async def without_own_token(admitted: Identity, body: bytes) -> bytes:
    """Return the body without the agent's own token.

    The runner's tools may have printed it, for example by ``env``.
    """
    own = Redactor([admitted.secret])
    if len(body) < _MAX_INLINE_BYTES:
        return own.document(body)

    # A body may hide something in each of a million places: other requests go on meanwhile.
    try:
        return await asyncio.to_thread(own.document, body, _MAX_REDACTED_TEXT)
    except LongTextError as error:
        raise UnreadableRequestError(_LONG_TEXT) from error
