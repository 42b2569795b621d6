"""Model providers and their keys: providers.json over the environment (spec/contract.md "providers.json").

What an answer says of its key: 401 and 402 that it is dead, and 429 too where the account is out of quota; any other 429 that
it rests, as long as ``Retry-After`` says. A 403 says nothing of it: moderation, region and a model's permissions are 403 too,
and must not cost the pod its key.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from claw_contract.base import error_line
from claw_contract.known_providers import KNOWN_PROVIDERS, KnownProvider
from claw_contract.manifest import checked_base_url
from claw_contract.providers import ApiFormat, ProviderEntry, ProviderKey, Providers
from claw_contract.secret import Secret
from claw_mediate.core.model_policy import Candidate, KeyState, PoolKey, Provider
from claw_mediate.file_cache import Identity, identity, read_at
from claw_mediate.providers.key_health import LONGEST_REST_SECONDS, KeyStates, posix
from claw_mediate.telemetry.event_log import EventLog, rfc3339

THROTTLED = 429
REFUSED = frozenset({401, 402})
_REST_SECONDS = 2.0
"""Where a provider does not say how long: short enough for a turn to wait for."""
_OUT_OF_QUOTA = re.compile(rb'"(?:code|type)"\s*:\s*"(?:insufficient_quota|billing_[a-z_]{1,40})"')
"""By OpenAI's codes. Not by wording: Gemini speaks of "quota" and "billing" in every 429, also for one minute's limit."""
_ERROR_BYTES = 4096


_KNOWN_HOSTS = {urlsplit(known.base_url or "").hostname or "" for known in KNOWN_PROVIDERS.values()}


@dataclass(frozen=True, slots=True)
class Auth:
    """Where providers.json is, and where findings about keys are kept: elsewhere, where the former is read-only."""

    directory: Path
    key_states: Path


class Registry:
    """All providers, as file and environment say now, and the states of their keys."""

    def __init__(
        self,
        auth: Auth,
        hosts: Mapping[str, str],
        log: EventLog,
        env: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises ``ValueError``, in one line, for a ``<NAME>_BASE_URL`` that is no base URL."""
        for known in KNOWN_PROVIDERS.values():
            variable = f"{known.env}_BASE_URL"
            try:
                if url := env.get(variable):
                    checked_base_url(url)
            except ValueError as error:
                raise ValueError(f"{variable}: {error}") from error
        self._file = auth.directory / "providers.json"
        self._extra_hosts = hosts
        self._env = dict(env)
        self._log = log
        self._seen: Identity | bool = False
        self._providers: dict[str, Provider] = {}
        self.problem: str | None = None
        """Why the file is not what counts now."""
        self._governed: tuple[dict[str, Provider], frozenset[str]] = {}, frozenset()
        self._states = KeyStates(auth.key_states, log, clock)

    def all(self) -> dict[str, Provider]:
        """By name. A file that does not parse leaves the last good state in force, with one log event."""
        found = identity(self._file)
        if found != self._seen:
            self._seen, self.problem = found, None
            try:
                written = Providers.model_validate_json(read_at(self._file)) if found else Providers(providers={})
            except (OSError, ValidationError) as error:
                reason = error_line(error)
                self._log.event("error", error="providers_broken", file=self._file.name, reason=reason)
                written, self.problem = None, f"{self._file.name} can't be used: {reason}"
            if written is not None:
                self._providers = _merged(written, self._env)
            elif not self._providers:
                self._providers = _merged(Providers(providers={}), {})
        return self._providers

    def forget(self) -> dict[str, Provider]:
        """Read the file anew when it is asked for; returns what counted so far."""
        self._seen = False
        return self._providers

    @property
    def may_be_filled(self) -> bool:
        """Whether there is a sound providers.json, in which keys may still come to stand."""
        self.all()
        return bool(self._seen) and self.problem is None

    def by_host(self, host: str) -> Provider | None:
        """The provider that a destination host belongs to: then the host is governed."""
        name = self._extra_hosts.get(host.lower())
        providers = self.all()
        if name is not None:
            return providers.get(name)
        for known_name, known in KNOWN_PROVIDERS.items():
            if known.base_url and urlsplit(known.base_url).hostname == host.lower():
                return providers.get(known_name)
        return next((provider for provider in providers.values() if provider.host == host.lower()), None)

    def hosts(self) -> frozenset[str]:
        """Every governed host."""
        providers = self.all()
        if self._governed[0] is not providers:
            hosts = _KNOWN_HOSTS | set(self._extra_hosts) | {provider.host for provider in providers.values()}
            self._governed = providers, frozenset(hosts - {""})
        return self._governed[1]

    def by_model(self, model: str, api_format: ApiFormat) -> Candidate:
        """In base-URL mode the model's prefix picks the provider, else the dialect's default one."""
        providers = self.all()
        prefix, slash, rest = model.partition("/")
        if slash and prefix in providers:
            return Candidate(providers[prefix], rest)
        default = providers[api_format]  # a protocol is called as the provider whose it is
        if default.is_usable:
            return Candidate(default, model)
        others = (p for p in providers.values() if p.is_usable and p.api_format == api_format)
        return Candidate(next(others, default), model)

    def ready(self, provider: Provider) -> list[PoolKey | None]:
        """The keys that may be tried now, in their order; [None] for a provider that takes none."""
        if provider.auth == "none":
            return [None]
        now = self._states.now()
        return [key for key in provider.keys if self._states.wakes_at(provider.name, key) <= now]

    def wait(self, provider: Provider) -> float:
        """Seconds until the provider has a key that may be tried; ``inf`` when all are dead."""
        if provider.auth == "none":
            return 0.0
        wakes = (self._states.wakes_at(provider.name, key) for key in provider.keys)
        return max(0.0, min(wakes, default=math.inf) - self._states.now())

    def serves(self) -> bool:
        """Whether there is a provider with a key that is not dead."""
        return any(self.wait(provider) < math.inf for provider in self.all().values())

    def pool(self) -> dict[tuple[str, KeyState], int]:
        """How many keys each provider has, by their state."""
        now, found = self._states.now(), dict[tuple[str, KeyState], int]()
        for provider in self.all().values():
            for key in provider.keys:
                wakes = self._states.wakes_at(provider.name, key)
                state: KeyState = "ready" if wakes <= now else "dead" if wakes == math.inf else "cooldown"
                found[provider.name, state] = found.get((provider.name, state), 0) + 1
        return found

    def rest(self, retry_after: str) -> float | None:
        """What ``Retry-After`` asks for, in seconds."""
        return rest_seconds(retry_after, self._states.now())

    def spend(self, provider: Provider, key: PoolKey, status: int, retry_after: str, body: bytes = b"") -> bool:
        """Note what an answer says of its key; whether the next key should be tried."""
        now = self._states.now()
        quota = out_of_quota(status, body)
        if quota or status in REFUSED:
            until = math.inf
        elif status == THROTTLED:
            asked = self.rest(retry_after)
            until = now + (_REST_SECONDS if asked is None else asked)
        else:
            return False
        if self._states.note(provider.name, key, until, status):
            self._log.event(
                "provider_pool",
                provider=provider.name,
                key_id=key.id,
                action="dead" if until == math.inf else "cooldown",
                reason="insufficient_quota" if quota else f"http_{status}",
                cooldown_until=None if until == math.inf else rfc3339(until),
            )
        return True

    def secrets(self) -> list[Secret]:
        return [key.secret for provider in self.all().values() for key in provider.keys]


