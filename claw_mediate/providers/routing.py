"""Routing of requests.

A request goes to the provider that its host or the model's prefix names, or to what the agent's
model policy allows.

Every request that names a model is routed here, also on paths of no dialect
(``turns/passthrough.py``).
"""

import json
import math
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from claw_contract.providers import ApiFormat
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.directory import Agent
from claw_mediate.core import json_splice
from claw_mediate.core.http import (
    Naming,
    Request,
    RunnerResponse,
    UnknownObject,
    refuse,
    refuse_unknown_id,
    refuse_unknown_object,
)
from claw_mediate.core.model_names import (
    NamedModel,
    find_models_in_query,
    find_models_in_text,
    find_named_models,
    names_model,
)
from claw_mediate.core.model_policy import (
    Candidate,
    ModelChoice,
    PoolKey,
    Provider,
    ProviderScope,
    choose_models,
)
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.model_only import NO_DIALECT, read_form_fields
from claw_mediate.http.headers import TURN_STATE, Headers
from claw_mediate.http.large_bodies import compute
from claw_mediate.providers.paths import PathTables
from claw_mediate.providers.registry import ProviderRegistry
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.timing import Stopwatch
from claw_state.ownership import KeptObject, ProviderObject

NO_KEY = "no_provider_key"
KEY_UNAVAILABLE = "provider_key_unavailable"  # ``NO_KEY`` as the reason of a failover


def new_turn_id() -> str:
    """Return an unguessable id that begins with the time.

    So records of one time are stored together.
    """
    return f"turn_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


@dataclass(slots=True)
class Route:
    """The candidates of one turn's model calls."""

    agent: Agent
    turn_id: str
    path: str  # The runner's, with its query
    headers: Headers  # Without a credential
    candidates: Sequence[Candidate]
    position: int = 0  # Index of the candidate that was asked last
    has_answered: bool = False  # True once that candidate has answered: then the turn keeps it
    key_label: str = ""  # The label of the key that was sent last
    stopwatch: Stopwatch = field(default_factory=Stopwatch, repr=False)
    _turn_states: dict[str, str] = field(default_factory=dict, repr=False)
    """The value of ``TURN_STATE`` that each provider wants back in the turn."""
    _bodies: tuple[bytes, dict[str, bytes]] = field(default=(b"", {}), repr=False)
    """A body, and what it became for each other model."""

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

    @property
    def provider_headers(self) -> Headers:
        """Return the headers for the current candidate."""
        state = self._turn_states.get(self.candidate.provider.name)
        if state is None:
            return self.headers

        headers = [header for header in self.headers if header[0].lower() != TURN_STATE]
        headers.append((TURN_STATE, state))
        return headers

    def keep_turn_state(self, headers: Iterable[tuple[str, str]]) -> None:
        """Keep what the current candidate's provider wants back with later calls of the turn."""
        for name, value in headers:
            if name == TURN_STATE:
                self._turn_states[self.candidate.provider.name] = value

    def body(self, body: bytes) -> bytes:
        """Return the request with the current candidate's model; ``body`` names the first one's.

        Cached by model.
        """
        model = self.candidate.model
        if model == self.candidates[0].model:
            return body

        if self._bodies[0] is not body:
            self._bodies = (body, {})
        by_model = self._bodies[1]
        if model not in by_model:
            by_model[model] = replace_model(body, model)
        return by_model[model]


class LimitedPart(StrEnum):
    """A part of a provider's API that has rate limits of its own.

    So a 429 of one lets no key rest for another. Each value is the prefix of its scopes.
    """

    ANSWERS = ""
    COUNTS = "count_tokens "
    """Free of charge: an agent could use its limit up, and so disable the model."""
    OTHER_PATHS = "other paths "
    NO_MODEL = "-"

    def scope(self, candidate: Candidate) -> str | None:
        """Return the scope for which a key rests after a 429; None if no model is named."""
        if self is LimitedPart.NO_MODEL:
            return None
        return self.value + candidate.model


