"""Model providers and their keys: providers.json over the environment (spec/contract.md "providers.json").

Key states: a key that was refused (401, 402) is dead, one that was throttled (429) rests until its time is over. Both last
as long as the process, or until the key itself changes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from claw_contract.base import error_line
from claw_contract.manifest import checked_base_url
from claw_contract.providers import ApiFormat, ProviderAuth, ProviderEntry, Providers
from claw_contract.secret import Secret
from claw_mediate.io.files import Identity, identity
from claw_mediate.io.log import EventLog

THROTTLED = 429
_KEY_DEAD = frozenset({401, 402})
_DEFAULT_REST_SECONDS = 10.0
_LONGEST_REST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a pool."""

    id: str
    secret: Secret


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider as configured now."""

    name: str
    base_url: str
    auth: ProviderAuth
    api_format: ApiFormat
    keys: tuple[Key, ...]

    @property
    def host(self) -> str:
        return (urlsplit(self.base_url).hostname or "").lower()

    @property
    def usable(self) -> bool:
        return bool(self.keys) or self.auth == "none"


@dataclass(frozen=True, slots=True)
class _Known:
    base_url: str
    auth: ProviderAuth
    api_format: ApiFormat
    env: str
    """What its environment names begin with."""
    keys: tuple[str, ...]


_KNOWN: dict[str, _Known] = {
    "openai": _Known("https://api.openai.com/v1", "bearer", "openai", "OPENAI", ("OPENAI_API_KEY",)),
    "anthropic": _Known("https://api.anthropic.com/v1", "x-api-key", "anthropic", "ANTHROPIC", ("ANTHROPIC_API_KEY",)),
    "openrouter": _Known("https://openrouter.ai/api/v1", "bearer", "openai", "OPENROUTER", ("OPENROUTER_API_KEY",)),
    "google": _Known(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "bearer",
        "openai",
        "GOOGLE",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    "xai": _Known("https://api.x.ai/v1", "bearer", "openai", "XAI", ("XAI_API_KEY",)),
    "ai-gateway": _Known("https://ai-gateway.vercel.sh/v1", "bearer", "openai", "AI_GATEWAY", ("AI_GATEWAY_API_KEY",)),
}

KEY_VARIABLES = tuple(name for known in _KNOWN.values() for name in known.keys)


@dataclass
class KeyStates:
    """What is known of keys beyond the configuration: by value's owner, so that a replaced key starts afresh."""

    dead: set[tuple[str, Secret]] = field(default_factory=set)
    resting: dict[tuple[str, Secret], float] = field(default_factory=dict)

    def ready(self, provider: Provider, now: float) -> list[Key]:
        """The keys that may be tried, in their order."""
        return [
            key
            for key in provider.keys
            if (provider.name, key.secret) not in self.dead
            and self.resting.get((provider.name, key.secret), now) <= now
        ]


