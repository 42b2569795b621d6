"""Where a request goes: the provider that its host or its model's prefix names, or what the agent's model policy allows.

Requests of every path are clamped that name a model: of a dialect, and of none (``other_paths``).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from claw_contract.providers import ApiFormat
from claw_mediate.agents.directory import Agent
from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import is_anthropic
from claw_mediate.core.http import Request, RunnerResponse, refuse
from claw_mediate.core.model_policy import Candidate, ModelChoice, ProviderScope, choose_models
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.model_only import NO_DIALECT
from claw_mediate.http.headers import Headers
from claw_mediate.providers.registry import Registry
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.timing import Stopwatch


class Asker(NamedTuple):
    """Whose request it is, for the log."""

    agent: Agent
    turn_id: str


def new_turn_id() -> str:
    """Beginning with the time, so that what is kept of turns of one time is kept together; nobody can guess the rest."""
    return f"turn_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


NO_KEY = "no_provider_key"
KEY_UNAVAILABLE = "provider_key_unavailable"
"""The same as a failover's reason."""


@dataclass(slots=True)
class Route:
    """Where the model calls of one turn go. ``path``: the runner's, with its query; ``headers``: without a credential."""

    asker: Asker
    path: str
    headers: Headers
    candidates: Sequence[Candidate]
    at: int = 0
    """The candidate that was asked last."""
    answered: bool = False
    """Whether it has answered: then it stays."""
    stopwatch: Stopwatch = field(default_factory=Stopwatch, repr=False)
    _named: tuple[bytes, dict[str, bytes]] = field(default=(b"", {}), repr=False)

    @property
    def candidate(self) -> Candidate:
        return self.candidates[self.at]

    @property
    def standing(self) -> Sequence[int]:
        """The candidates to begin with."""
        return (self.at,) if self.answered else range(len(self.candidates))

    @property
    def others(self) -> Sequence[int]:
        """Those to turn to when the one that had answered does so no more."""
        return [place for place in range(len(self.candidates)) if place != self.at] if self.answered else ()

    def body(self, body: bytes) -> bytes:
        """The same request for the candidate of now; ``body`` names the first one's model. Found once for each model."""
        model = self.candidate.model
        if model == self.candidates[0].model:
            return body
        if self._named[0] is not body:
            self._named = (body, {})
        named = self._named[1]
        if model not in named:
            named[model] = with_model(body, model)
        return named[model]


class Routing:
    """The candidates for a request."""

    def __init__(self, registry: Registry, log: EventLog) -> None:
        self._registry = registry
        self._log = log
        self._told: set[tuple[str, str, str, str]] = set()

    def candidates(
        self, asker: Asker, request: Request, view: RunnerRequest | None
    ) -> Sequence[Candidate] | RunnerResponse:
        """At least one, best first; or the refusal."""
        api_format: ApiFormat = "anthropic" if is_anthropic(request.path) else "openai"
        model = view.model if view is not None else ""
        if request.host is None:
            named = self._registry.by_model(model, api_format)
        elif (only := self._registry.by_host(request.host)) is not None:
            named = Candidate(only, model)
        else:
            return refuse(request.path, 502, "no_provider", "no provider is configured for this host")
        policy = asker.agent.metadata.model_policy
        if request.host is not None or policy is None or not policy.allowed or view is None:
            if not named.provider.is_usable:
                message = f"the provider {named.provider.name!r} has no key"
                return refuse(request.path, 502, NO_KEY, message)
            if policy is None or not policy.allowed or view is None:
                return (named,)
        reach = ProviderScope(self._registry.all(), api_format, named.provider if request.host is not None else None)
        choice = choose_models(policy, model, reach)
        self._tell(asker, model, choice)
        return choice.candidates or _nothing_allowed(request)

    def ready(self, asker: Asker, candidates: Sequence[Candidate]) -> Candidate | None:
        """For a request that is sent once: the first that has a key now."""
        found = next((each for each in candidates if self._registry.ready(each.provider)), None)
        if found is not None and found is not candidates[0]:
            log_failover(self._log, asker, (candidates[0], found), KEY_UNAVAILABLE)
        return found

    def naming(self, agent: Agent, view: RunnerRequest, model: str) -> bytes:
        """The request for that model, and under a policy for no other: named twice, it would be the provider's to choose.

        Raises ``JsonSpliceError``.
        """
        if model == view.model:
            if (
                agent.metadata.model_policy is not None and view.bypass != NO_DIALECT
            ):  # which was looked at when it was read
                json_splice.find_members(view.body, ["model"])
            return view.body
        if view.model_span is not None:
            return json_splice.splice(view.body, [(*view.model_span, model.encode())])
        return with_model(view.body, model)

    def _tell(self, asker: Asker, model: str, choice: ModelChoice) -> None:
        agent = asker.agent
        for ref, reason in choice.unusable_refs.items():
            told = (agent.id, agent.digest, ref, reason)
            if told not in self._told:  # it is so in every request
                self._told.add(told)
                name = f"model_ref_unreachable:{ref}"
                self._log.event("intervention", agent, intervention=name, ref=ref, reason=reason)
        if choice.intervention is not None and choice.candidates:
            effective = choice.candidates[0]
            self._log.event(
                "intervention",
                agent,
                turn_id=asker.turn_id,
                model=model,
                intervention=choice.intervention,
                effective_provider=effective.provider.name,
                effective_model=effective.model,
            )


def with_model(body: bytes, model: str) -> bytes:
    """The request for that model; every other byte as it was. Raises ``JsonSpliceError``."""
    return json_splice.edit(body, {"model": json.dumps(model).encode()})


def log_failover(log: EventLog, asker: Asker, move: tuple[Candidate, Candidate], reason: str) -> None:
    """From one candidate to the next."""
    left, to = move
    log.event(
        "failover",
        asker.agent,
        turn_id=asker.turn_id,
        model=to.model,
        from_provider=left.provider.name,
        from_model=left.model,
        to_provider=to.provider.name,
        to_model=to.model,
        reason=reason,
    )


def _nothing_allowed(request: Request) -> RunnerResponse:
    if request.host is not None:
        return refuse(request.path, 403, "model_not_allowed", "the model policy allows no model of this provider")
    return refuse(request.path, 502, "no_provider", "no model that the model policy allows can be asked here")
