"""Requests that are not mediated: where they go, with which key, and what is told of them afterwards.

The host (``mitm``) sends the bytes; here is decided to whom, and here they are recorded. A chat completion that is forwarded
is a line of history like a mediated turn; other paths are events of the log.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from urllib.parse import urlsplit

from claw_contract.base import JsonObject
from claw_contract.secret import Redactor
from claw_mediate import wire
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.errors import refusal
from claw_mediate.exchange import Exchange, Forward, Request, refused
from claw_mediate.io.headers import holding, provider_auth
from claw_mediate.io.identity import Admitted
from claw_mediate.io.providers import Key, Provider, Registry, rest_seconds
from claw_mediate.io.record import Ending, Passed, Recorder

_ANTHROPIC_PATHS = ("/messages", "/messages/count_tokens")


@dataclass(frozen=True, slots=True)
class Ticket:
    """What is known of a forwarded request; the host hands it back."""

    passed: Passed
    provider: Provider
    key: Key | None
    started: float


class Forwarding:
    """Routes, and the requests that go to them as they are."""

    def __init__(self, registry: Registry, recorder: Recorder) -> None:
        self._registry = registry
        self._recorder = recorder

    def route(self, request: Request, model: str) -> tuple[Provider, str] | Exchange:
        """The provider and the model's name there: by host where there is one, else by the model's prefix."""
        if request.host is not None:
            provider, name = self._registry.by_host(request.host), model
        else:
            anthropic = request.bare_path.rstrip("/").endswith(_ANTHROPIC_PATHS)
            provider, name = self._registry.by_model(model, "anthropic" if anthropic else "openai")
        if provider is None:
            return refused(request.path, 502, "no_provider", "no provider is configured for this request")
        if not provider.usable:
            return refused(request.path, 502, "no_provider_key", f"the provider {provider.name!r} has no key")
        return provider, name

    def forward(
        self, admitted: Admitted, request: Request, view: RunnerRequest | None, *, counts: bool = False
    ) -> Exchange | Forward:
        """The bytes of the view (the runner's own, unless it was edited), with the credential swapped and the model's
        prefix off. ``counts``: its answer is no turn, and no line of history.
        """
        routed = self.route(request, view.model if view else "")
        if isinstance(routed, Exchange):
            return routed
        provider, model = routed
        keys = self._registry.states.ready(provider, time.monotonic())
        if provider.auth != "none" and not keys:
            message = f"no key of the provider {provider.name!r} is usable now"
            return refused(request.path, 502, "no_provider_key", message)
        body = None
        if view is not None:
            body = view.body if view.body is not request.body else None
            if model != view.model:
                body = wire.edited(view.body, {"model": json.dumps(model).encode()})
        key = keys[0] if keys else None
        redactor = Redactor([*self._registry.secrets(), *admitted.agent.secrets, admitted.token, admitted.secret])
        turn_id = f"turn_{uuid.uuid4().hex}"
        told = None if counts else view
        passed = Passed(turn_id, admitted.agent, request, told, provider.name, model, redactor)
        self._recorder.forwarded(passed)
        return Forward(
            base_url=provider.base_url,
            target=target(provider, request.path),
            credential=provider_auth(provider, key.secret if key else None),
            refusal=refusal(
                request.path, 502, "provider_unreachable", f"the provider {provider.name!r} can't be reached"
            ),
            body=body,
            dropped=holding(request.headers, admitted.secret),
            ticket=Ticket(passed, provider, key, time.monotonic()),
        )

    def answered(self, ticket: Ticket, status: int, retry_after: str) -> None:
        """The provider's status is there: a key that was refused or throttled is not used for the next request."""
        if ticket.key is not None:
            self._registry.spend(ticket.provider, ticket.key, status, rest_seconds(retry_after))

    def over(self, ticket: Ticket, status: int, usage: JsonObject, body: bytes, *, whole: bool) -> None:
        """The response went through (``whole``), or broke off; ``body`` is the beginning of it."""
        latency_ms = round((time.monotonic() - ticket.started) * 1000)
        ending = Ending(whole and status < 400, status, latency_ms)  # noqa: PLR2004 - HTTP's errors begin there
        self._recorder.passed(ticket.passed, ending, usage, body)


def target(provider: Provider, path: str) -> str:
    """Path and query below a provider's base URL, which ends in its own prefix (``/v1``, ``/api/v1``) or has none."""
    own = urlsplit(provider.base_url).path
    for prefix in (own, "/v1") if own else ():
        if path.startswith((f"{prefix}/", f"{prefix}?")):
            return path.removeprefix(prefix)
    return path
