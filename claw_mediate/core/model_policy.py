"""The model policy: from the model that an agent asked for to the models that may answer.

docs/spec/mediation.md section 8. A policy clamps; it never rejects.

    the agent asked for                          is asked first    intervention
    ───────────────────────────────────────────  ────────────────  ──────────────────────
    nothing                                      the primary       missing
    an allowed ref (``provider/model``)          that one          none
    another name of the model of an allowed ref  that one          provider_normalized
    the model's name, or its last segment        that one          bare_model_normalized
      the same, of several allowed refs          the primary       ambiguous_clamped
    an allowed ref that can't be asked           the primary       unreachable_clamped
    anything else                                the primary       disallowed_clamped

After it come the primary and the fallbacks, in their order. The primary is the model in the slot
``primary``, else the first.

Only models count that can be asked. Their provider is known, has a key, and speaks the request's
protocol; or it is the one that the request was sent to, if it has a destination of its own. The
names of interventions are the original system's.
"""

import math
from collections.abc import Mapping
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
"""A provider that takes whole refs as model names.

It serves models of other protocols in OpenAI's. (It is the original system's rule.)
"""

type KeyState = Literal["ready", "cooldown", "dead"]


@dataclass(frozen=True, slots=True)
class PoolKey:
    """One key of a pool."""

    id: str
    secret: Secret
    # From the operator's file: POSIX time, infinite if the key is dead
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
        """True if there is a key that is not dead, or no key is needed."""
        return self.auth == "none" or any(key.unavailable_until < math.inf for key in self.keys)

    def strip_base_path(self, path: str) -> str:
        """Return path and query below the base URL, which may end in a prefix (``/api/v1``).

        A runner's path may begin with that prefix, or with ``/v1`` instead.
        """
        own = urlsplit(self.base_url).path
        if not own:
            return path

        for prefix in (own, "/v1"):
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
        """Provider and model as one text, as ``ModelResponse.maker`` names them."""
        return "/".join(self.id)


@dataclass(frozen=True, slots=True)
class ProviderScope:
    """The providers that a request can reach."""

    providers: Mapping[str, Provider]
    api_format: ApiFormat
    only_provider: Provider | None = None  # Of the request's destination, if it has one

    def find(self, ref: str) -> Candidate | str | None:
        """Return the model that a ref names.

        If no request can use the ref, return the reason, a sentence. If only requests like this
        one can't, return None.
        """
        name, _, model = ref.partition("/")
        if not (name and model):
            return "it is not provider/model"

        provider = self.providers.get(name)
        if provider is None:
            return f"no provider {name!r} is configured"

        speaks_protocol = provider.api_format == self.api_format
        bridge = self._find_bridge()
        if bridge is not None and not speaks_protocol:
            return Candidate(bridge, ref)

        if not provider.is_usable:
            return f"the provider {name!r} has no key"

        if self.only_provider is not None:
            is_reachable = provider.name == self.only_provider.name
        else:
            is_reachable = speaks_protocol
        return Candidate(provider, model) if is_reachable else None

    def _find_bridge(self) -> Provider | None:
        if self.only_provider is not None or self.api_format != "openai":
            return None

        bridge = self.providers.get(BRIDGE)
        return bridge if bridge is not None and bridge.is_usable else None


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The models to ask, best first; none if no allowed model can be asked."""

    candidates: tuple[Candidate, ...]
    intervention: Intervention | None
    unusable_refs: Mapping[str, str]  # Each with its reason, a sentence
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

    requested = requested.strip()
    chain = [ref for ref in _primary_and_fallbacks(policy) if ref in candidates]
    first, intervention = _match(candidates, requested, scope)
    if first is None:
        first = chain[0] if chain else next(iter(candidates))
        if requested in by_ref:
            intervention = "unreachable_clamped"

    unique = {candidates[ref].id: candidates[ref] for ref in (first, *chain)}
    allowed = frozenset(candidate.id for candidate in candidates.values())
    return ModelChoice(tuple(unique.values()), intervention, unusable, allowed)


def _primary_and_fallbacks(policy: ModelPolicy) -> list[str]:
    """Return the refs of the primary model and of the fallbacks, in their order."""
    primary: list[str] = []
    fallbacks: list[str] = []
    for entry in policy.allowed:
        if entry.slot == "primary":
            primary.append(entry.ref)
        elif entry.slot == "fallback" or entry.slot.startswith("fallback-"):
            fallbacks.append(entry.ref)

    if not primary:
        primary = [entry.ref for entry in policy.allowed[:1]]
    return primary + fallbacks


def _match(
    candidates: Mapping[str, Candidate], requested: str, scope: ProviderScope
) -> tuple[str | None, Intervention | None]:
    """Return the allowed ref that was asked for, or None; and the intervention."""
    if not requested:
        return None, "missing"

    # A provider that a request is sent to knows its models by their own names.
    if scope.only_provider is not None:
        exact = [ref for ref, candidate in candidates.items() if candidate.model == requested]
    else:
        exact = [ref for ref in candidates if ref == requested]
    if len(exact) == 1:
        return exact[0], None

    meant = scope.find(requested)
    if isinstance(meant, Candidate):
        same = [ref for ref, candidate in candidates.items() if candidate.id == meant.id]
        if len(same) == 1:
            return same[0], "provider_normalized"

    by_short_name = [ref for ref in candidates if requested in _short_names(ref)]
    if not by_short_name:
        return None, "disallowed_clamped"
    if len(by_short_name) > 1:
        return None, "ambiguous_clamped"
    return by_short_name[0], "bare_model_normalized"


def _short_names(ref: str) -> tuple[str, str]:
    """Return the model's name, and its last segment."""
    return ref.partition("/")[2], ref.rpartition("/")[2]
