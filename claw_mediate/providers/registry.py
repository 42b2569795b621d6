"""Model providers and their keys: providers.json over the environment (docs/spec/contract.md "providers.json").

A response tells the state of its key: dead after 401, 402, and 429 if the account is out of quota; resting after any other
429, as long as ``Retry-After`` says. A 403 changes nothing: moderation, region and a model's permissions are 403 too.

Each key that is not ready has a small file, named by a digest of provider and secret and replaced atomically. So processes that
share the directory do not overwrite each other's states, a new secret starts afresh, and an operator revives a key by removing
its file (docs/decisions/0012).
"""

import hashlib
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

from pydantic import ValidationError

from claw_contract.base import error_line
from claw_contract.known_providers import KNOWN_PROVIDERS, KnownProvider
from claw_contract.manifest import checked_base_url
from claw_contract.providers import ApiFormat, KeyRecord, ProviderEntry, ProviderKey, Providers
from claw_contract.secret import Secret
from claw_mediate.core.model_policy import Candidate, KeyState, PoolKey, Provider
from claw_mediate.file_cache import FileVersion, file_version, read_file
from claw_mediate.telemetry.event_log import EventLog, rfc3339

MAX_REST_SECONDS = 3600.0
_MIN_STORED_SECONDS = 5.0  # A shorter rest is not worth a file: it is over before a new process could use it
_MTIME_STEP_NS = 100_000_000  # Resolution of a file system's times
_SAME_SECONDS = 1.0  # Times this close are one finding of concurrent requests


class KeyStates:
    """The time at which each key is ready again, by provider and secret; ``inf`` for a dead one."""

    def __init__(self, directory: Path, log: EventLog, clock: Callable[[], float] = time.time) -> None:
        self.now = clock
        self._directory = directory
        self._log = log
        self._version: FileVersion | bool = False
        self._stored: dict[str, float] = {}
        self._unstored: dict[str, float] = {}
        self._broken: dict[str, FileVersion] = {}
        self._is_writable = True

    def ready_at(self, provider: str, key: PoolKey) -> float:
        """Return when the key is ready again, as POSIX time; in the past if it is ready now."""
        self._load()
        return self._ready_at(provider, key)

    def times(self, provider: Provider) -> list[tuple[PoolKey, float]]:
        """Return the keys of a provider in order, each with the time when it is ready again."""
        if provider.keys:
            self._load()
        return [(key, self._ready_at(provider.name, key)) for key in provider.keys]

    def _ready_at(self, provider: str, key: PoolKey) -> float:
        if not self._stored and not self._unstored:
            return key.unavailable_until
        name = _file_name(provider, key.secret)
        return max(key.unavailable_until, self._stored.get(name, 0.0), self._unstored.get(name, 0.0))

    def block(self, provider: str, key: PoolKey, until: float, status: int) -> bool:
        """Block the key until a POSIX time, also after a restart. Return False if that was known."""
        if until <= self.ready_at(provider, key) + _SAME_SECONDS:
            return False
        name, now = _file_name(provider, key.secret), self.now()
        self._unstored[name] = until
        if until - now < _MIN_STORED_SECONDS:
            return True
        record = KeyRecord(
            provider=provider,
            key_id=key.id,
            secret_sha256=hashlib.sha256(key.secret.reveal().encode()).hexdigest(),
            state="dead" if until == math.inf else "cooldown",
            cooldown_until=None if until == math.inf else rfc3339(until),
            last_error_code=status,
            at=rfc3339(now),
        )
        try:
            self._write(name, record)
        except OSError as error:
            if self._is_writable:
                self._log.event("error", error="key_states_not_written", reason=error.strerror)
            self._is_writable = False
        else:
            self._is_writable = True
            self._stored[name] = self._unstored.pop(name)
        return True

    def _write(self, name: str, record: KeyRecord) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=self._directory, prefix=".")  # of mode 0600
        staged = Path(temporary)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(record.model_dump_json(exclude_none=True).encode() + b"\n")
                file.flush()
                os.fsync(descriptor)
            staged.replace(self._directory / name)
        except OSError:
            with suppress(OSError):
                staged.unlink()
            raise

    def _load(self) -> None:
        version = file_version(self._directory)
        if version == self._version:
            return
        # A second change within one step of the file system's time would look unchanged.
        is_stable = version is None or time.time_ns() - version[1] > _MTIME_STEP_NS
        self._version = version if is_stable else False
        self._stored = {}
        for file in sorted(self._directory.glob("[!.]*.json")) if version else ():
            try:
                record = KeyRecord.model_validate_json(read_file(file))
                until = math.inf if record.state == "dead" else parse_rfc3339(record.cooldown_until or "")
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                self._log_broken(file, error)
            else:
                longest = math.inf if until == math.inf else self.now() + MAX_REST_SECONDS
                self._stored[file.name] = min(until, longest)

    def _log_broken(self, file: Path, error: Exception) -> None:
        """Log a broken file once for each version; its key starts afresh."""
        version = file_version(file)
        if self._broken.get(file.name) != version:
            self._broken[file.name] = version
            reason = error_line(error) if isinstance(error, ValidationError) else "unreadable"
            self._log.event("error", error="key_state_broken", file=file.name, reason=reason)