class Router:
    """Finds the candidates of a request: providers and models, best first."""

    def __init__(self, registry: ProviderRegistry, paths: PathTables, log: EventLog) -> None:
        self._registry = registry
        self._paths = paths
        self._log = log
        self._logged: set[tuple[str, str, str, str]] = set()

    async def candidates(
        self,
        agent: Agent,
        turn_id: str,
        request: Request,
        view: RunnerRequest | None,
        kept: KeptObject | ProviderObject | None = None,
    ) -> Sequence[Candidate] | RunnerResponse:
        """Return at least one candidate, best first; or the refusal.

        A request that names a kept object (``kept``) has one candidate: the provider that keeps it,
        with the key that was used then. One that relies in another way on what a single provider
        keeps has one candidate, too: the first.
        """
        names_no_model = view is None or not view.model
        keeper: Provider | None = None
        if names_no_model and kept is not None and request.host is None:
            keeper = self._registry.all().get(kept.provider)

        found = await self._find_candidates(agent, turn_id, request, view, keeper)
        if isinstance(found, RunnerResponse):
            return found

        if kept is None:
            is_bound = view is not None and view.kept is not None and view.kept.is_bound
            return found[:1] if is_bound else found

        # Its model must be allowed at the provider that keeps the object.
        for candidate in found:
            if candidate.provider.name == kept.provider:
                provider = self._with_key(candidate.provider, kept.key_label)
                return (replace(candidate, provider=provider),)
        return _refuse_kept(request, view, kept)

    def _with_key(self, provider: Provider, label: str) -> Provider:
        """Return a provider with one of its keys; with all of them if that one is gone or dead."""
        alone = replace(provider, keys=tuple(key for key in provider.keys if key.id == label))
        is_usable = alone.keys and self._registry.wait(alone, None) < math.inf
        return alone if is_usable else provider

    async def _find_candidates(
        self,
        agent: Agent,
        turn_id: str,
        request: Request,
        view: RunnerRequest | None,
        keeper: Provider | None,
    ) -> Sequence[Candidate] | RunnerResponse:
        """Return all candidates, or the refusal.

        ``keeper``: the provider of the kept object, for a request that names no model.
        """
        match = self._paths.find(request)
        family = match.family if match is not None else "openai"
        api_format: ApiFormat = "anthropic" if family == "anthropic" else "openai"

        # The candidate that the request itself names
        model = view.model if view is not None else ""
        if keeper is not None:
            named = Candidate(keeper, model)
        elif request.host is None:
            named = self._registry.by_model(model, family)
        elif (only := self._registry.by_host(request.host)) is not None:
            named = Candidate(only, model)
        else:
            return refuse(
                request.path, 502, "no_provider", "no provider is configured for this host"
            )

        policy = agent.metadata.model_policy
        if policy is None or not policy.allowed or view is None:
            if keeper is None and not named.provider.is_usable:
                return _refuse_without_key(request, named.provider)
            return (named,)

        # Under a policy, another provider may serve a request at the proxy's own listener.
        if request.host is not None and not named.provider.is_usable:
            return _refuse_without_key(request, named.provider)

        # What the provider keeps says where a request goes, and never which model it may ask.
        is_bound = request.host is not None or keeper is not None
        reach = ProviderScope(
            self._registry.all(), api_format, named.provider if is_bound else None
        )
        choice = choose_models(policy, model, reach)
        self._log_choice(agent, turn_id, model, choice)
        if not choice.candidates:
            return _nothing_allowed(request)
        return await self._candidates_for_names(agent, request, view, choice)

    async def _candidates_for_names(
        self, agent: Agent, request: Request, view: RunnerRequest, choice: ModelChoice
    ) -> Sequence[Candidate] | RunnerResponse:
        """Return the candidates at whose provider all models that the request names are allowed.

        If the first candidate is not one of them, return the refusal: only fallbacks are left out.
        """
        named = await compute(len(view.body), partial(find_other_models, request, view))
        if not named:
            return choice.candidates

        fitting = tuple(
            candidate
            for candidate in choice.candidates
            if all(each.name in choice.allowed_at(candidate.provider) for each in named)
        )
        if choice.candidates[0] not in fitting:
            return self.refuse_model(agent, request, named)
        return fitting

    def refuse_model(
        self, agent: Agent, request: Request, named: Sequence[NamedModel]
    ) -> RunnerResponse:
        """Refuse a request that names other models than its policy allows, and log it."""
        first = named[0]
        message = (
            f"{first.member!r} names the model {first.name[:MAX_SHOWN_NAME]!r}, and the agent's "
            "model policy allows no other models than its own at this provider: leave the member "
            "out, or name only models that are allowed"
        )
        return self.refuse_by_policy(agent, request, message, first.member)

    def refuse_by_policy(
        self, agent: Agent, request: Request, message: str, param: str | None = None
    ) -> RunnerResponse:
        """Return a refusal of the agent's model policy, and log it."""
        self._log.event("intervention", agent, intervention="model_not_allowed", reason=message)
        return refuse(request.path, 403, "model_not_allowed", message, param=param)

    def protect_keys(self, candidates: Iterable[Candidate], redactor: Redactor) -> Redactor:
        """Return a redactor that knows all keys of the candidates; the log redacts them, too.

        The keys of ``redactor`` are those of the request's arrival, and while it waited for a feed
        or another turn they may have been changed.
        """
        new_keys = [
            key.secret
            for candidate in candidates
            for key in candidate.provider.keys
            if not redactor.knows(key.secret)
        ]
        if not new_keys:
            return redactor

        self._log.protect(new_keys)
        return redactor.with_secrets(new_keys)

    def first_ready(
        self, agent: Agent, turn_id: str, candidates: Sequence[Candidate], part: LimitedPart
    ) -> tuple[Candidate, PoolKey | None] | None:
        """Return the first candidate that has a ready key, with that key.

        For a request that is sent only once. If no key is ready, a model call tries a dead key
        whose trial is due; for any other request the provider is asked about that key.
        """
        for candidate in candidates:
            keys = self._registry.ready(candidate.provider, part.scope(candidate))
            if not keys:
                continue

            self._registry.check_dead_keys(candidate.provider)
            if candidate is not candidates[0]:
                step = candidates[0], candidate
                log_failover(self._log, agent, turn_id, step, KEY_UNAVAILABLE)
            return candidate, keys[0]

        is_model_call = part in {LimitedPart.ANSWERS, LimitedPart.COUNTS}
        for candidate in candidates:
            if is_model_call:
                key = self._registry.claim(candidate.provider)
                if key is not None:
                    return candidate, key
            else:
                self._registry.check_dead_keys(candidate.provider)
        return None

    def body_for_model(self, agent: Agent, view: RunnerRequest, model: str) -> bytes:
        """Return the request with that model.

        Under a policy, raise ``JsonSpliceError`` if it names a model twice.
        """
        if model == view.model:
            # Paths of no dialect were checked when they were read.
            if agent.metadata.model_policy is not None and view.bypass != NO_DIALECT:
                json_splice.find_members(view.body, ["model"])
            return view.body

        if view.model_span is not None:
            return json_splice.splice(view.body, [(*view.model_span, model.encode())])
        return replace_model(view.body, model)

    def _log_choice(self, agent: Agent, turn_id: str, model: str, choice: ModelChoice) -> None:
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
                turn_id=turn_id,
                model=model,
                intervention=choice.intervention,
                effective_provider=effective.provider.name,
                effective_model=effective.model,
            )


