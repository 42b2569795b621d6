"""Requests that are not mediated: where they go, with which key, and what is told of them afterwards.

The host (``mitm``) sends the bytes; here is decided to whom, and here they are recorded. A request that asks a model is a line
of history like a mediated turn; others are events of the log.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

from claw_contract.base import JsonObject
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.authenticate import Admitted
from claw_mediate.core.error_bodies import build_error_body
from claw_mediate.core.http import Forward, Request, RunnerResponse, refuse, respond
from claw_mediate.core.model_policy import Candidate, PoolKey, Provider
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.model_only import NO_DIALECT
from claw_mediate.http.headers import holding, provider_auth
from claw_mediate.providers.registry import THROTTLED, Registry, out_of_quota
from claw_mediate.providers.routing import NO_KEY, Asker, Routing, new_turn_id, with_model
from claw_mediate.turns.recorder import Ending, Passed, Recorder


@dataclass(frozen=True, slots=True)
class PassthroughHandle:
    """What is known of a forwarded request; the host hands it back."""

    passed: Passed
    provider: Provider
    key: PoolKey | None
    started: float
    spoken: bool
    """Whether it is a request of a dialect. What other paths answer is no word on a key: some refuse every ordinary one."""


class Passthrough:
    """The requests that go on as they are."""

    def __init__(self, registry: Registry, routing: Routing, recorder: Recorder) -> None:
        self._registry = registry
        self._routing = routing
        self._recorder = recorder

    def forward(
        self,
        admitted: Admitted,
        request: Request,
        view: RunnerRequest | None,
        *,
        counts: bool = False,
        aside: bool = False,
    ) -> RunnerResponse | Forward:
        """The bytes of the view (the runner's own, unless it was edited), with the credential swapped and the model's
        prefix off. ``counts``: its answer is no turn, and no line of history; ``aside``: nor anything to remember.
        """
        asker = Asker(admitted.agent, new_turn_id())
        candidates = self._routing.candidates(asker, request, view)
        if isinstance(candidates, RunnerResponse):
            return candidates
        candidate = self._routing.ready(asker, candidates)
        if candidate is None:
            return self._no_key(request, candidates)
        provider, model = candidate.provider, candidate.model
        key = self._registry.ready(provider)[0]
        if view is not None:
            view = replace(view, body=self._routing.naming(admitted.agent, view, model))
        redactor = Redactor([*self._registry.secrets(), *admitted.agent.secrets, admitted.token, admitted.secret])
        spoken = view is not None and view.bypass != NO_DIALECT
        asked, recorded = _recorded(request, None if counts else view, model)
        passed = Passed(asker.turn_id, admitted.agent, asked, recorded, provider.name, model, redactor, aside)
        self._recorder.forwarded(passed)
        base_url, target = (
            (provider.base_url, provider.strip_base_path(request.path)) if spoken else _aside(provider, request)
        )
        return Forward(
            base_url=base_url,
            target=target,
            credential=provider_auth(provider, key.secret if key else None),
            write_refusal=partial(_unreached, request.path, provider.name),
            body=None if view is None or view.body is request.body else view.body,
            dropped_headers=holding(request.headers, admitted.secret),
            handle=PassthroughHandle(passed, provider, key, time.monotonic(), spoken),
        )

    def answered(self, ticket: PassthroughHandle, status: int, retry_after: str) -> None:
        """The provider's status is there: a key that was refused or throttled is not used for the next request."""
        if ticket.key is not None and (ticket.spoken or status == THROTTLED):
            self._registry.spend(ticket.provider, ticket.key, status, retry_after)

    def over(self, ticket: PassthroughHandle, status: int, usage: JsonObject, body: bytes, *, whole: bool) -> None:
        """The response went through (``whole``), or broke off; ``body`` is the beginning of it."""
        if ticket.key is not None and out_of_quota(status, body):
            self._registry.spend(ticket.provider, ticket.key, status, "", body)
        latency_ms = round((time.monotonic() - ticket.started) * 1000)
        ending = Ending(whole and status < 400, status, latency_ms)  # noqa: PLR2004 - HTTP's errors begin there
        self._recorder.passed(ticket.passed, ending, usage, body)

    def _no_key(self, request: Request, candidates: Sequence[Candidate]) -> RunnerResponse:
        """Keys that rest will be back; dead ones will not."""
        seconds = min(self._registry.wait(candidate.provider) for candidate in candidates)
        message = f"no key of the provider {candidates[0].provider.name!r} is usable now"
        if seconds == math.inf:
            return refuse(request.path, 502, NO_KEY, message)
        body = build_error_body(request.path, 503, NO_KEY, message)
        return respond(503, body, retry_after=str(math.ceil(seconds)))


def _recorded(request: Request, view: RunnerRequest | None, model: str) -> tuple[Request, RunnerRequest | None]:
    """Return what is recorded of a request and its view: of a form its fields, in place of its files."""
    if view is None or view.history_body is None:
        return request, view
    body = view.history_body if model == view.model else with_model(view.history_body, model)
    return replace(request, body=view.history_body), replace(view, body=body)


def _unreached(path: str, provider: str) -> bytes:
    return build_error_body(path, 502, "provider_unreachable", f"the provider {provider!r} gave no response")


def _aside(provider: Provider, request: Request) -> tuple[str, str]:
    """(base URL, path below it) of what is no request of a dialect. Claude Code asks its host for ``/api/…`` too: who names
    a host, or such a path, means it from the root, wherever the API begins there.
    """
    below = provider.strip_base_path(request.path)
    from_the_root = request.host is not None or request.path.startswith("/api/")
    if below == request.path and from_the_root:
        return urlsplit(provider.base_url)._replace(path="").geturl(), request.path
    return provider.base_url, below
