"""The model policy: what an agent asked for → the models that may answer, best first (spec/mediation.md section 8).

A policy clamps, it never rejects. What the agent asked for is

    nothing                                         the primary               missing
    an allowed ref (``provider/model``)             that one
    another way to say where one leads              that one                  provider_normalized
    the name of just one, or its last segment       that one                  bare_model_normalized
    the name of several                             the primary               ambiguous_clamped
    an allowed ref that can't be asked              the primary               unreachable_clamped
    anything else                                   the primary               disallowed_clamped

and behind it stand the primary one and the fallbacks, in their order. The primary one is that of the slot ``primary``, else
the first. Only models count that can be asked: of a provider that is known, has a key, and speaks the request's protocol,
or, where the request has a destination of its own, of that provider. The names of interventions are the original's.
"""

from __future__ import annotations

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
"""Takes whole refs as names of models, and serves in OpenAI's protocol what speaks another (the original's rule)."""


type KeyState = Literal["ready", "cooldown", "dead"]


@dataclass(frozen=True, slots=True)
class PoolKey:
    """One key of a pool. ``rests_until``: what the operator's file says of it, POSIX time; for ever where it is dead."""

    id: str
    secret: Secret
    rests_until: float = 0.0


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
    def usable(self) -> bool:
        """Whether there is anything to ask it with."""
        return self.auth == "none" or any(key.rests_until < math.inf for key in self.keys)

    def below(self, path: str) -> str:
        """Path and query below the base URL, which ends in its own prefix (``/v1``, ``/api/v1``) or has none."""
        own = urlsplit(self.base_url).path
        for prefix in (own, "/v1") if own else ():
            if path.startswith((f"{prefix}/", f"{prefix}?")):
                return path.removeprefix(prefix)
        return path


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that a request may be asked of. ``model``: its name there."""

    provider: Provider
    model: str

    @property
    def place(self) -> tuple[str, str]:
        return self.provider.name, self.model


@dataclass(frozen=True, slots=True)
class ProviderScope:
    """What a request can reach. ``only``: the provider that its destination belongs to, at the entrances with a host."""

    providers: Mapping[str, Provider]
    api_format: ApiFormat
    only: Provider | None = None

    def find(self, ref: str) -> Candidate | str | None:
        """The model, or why the ref is of no use to anybody; None: it is sound, and not for this request."""
        name, slash, model = ref.partition("/")
        if not (name and slash and model):
            return "it is not provider/model"
        provider = self.providers.get(name)
        bridged = self.providers.get(BRIDGE) if self.only is None and self.api_format == "openai" else None
        if provider is None:
            return f"no provider {name!r} is configured"
        if bridged is not None and bridged.usable and provider.api_format != self.api_format:
            return Candidate(bridged, ref)
        if not provider.usable:
            return f"the provider {name!r} has no key"
        if self.only is not None:
            return Candidate(provider, model) if provider.name == self.only.name else None
        return Candidate(provider, model) if provider.api_format == self.api_format else None


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """``candidates`` is empty where nothing that is allowed can be asked. ``broken``: refs of no use, each with the reason."""

    candidates: tuple[Candidate, ...]
    intervention: Intervention | None
    broken: Mapping[str, str]


def choose_models(policy: ModelPolicy, requested: str, reach: ProviderScope) -> ModelChoice:
    """The table above."""
    found = {entry.ref: reach.find(entry.ref) for entry in policy.allowed}
    broken = {ref: reason for ref, reason in found.items() if isinstance(reason, str)}
    placed = {ref: candidate for ref, candidate in found.items() if isinstance(candidate, Candidate)}
    if not placed:
        return ModelChoice((), None, broken)
    chain = [ref for ref in _fallback_refs(policy) if ref in placed]
    primary = (chain or list(placed))[0]
    chosen, intervention = _match(placed, requested.strip(), reach)
    if chosen is None:
        chosen = primary
        intervention = "unreachable_clamped" if requested.strip() in found else intervention
    unique = {placed[ref].place: placed[ref] for ref in (chosen, *chain)}
    return ModelChoice(tuple(unique.values()), intervention, broken)


def _fallback_refs(policy: ModelPolicy) -> list[str]:
    """The refs that a request may fall back on, in order. Other slots are allowed, and never fallen back on."""
    primary = [entry.ref for entry in policy.allowed if entry.slot == "primary"]
    fallbacks = [
        entry.ref for entry in policy.allowed if entry.slot == "fallback" or entry.slot.startswith("fallback-")
    ]
    return [*(primary or [entry.ref for entry in policy.allowed[:1]]), *fallbacks]


def _match(
    placed: Mapping[str, Candidate], requested: str, reach: ProviderScope
) -> tuple[str | None, Intervention | None]:
    """The allowed ref that is meant, or None; and what that is called."""
    if not requested:
        return None, "missing"
    exact = _single(ref for ref, there in placed.items() if requested == (ref if reach.only is None else there.model))
    if exact is not None:
        return exact, None
    led = reach.find(requested)
    if isinstance(led, Candidate):
        same = _single(ref for ref, there in placed.items() if there.place == led.place)
        if same is not None:
            return same, "provider_normalized"
    named = [ref for ref in placed if requested in _names(ref)]
    if not named:
        return None, "disallowed_clamped"
    return (named[0], "bare_model_normalized") if len(named) == 1 else (None, "ambiguous_clamped")


def _names(ref: str) -> tuple[str, str]:
    """What a model is called without its provider."""
    return ref.partition("/")[2], ref.rpartition("/")[2]


def _single(refs: Iterable[str]) -> str | None:
    found = [*refs]
    return found[0] if len(found) == 1 else None