def parse_rfc3339(text: str) -> float:
    """Return the POSIX time; UTC is the default zone. Raise ``ValueError``."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@lru_cache(maxsize=256)
def _file_name(provider: str, secret: Secret) -> str:
    return hashlib.sha256(f"{provider}\0{secret.reveal()}".encode()).hexdigest() + ".json"


_MAX_HOSTS = 256  # Governed hosts whose provider is remembered
RATE_LIMITED = 429
KEY_REJECTED = frozenset({401, 402})
_REST_SECONDS = 2.0  # Rest without a ``Retry-After``: short enough for a turn to wait
_OUT_OF_QUOTA = re.compile(rb'"(?:code|type)"\s*:\s*"(?:insufficient_quota|billing_[a-z_]{1,40})"')
"""OpenAI's codes, not wording: Gemini says "quota" and "billing" in every 429, even for a limit per minute."""
_ERROR_BYTES = 4096


_KNOWN_HOSTS = {urlsplit(known.base_url or "").hostname or "" for known in KNOWN_PROVIDERS.values()}


@dataclass(frozen=True, slots=True)
class AuthPaths:
    """The directory of providers.json, and the directory of key states: another one where the former is read-only."""

    directory: Path
    key_states: Path


class ProviderRegistry:
    """All providers by file and environment, and the states of their keys."""

    def __init__(
        self,
        auth: AuthPaths,
        hosts: Mapping[str, str],
        log: EventLog,
        env: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raise ``ValueError`` with one line if a ``<NAME>_BASE_URL`` is no base URL."""
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
        self._version: FileVersion | bool = False
        self._providers: dict[str, Provider] = {}
        self.problem: str | None = None  # Why the file is not in force, in one line
        self._hosts_cache: tuple[dict[str, Provider], frozenset[str]] = {}, frozenset()
        self._by_host: tuple[dict[str, Provider], dict[str, Provider | None]] = {}, {}
        self._key_states = KeyStates(auth.key_states, log, clock)

    def all(self) -> dict[str, Provider]:
        """Return all providers by name. A broken file is logged once, and the last good one stays in force."""
        version = file_version(self._file)
        if version != self._version:
            self._version, self.problem = version, None
            try:
                entries = Providers.model_validate_json(read_file(self._file)) if version else Providers(providers={})
            except (OSError, ValidationError) as error:
                reason = error_line(error)
                self._log.event("error", error="providers_broken", file=self._file.name, reason=reason)
                entries, self.problem = None, f"{self._file.name} can't be used: {reason}"
            if entries is not None:
                self._providers = _merge(entries, self._env)
            elif not self._providers:
                self._providers = _merge(Providers(providers={}), {})
        return self._providers

    def clear_cache(self) -> dict[str, Provider]:
        """Read the file anew on its next use. Return the providers so far."""
        self._version = False
        return self._providers

    @property
    def may_be_filled(self) -> bool:
        """True if there is a sound providers.json: keys may be added to it later."""
        self.all()
        return bool(self._version) and self.problem is None

    def by_host(self, host: str) -> Provider | None:
        """Return the provider of a governed host; None for any other host."""
        self.all()
        return self.by_host_as_read(host)

    def by_host_as_read(self, host: str) -> Provider | None:
        """Return the same by the providers as last read: which hosts are governed was asked first of all for the request."""
        providers = self._providers or self.all()
        if self._by_host[0] is not providers:
            self._by_host = providers, {}
        found = self._by_host[1]
        if host not in found and len(found) < _MAX_HOSTS:
            found[host] = self._find_by_host(host)
        return found[host] if host in found else self._find_by_host(host)

    def _find_by_host(self, host: str) -> Provider | None:
        name = self._extra_hosts.get(host.lower())
        providers = self._providers
        if name is not None:
            return providers.get(name)
        for known_name, known in KNOWN_PROVIDERS.items():
            if known.base_url and urlsplit(known.base_url).hostname == host.lower():
                return providers.get(known_name)
        return next((provider for provider in providers.values() if provider.host == host.lower()), None)

    def hosts(self) -> frozenset[str]:
        providers = self.all()
        if self._hosts_cache[0] is not providers:
            hosts = _KNOWN_HOSTS | set(self._extra_hosts) | {provider.host for provider in providers.values()}
            self._hosts_cache = providers, frozenset(hosts - {""})
        return self._hosts_cache[1]

    def by_model(self, model: str, family: str) -> Candidate:
        """Return the provider that the model's prefix names, else that after which the paths are named (base-URL requests)."""
        providers = self.all()
        prefix, slash, rest = model.partition("/")
        if slash and prefix in providers:
            return Candidate(providers[prefix], rest)
        api_format: ApiFormat = "anthropic" if family == "anthropic" else "openai"
        default = providers.get(family) or providers[api_format]  # each format is named after its provider
        if default.is_usable or family not in get_args(ApiFormat.__value__):
            return Candidate(default, model)
        others = (p for p in providers.values() if p.is_usable and p.api_format == api_format)
        return Candidate(next(others, default), model)

    def ready(self, provider: Provider) -> list[PoolKey | None]:
        """Return the keys that may be tried now, in order; [None] for a provider without authentication."""
        if provider.auth == "none":
            return [None]
        now = self._key_states.now()
        return [key for key, ready_at in self._key_states.times(provider) if ready_at <= now]

    def wait(self, provider: Provider) -> float:
        """Return the seconds until the provider has a ready key; ``inf`` when all are dead."""
        if provider.auth == "none":
            return 0.0
        times = (ready_at for _, ready_at in self._key_states.times(provider))
        return max(0.0, min(times, default=math.inf) - self._key_states.now())

    def has_usable_key(self) -> bool:
        """Return whether any provider has a key that is not dead."""
        return any(self.wait(provider) < math.inf for provider in self.all().values())

    def count_keys(self) -> dict[tuple[str, KeyState], int]:
        now, counts = self._key_states.now(), dict[tuple[str, KeyState], int]()
        for provider in self.all().values():
            for _, ready_at in self._key_states.times(provider):
                state: KeyState = "ready" if ready_at <= now else "dead" if ready_at == math.inf else "cooldown"
                counts[provider.name, state] = counts.get((provider.name, state), 0) + 1
        return counts

    def rest(self, retry_after: str) -> float | None:
        """Return ``Retry-After`` in seconds, bounded; None if it is not usable."""
        return parse_retry_after(retry_after, self._key_states.now())

    def record_response(self, provider: Provider, key: PoolKey, status: int, retry_after: str, body: bytes = b"") -> bool:
        """Record what a response tells of its key. Return whether to try the next key."""
        now = self._key_states.now()
        quota = is_out_of_quota(status, body)
        if quota or status in KEY_REJECTED:
            until = math.inf
        elif status == RATE_LIMITED:
            asked = self.rest(retry_after)
            until = now + (_REST_SECONDS if asked is None else asked)
        else:
            return False
        if self._key_states.block(provider.name, key, until, status):
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


def is_out_of_quota(status: int, body: bytes) -> bool:
    return status == RATE_LIMITED and _OUT_OF_QUOTA.search(body[:_ERROR_BYTES]) is not None


def parse_retry_after(retry_after: str, now: float) -> float | None:
    """Return ``Retry-After`` (seconds or a date) in seconds, at most ``MAX_REST_SECONDS``; None if it is not usable."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            until = parsedate_to_datetime(retry_after)
            seconds = (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return None if math.isnan(seconds) else min(max(0.0, seconds), MAX_REST_SECONDS)


def _merge(file: Providers, env: Mapping[str, str]) -> dict[str, Provider]:
    names = [*KNOWN_PROVIDERS, *(name for name in file.providers if name not in KNOWN_PROVIDERS)]
    merged = {}
    for name in names:
        entry, known = file.providers.get(name, ProviderEntry()), KNOWN_PROVIDERS.get(name)
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
    return (*(PoolKey(key.id, key.secret, _cooldown_end(key)) for key in keys), *from_v1)


def _cooldown_end(key: ProviderKey) -> float:
    if key.state in {"dead", "disabled"}:
        return math.inf
    try:
        return parse_rfc3339(key.cooldown_until or "") if key.state == "cooldown" else 0.0
    except (ValueError, OverflowError):
        return 0.0


def _env_keys(known: KnownProvider | None, env: Mapping[str, str]) -> tuple[PoolKey, ...]:
    keys: dict[str, PoolKey] = {}
    for name in known.keys if known else ():
        numbered = sorted(
            (key for key in env if re.fullmatch(rf"{name}_\d+", key)), key=lambda key: int(key.rpartition("_")[2])
        )
        for variable in (name, *numbered):
            if value := env.get(variable, "").strip():
                keys.setdefault(value, PoolKey(f"env:{variable}", Secret(value)))
    return tuple(keys.values())