class Registry:
    """All providers, as file and environment say now."""

    def __init__(
        self, auth_dir: Path, hosts: Mapping[str, str], log: EventLog, env: Mapping[str, str] = os.environ
    ) -> None:
        """Raises ``ValueError``, in one line, for a ``<NAME>_BASE_URL`` that is no base URL."""
        for known in _KNOWN.values():
            variable = f"{known.env}_BASE_URL"
            try:
                checked_base_url(env.get(variable) or known.base_url)
            except ValueError as error:
                raise ValueError(f"{variable}: {error}") from error
        self._file = auth_dir / "providers.json"
        self._extra_hosts = hosts
        self._env = dict(env)
        self._log = log
        self._seen: Identity | bool = False
        self._providers: dict[str, Provider] = {}
        self.states = KeyStates()

    def all(self) -> dict[str, Provider]:
        """By name. A file that does not parse leaves the last good state in force, with one log event."""
        found = identity(self._file)
        if found != self._seen:
            self._seen = found
            try:
                written = Providers.model_validate_json(self._file.read_bytes()) if found else Providers(providers={})
            except (OSError, ValidationError) as error:
                self._log.event("error", error="providers_broken", file=self._file.name, reason=error_line(error))
                written = None
            if written is not None:
                self._providers = _merged(written, self._env)
            elif not self._providers:
                self._providers = _merged(Providers(providers={}), {})
        return self._providers

    def by_host(self, host: str) -> Provider | None:
        """The provider that a destination host belongs to: then the host is governed."""
        name = self._extra_hosts.get(host.lower())
        providers = self.all()
        if name is not None:
            return providers.get(name)
        for known_name, known in _KNOWN.items():
            if urlsplit(known.base_url).hostname == host.lower():
                return providers.get(known_name)
        return next((provider for provider in providers.values() if provider.host == host.lower()), None)

    def hosts(self) -> frozenset[str]:
        """Every governed host."""
        own = {urlsplit(known.base_url).hostname or "" for known in _KNOWN.values()}
        return frozenset(own | set(self._extra_hosts) | {provider.host for provider in self.all().values()})

    def by_model(self, model: str, api_format: ApiFormat) -> tuple[Provider | None, str]:
        """In base-URL mode the model's prefix picks the provider, else the dialect's default one; (provider, its model)."""
        providers = self.all()
        prefix, slash, rest = model.partition("/")
        if slash and prefix in providers:
            return providers[prefix], rest
        default = providers.get(api_format)
        if default is not None and default.usable:
            return default, model
        others = (p for p in providers.values() if p.usable and p.api_format == api_format)
        return next(others, default), model

    def spend(self, provider: Provider, key: Key, status: int, rest: float | None) -> bool:
        """Note what an answer says of its key (``rest``: seconds to wait); whether the next key should be tried."""
        owner = (provider.name, key.secret)
        if status in _KEY_DEAD:
            self.states.dead.add(owner)
            action = "dead"
        elif status == THROTTLED:
            self.states.resting[owner] = time.monotonic() + (rest or _DEFAULT_REST_SECONDS)
            action = "cooldown"
        else:
            return False
        self._log.event("provider_pool", provider=provider.name, key_id=key.id, action=action, reason=f"http_{status}")
        return True

    def secrets(self) -> list[Secret]:
        return [key.secret for provider in self.all().values() for key in provider.keys]


def rest_seconds(retry_after: str) -> float | None:
    """``Retry-After`` in seconds, bounded; None where it says nothing of use (RFC 9110 also allows a date: not used)."""
    try:
        seconds = float(retry_after)
    except ValueError:
        return None
    return min(max(0.0, seconds), _LONGEST_REST_SECONDS) if seconds == seconds else None  # noqa: PLR0124 - not a number


def _merged(written: Providers, env: Mapping[str, str]) -> dict[str, Provider]:
    names = [*_KNOWN, *(name for name in written.providers if name not in _KNOWN)]
    merged = {}
    for name in names:
        entry, known = written.providers.get(name, ProviderEntry()), _KNOWN.get(name)
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


def _file_keys(entry: ProviderEntry) -> tuple[Key, ...]:
    keys = [key for key in entry.keys if key.state in {"ready", "cooldown"}]
    keys.sort(key=lambda key: key.id != entry.active_key_id)
    from_v1 = [Key("api_key", entry.api_key)] if entry.api_key else []
    return (*(Key(key.id, key.secret) for key in keys), *from_v1)


def _env_keys(known: _Known | None, env: Mapping[str, str]) -> tuple[Key, ...]:
    """``NAME``, ``NAME_1``, ``NAME_2`` …, in that order, each value once."""
    found: dict[str, Key] = {}
    for name in known.keys if known else ():
        numbered = sorted(
            (key for key in env if re.fullmatch(rf"{name}_\d+", key)), key=lambda key: int(key.rpartition("_")[2])
        )
        for variable in (name, *numbered):
            if value := env.get(variable, "").strip():
                found.setdefault(value, Key(f"env:{variable}", Secret(value)))
    return tuple(found.values())
