"""The model policy: from the model that an agent asked for to the models that may
answer, best first.

docs/spec/mediation.md section 8. A policy clamps, it never rejects. The agent asked for

    nothing                                         the primary               missing
    an allowed ref (``provider/model``)             that one
    another name of the model of an allowed ref     that one                  provider_normalized
    the name of just one, or its last segment       that one                  bare_model_normalized
    the name of several                             the primary               ambiguous_clamped
    an allowed ref that can't be asked              the primary               unreachable_clamped
    anything else                                   the primary               disallowed_clamped

and behind it stand the primary one and the fallbacks, in their order. The primary one is that of
the slot ``primary``, else the first. Only models count that can be asked: of a provider that is
known, has a key, and speaks the request's protocol, or, where the request has a destination of its
own, of that provider. The names of interventions are the original system's.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from claw_contract.metadata import ModelPolicy
from claw_contract.providers import ApiFormat, ProviderAuth
from claw_contract.secret import Secret

type Intervention = Literal[
    "missing",
    "provider_normalized",
    "bare_model_normalized",
    "ambiguous_clamped",
    "unreachable_clamped",
    "disallowed_clamped",
]
BRIDGE = "openrouter"
"""A provider that takes whole refs as model names, and serves other protocols' models in OpenAI's
(the original's rule).
"""


type KeyState = Literal["ready", "cooldown", "dead"]


@dataclass(frozen=True, slots=True)
class PoolKey:
    """One key of a pool.

    ``unavailable_until`` comes from the operator's file: POSIX time, infinite where the key is
    dead.
    """

    id: str
    secret: Secret
    unavailable_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider as configured now."""

    name: str
    base_url: str
    auth: ProviderAuth
    api_format: ApiFormat
    keys: tuple[PoolKey, ...]

    @property
    def host(self) -> str:
        return (urlsplit(self.base_url).hostname or "").lower()

    @property
    def is_usable(self) -> bool:
        """True if there is a key that is not dead, or none is needed."""
        return self.auth == "none" or any(key.unavailable_until < math.inf for key in self.keys)

    def strip_base_path(self, path: str) -> str:
        """Return path and query below the base URL, which ends in its own prefix
        (``/v1``, ``/api/v1``) or has none.
        """
        own = urlsplit(self.base_url).path
        for prefix in (own, "/v1") if own else ():
            if path.startswith((f"{prefix}/", f"{prefix}?")):
                return path.removeprefix(prefix)
        return path


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may answer a request. ``model``: its name at the provider."""

    provider: Provider
    model: str

    @property
    def id(self) -> tuple[str, str]:
        return self.provider.name, self.model

    @property
    def maker(self) -> str:
        """Return provider and model as one text: who made a response."""
        return "/".join(self.id)


@dataclass(frozen=True, slots=True)
class ProviderScope:
    """The providers that a request can reach.

    ``only_provider``: that of its destination, where the request has one.
    """

    providers: Mapping[str, Provider]
    api_format: ApiFormat
    only_provider: Provider | None = None

    def find(self, ref: str) -> Candidate | str | None:
        """Return the model; a sentence where the ref is of no use to anybody; None
        where it is sound, but out of reach.
        """
        name, slash, model = ref.partition("/")
        if not (name and slash and model):
            return "it is not provider/model"
        provider = self.providers.get(name)
        bridged = (
            self.providers.get(BRIDGE)
            if self.only_provider is None and self.api_format == "openai"
            else None
        )
        if provider is None:
            return f"no provider {name!r} is configured"
        if bridged is not None and bridged.is_usable and provider.api_format != self.api_format:
            return Candidate(bridged, ref)
        if not provider.is_usable:
            return f"the provider {name!r} has no key"
        if self.only_provider is not None:
            return Candidate(provider, model) if provider.name == self.only_provider.name else None
        return Candidate(provider, model) if provider.api_format == self.api_format else None


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The models to ask, best first; none where no allowed model can be asked.

    ``unusable_refs`` have a reason each.
    """

    candidates: tuple[Candidate, ...]
    intervention: Intervention | None
    unusable_refs: Mapping[str, str]
    allowed: frozenset[tuple[str, str]] = frozenset()
    """Provider and name of every model of the policy that can be asked."""

    def allowed_at(self, provider: Provider) -> frozenset[str]:
        """Return the names, at a provider, of the models that may be asked there."""
        return frozenset(model for name, model in self.allowed if name == provider.name)


def choose_models(policy: ModelPolicy, requested: str, scope: ProviderScope) -> ModelChoice:
    """Return the models of the table above."""
    by_ref = {entry.ref: scope.find(entry.ref) for entry in policy.allowed}
    unusable = {ref: reason for ref, reason in by_ref.items() if isinstance(reason, str)}
    candidates = {
        ref: candidate for ref, candidate in by_ref.items() if isinstance(candidate, Candidate)
    }
    if not candidates:
        return ModelChoice((), None, unusable)
    chain = [ref for ref in _fallback_refs(policy) if ref in candidates]
    primary = (chain or list(candidates))[0]
    match, intervention = _match(candidates, requested.strip(), scope)
    if match is None:
        match = primary
        intervention = "unreachable_clamped" if requested.strip() in by_ref else intervention
    unique = {candidates[ref].id: candidates[ref] for ref in (match, *chain)}
    allowed = frozenset(candidate.id for candidate in candidates.values())
    return ModelChoice(tuple(unique.values()), intervention, unusable, allowed)


def _fallback_refs(policy: ModelPolicy) -> list[str]:
    primary = [entry.ref for entry in policy.allowed if entry.slot == "primary"]
    fallbacks = [
        entry.ref
        for entry in policy.allowed
        if entry.slot == "fallback" or entry.slot.startswith("fallback-")
    ]
    return [*(primary or [entry.ref for entry in policy.allowed[:1]]), *fallbacks]


def _match(
    candidates: Mapping[str, Candidate], requested: str, scope: ProviderScope
) -> tuple[str | None, Intervention | None]:
    """Return the allowed ref that was asked for, or None; and the intervention."""
    if not requested:
        return None, "missing"
    by_model = scope.only_provider is not None
    exact = _single(
        ref for ref, other in candidates.items() if requested == (other.model if by_model else ref)
    )
    if exact is not None:
        return exact, None
    candidate = scope.find(requested)
    if isinstance(candidate, Candidate):
        same = _single(ref for ref, other in candidates.items() if other.id == candidate.id)
        if same is not None:
            return same, "provider_normalized"
    named = [ref for ref in candidates if requested in _short_names(ref)]
    if not named:
        return None, "disallowed_clamped"
    return (named[0], "bare_model_normalized") if len(named) == 1 else (None, "ambiguous_clamped")


def _short_names(ref: str) -> tuple[str, str]:
    return ref.partition("/")[2], ref.rpartition("/")[2]


def _single(refs: Iterable[str]) -> str | None:
    items = [*refs]
    return items[0] if len(items) == 1 else None
