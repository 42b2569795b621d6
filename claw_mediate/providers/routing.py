"""Routing of requests: to the provider that the host or the model's prefix names, or to what the agent's model policy allows.

Every request that names a model is routed here, also on paths of no dialect (``turns/passthrough.py``).
"""

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
from claw_mediate.providers.registry import ProviderRegistry
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.timing import Stopwatch

NO_KEY = "no_provider_key"
KEY_UNAVAILABLE = "provider_key_unavailable"  # ``NO_KEY`` as the reason of a failover


class Requester(NamedTuple):
    """The agent and turn of a request, for the log."""

    agent: Agent
    turn_id: str


def new_turn_id() -> str:
    """Return an unguessable id that begins with the time, so that records of one time are stored together."""
    return f"turn_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


@dataclass(slots=True)
class Route:
    """The candidates of one turn's model calls. ``path``: the runner's, with its query; ``headers``: without a credential."""

    requester: Requester
    path: str
    headers: Headers
    candidates: Sequence[Candidate]
    position: int = 0  # Index of the candidate that was asked last
    has_answered: bool = False  # True once that candidate has answered: then the turn keeps it
    stopwatch: Stopwatch = field(default_factory=Stopwatch, repr=False)
    _bodies: tuple[bytes, dict[str, bytes]] = field(default=(b"", {}), repr=False)

    @property
    def candidate(self) -> Candidate:
        return self.candidates[self.position]

    @property
    def active(self) -> Sequence[int]:
        """Positions of the candidates to try first."""
        return (self.position,) if self.has_answered else range(len(self.candidates))

    @property
    def fallbacks(self) -> Sequence[int]:
        """Positions of the candidates to try when the one that answered earlier fails."""
        if not self.has_answered:
            return ()
        return [position for position in range(len(self.candidates)) if position != self.position]

    def body(self, body: bytes) -> bytes:
        """Return the request with the current candidate's model; ``body`` names the first one's. Cached by model."""
        model = self.candidate.model
        if model == self.candidates[0].model:
            return body
        if self._bodies[0] is not body:
            self._bodies = (body, {})
        by_model = self._bodies[1]
        if model not in by_model:
            by_model[model] = replace_model(body, model)
        return by_model[model]


class Router:
    def __init__(self, registry: ProviderRegistry, log: EventLog) -> None:
        self._registry = registry
        self._log = log
        self._logged: set[tuple[str, str, str, str]] = set()

    def candidates(
        self, requester: Requester, request: Request, view: RunnerRequest | None
    ) -> Sequence[Candidate] | RunnerResponse:
        """Return at least one candidate, best first; or the refusal."""
        api_format: ApiFormat = "anthropic" if is_anthropic(request.path) else "openai"
        model = view.model if view is not None else ""
        if request.host is None:
            named = self._registry.by_model(model, api_format)
        elif (only := self._registry.by_host(request.host)) is not None:
            named = Candidate(only, model)
        else:
            return refuse(request.path, 502, "no_provider", "no provider is configured for this host")
        policy = requester.agent.metadata.model_policy
        if request.host is not None or policy is None or not policy.allowed or view is None:
            if not named.provider.is_usable:
                message = f"the provider {named.provider.name!r} has no key"
                return refuse(request.path, 502, NO_KEY, message)
            if policy is None or not policy.allowed or view is None:
                return (named,)
        reach = ProviderScope(self._registry.all(), api_format, named.provider if request.host is not None else None)
        choice = choose_models(policy, model, reach)
        self._log_choice(requester, model, choice)
        return choice.candidates or _nothing_allowed(request)

    def first_ready(self, requester: Requester, candidates: Sequence[Candidate]) -> Candidate | None:
        """Return the first candidate that has a ready key, for a request that is sent only once."""
        ready = next((each for each in candidates if self._registry.ready(each.provider)), None)
        if ready is not None and ready is not candidates[0]:
            log_failover(self._log, requester, (candidates[0], ready), KEY_UNAVAILABLE)
        return ready

    def body_for_model(self, agent: Agent, view: RunnerRequest, model: str) -> bytes:
        """Return the request with that model. Under a policy, raise ``JsonSpliceError`` if it names a model twice."""
        if model == view.model:
            # Paths of no dialect were checked when they were read.
            if agent.metadata.model_policy is not None and view.bypass != NO_DIALECT:
                json_splice.find_members(view.body, ["model"])
            return view.body
        if view.model_span is not None:
            return json_splice.splice(view.body, [(*view.model_span, model.encode())])
        return replace_model(view.body, model)

    def _log_choice(self, requester: Requester, model: str, choice: ModelChoice) -> None:
        agent = requester.agent
        for ref, reason in choice.unusable_refs.items():
            key = (agent.id, agent.digest, ref, reason)
            if key not in self._logged:  # it would be in every request
                self._logged.add(key)
                name = f"model_ref_unreachable:{ref}"
                self._log.event("intervention", agent, intervention=name, ref=ref, reason=reason)
        if choice.intervention is not None and choice.candidates:
            effective = choice.candidates[0]
            self._log.event(
                "intervention",
                agent,
                turn_id=requester.turn_id,
                model=model,
                intervention=choice.intervention,
                effective_provider=effective.provider.name,
                effective_model=effective.model,
            )


def replace_model(body: bytes, model: str) -> bytes:
    """Return the request with that model and every other byte unchanged. Raise ``JsonSpliceError``."""
    return json_splice.edit(body, {"model": json.dumps(model).encode()})


def log_failover(log: EventLog, requester: Requester, step: tuple[Candidate, Candidate], reason: str) -> None:
    """Log the step from one candidate to another."""
    before, after = step
    log.event(
        "failover",
        requester.agent,
        turn_id=requester.turn_id,
        model=after.model,
        from_provider=before.provider.name,
        from_model=before.model,
        to_provider=after.provider.name,
        to_model=after.model,
        reason=reason,
    )


def _nothing_allowed(request: Request) -> RunnerResponse:
    if request.host is not None:
        return refuse(request.path, 403, "model_not_allowed", "the model policy allows no model of this provider")
    return refuse(request.path, 502, "no_provider", "no model that the model policy allows is available here")