MAX_SHOWN_NAME = 80  # Characters


def find_other_models(request: Request, view: RunnerRequest | None) -> Sequence[NamedModel]:
    """Return the models that a request names, in its body and query, in addition to its ``model``.

    Raise ``AmbiguousMemberError``.
    """
    in_query = find_models_in_query(request.path)
    if view is None:
        return in_query
    if view.history_body is None:
        return [*find_named_models(view.body), *in_query]
    return [*_find_models_in_form(request, view.body), *in_query]


def _find_models_in_form(request: Request, body: bytes) -> Iterator[NamedModel]:
    """Yield the models that a form names in addition to its ``model``.

    They are in fields of their own, or in fields whose value is JSON.
    """
    for each in read_form_fields(", ".join(request.header("content-type")), body):
        if names_model(each.name):
            # There may be a second field of this name, so that the value of one decides nothing.
            yield NamedModel(each.name, "")
        elif each.is_text:
            for model in find_models_in_text(body[each.start : each.end]):
                yield NamedModel(each.name, model.name)


def replace_model(body: bytes, model: str) -> bytes:
    """Return the request with that model and every other byte unchanged.

    Raise ``JsonSpliceError``.
    """
    return json_splice.edit(body, {"model": json.dumps(model).encode()})


def log_failover(
    log: EventLog, agent: Agent, turn_id: str, step: tuple[Candidate, Candidate], reason: str
) -> None:
    """Log the step from one candidate to another."""
    before, after = step
    log.event(
        "failover",
        agent,
        turn_id=turn_id,
        model=after.model,
        from_provider=before.provider.name,
        from_model=before.model,
        to_provider=after.provider.name,
        to_model=after.model,
        reason=reason,
    )


def _refuse_kept(
    request: Request, view: RunnerRequest | None, kept: KeptObject | ProviderObject
) -> RunnerResponse:
    """Return the refusal of a request whose candidates do not have the kept object's provider."""
    naming: Naming = "response_id"
    if view is not None:
        is_response = view.kept is not None and view.kept.previous_response
        naming = "previous_response_id" if is_response else "conversation"
    reason = (
        f"the provider {kept.provider!r}, which keeps it, can't be asked for this request any more"
    )
    if isinstance(kept, ProviderObject):
        unknown = UnknownObject(kept.kind, kept.id, f"{kept.kind}_id", reason)
        return refuse_unknown_object(request.path, unknown)
    return refuse_unknown_id(request.path, naming, kept.id, reason)


def _refuse_without_key(request: Request, provider: Provider) -> RunnerResponse:
    """Return the refusal of a request that only this provider could answer."""
    return refuse(request.path, 502, NO_KEY, f"the provider {provider.name!r} has no key")


def _nothing_allowed(request: Request) -> RunnerResponse:
    """Return the refusal of a request for which the policy leaves no candidate."""
    if request.host is not None:
        message = "the model policy allows no model of this provider"
        return refuse(request.path, 403, "model_not_allowed", message)

    message = "no model that the model policy allows is available here"
    return refuse(request.path, 502, "no_provider", message)