def out_of_quota(status: int, body: bytes) -> bool:
    return status == THROTTLED and _OUT_OF_QUOTA.search(body[:_ERROR_BYTES]) is not None


def rest_seconds(retry_after: str, now: float) -> float | None:
    """``Retry-After`` (seconds, or a date) in seconds, bounded; None where it says nothing of use."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            until = parsedate_to_datetime(retry_after)
            seconds = (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return None if math.isnan(seconds) else min(max(0.0, seconds), LONGEST_REST_SECONDS)


def _merged(written: Providers, env: Mapping[str, str]) -> dict[str, Provider]:
    names = [*KNOWN_PROVIDERS, *(name for name in written.providers if name not in KNOWN_PROVIDERS)]
    merged = {}
    for name in names:
        entry, known = written.providers.get(name, ProviderEntry()), KNOWN_PROVIDERS.get(name)
        prefix = known.env if known else re.sub(r"[^A-Z0-9]", "_", name.upper())
        base_url = env.get(f"{prefix}_BASE_URL") or entry.base_url or (known.base_url if known else None)
        if base_url is None:
            continue
        merged[name] = Provider(
            name=name,
            base_url=base_url.rstrip("/"),
            auth=entry.auth or (known.auth if known else "bearer"),
            api_format=entry.api_format or (known.api_format if known else "openai"),
            keys=_file_keys(entry) or _env_keys(known, env),
        )
    return merged


def _file_keys(entry: ProviderEntry) -> tuple[PoolKey, ...]:
    keys = sorted(entry.keys, key=lambda key: key.id != entry.active_key_id)
    from_v1 = [PoolKey("api_key", entry.api_key)] if entry.api_key else []
    return (*(PoolKey(key.id, key.secret, _rests_until(key)) for key in keys), *from_v1)


def _rests_until(key: ProviderKey) -> float:
    """What the operator says of a key. A cooldown without a time that can be read is over."""
    if key.state in {"dead", "disabled"}:
        return math.inf
    try:
        return posix(key.cooldown_until or "") if key.state == "cooldown" else 0.0
    except (ValueError, OverflowError):
        return 0.0


def _env_keys(known: KnownProvider | None, env: Mapping[str, str]) -> tuple[PoolKey, ...]:
    """``NAME``, ``NAME_1``, ``NAME_2`` …, in that order, each value once."""
    found: dict[str, PoolKey] = {}
    for name in known.keys if known else ():
        numbered = sorted(
            (key for key in env if re.fullmatch(rf"{name}_\d+", key)), key=lambda key: int(key.rpartition("_")[2])
        )
        for variable in (name, *numbered):
            if value := env.get(variable, "").strip():
                found.setdefault(value, PoolKey(f"env:{variable}", Secret(value)))
    return tuple(found.values())
