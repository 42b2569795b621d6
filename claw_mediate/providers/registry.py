"""Model providers and their keys: providers.json over the environment.

docs/spec/contract.md "providers.json". ``key_answers`` says what a response tells of its key,
``key_states`` remembers it, and here is what follows from it.
"""

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

from pydantic import ValidationError

from claw_contract.base import error_line
from claw_contract.known_providers import KNOWN_PROVIDERS, KnownProvider
from claw_contract.manifest import checked_base_url
from claw_contract.providers import ApiFormat, ProviderEntry, ProviderKey, Providers
from claw_contract.secret import Secret
from claw_mediate.core.model_policy import Candidate, KeyState, PoolKey, Provider
from claw_mediate.file_cache import FileVersion, LookTimer, file_version, is_of_the_file, read_file
from claw_mediate.providers.key_answers import (
    KeyAnswer,
    answer_to_question,
    find_code,
    judge,
    key_rules,
)
from claw_mediate.providers.key_states import MAX_REST_SECONDS, KeyStates, KeyStatus, parse_rfc3339
from claw_mediate.telemetry.event_log import EventLog, rfc3339

_MAX_HOSTS = 256  # Governed hosts whose provider is remembered
_REST_SECONDS = 2.0  # Rest without a ``Retry-After``: short enough for a turn to wait
_ACCOUNT_REST_SECONDS = 60.0
_MAX_ACCEPTED = 2  # Scopes that are noted for a key: of two, one is always another's


_KNOWN_HOSTS = {urlsplit(known.base_url or "").hostname or "" for known in KNOWN_PROVIDERS.values()}


@dataclass(frozen=True, slots=True)
class AuthPaths:
    """The directories of providers.json and of key states."""

    directory: Path
    key_states: Path
    """Another directory than the first where that one is read-only."""


class ProviderRegistry:
    """All providers by file and environment, and the states of their keys."""

    def __init__(
        self,
        auth: AuthPaths,
        hosts: Mapping[str, str],
        log: EventLog,
        env: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
        look_seconds: float = 0.0,
    ) -> None:
        """Look at the files once in ``look_seconds``; 0: whenever they are needed.

        Raise ``ValueError`` with one line if a ``<NAME>_BASE_URL`` is no base URL.
        """
        for known in KNOWN_PROVIDERS.values():
            variable = f"{known.env}_BASE_URL"
            try:
                if url := env.get(variable):
                    checked_base_url(url)
            except ValueError as error:
                raise ValueError(f"{variable}: {error}") from error

        # The providers, by the file as it was last read
        self._file = auth.directory / "providers.json"
        self._extra_hosts = hosts
        self._env = dict(env)
        self._log = log
        self._version: FileVersion | bool = False  # False: the file is to be read in any case
        self._providers: dict[str, Provider] = {}
        self.problem: str | None = None  # Why the file is not in force, in one line
        self._look_timer = LookTimer(look_seconds)

        # What was computed, each with the providers that it was computed from
        self._hosts_cache: tuple[dict[str, Provider], frozenset[str]] = {}, frozenset()
        self._by_host: tuple[dict[str, Provider], dict[str, Provider | None]] = {}, {}

        # Their keys
        self._key_states = KeyStates(auth.key_states, log, clock, look_seconds)
        self._accepted: dict[tuple[str, Secret], frozenset[str]] = {}
        """The scopes for which a server that may be a gateway accepted each key.

        By provider name and secret; at most ``_MAX_ACCEPTED`` of each.
        """
        self.ask: Callable[[Provider, PoolKey], None] | None = None
        """Asks the provider in the background whether a key is sound, and records the answer.

        None where nobody can.
        """

    def all(self) -> dict[str, Provider]:
        """Return all providers by name.

        A broken file is logged once, and the last good one stays in force; so it does while the
        file can't be read for a reason that passes, and then each look reads it again.
        """
        if not self._look_timer.is_due():
            return self._providers

        version = file_version(self._file)
        self._look_timer.restart()
        if version == self._version:
            return self._providers

        no_entries = Providers(providers={})
        try:
            entries = no_entries
            if version is not None:
                entries = Providers.model_validate_json(read_file(self._file))
        except (OSError, ValidationError) as error:
            self._note_problem(error, version)
            if not self._providers:
                # There was no good file before: the known providers are there, without any key.
                self._providers = _merge(no_entries, {})
        else:
            self._version = version
            self.problem = None
            self._providers = _merge(entries, self._env)
        return self._providers

    def _note_problem(self, error: OSError | ValidationError, version: FileVersion) -> None:
        """Note why this version of the file is not in force, and log it once.

        If the reason passes, the next look reads the file again.
        """
        reason = error_line(error)
        is_passing = isinstance(error, OSError) and not is_of_the_file(error)
        is_logged = is_passing and self._version is False and self.problem is not None
        if not is_logged:
            name = self._file.name
            self._log.event("error", error="providers_broken", file=name, reason=reason)

        self._version = False if is_passing else version
        self.problem = f"{self._file.name} can't be used: {reason}"

    def clear_cache(self) -> dict[str, Provider]:
        """Read the file anew on its next use. Return the providers so far."""
        self._version = False
        self._look_timer.reset()
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
        """Return the provider of a governed host, by the file as it was last read.

        That is recent: each request first asks which hosts are governed, which reads the file.
        """
        providers = self._providers or self.all()
        if self._by_host[0] is not providers:
            self._by_host = providers, {}

        found = self._by_host[1]
        if host in found:
            return found[host]

        provider = self._find_by_host(host)
        if len(found) < _MAX_HOSTS:
            found[host] = provider
        return provider

    def _find_by_host(self, host: str) -> Provider | None:
        host = host.lower()
        providers = self._providers
        name = self._extra_hosts.get(host)
        if name is not None:
            return providers.get(name)

        for known_name, known in KNOWN_PROVIDERS.items():
            if known.base_url and urlsplit(known.base_url).hostname == host:
                return providers.get(known_name)

        for provider in providers.values():
            if provider.host == host:
                return provider
        return None

    def hosts(self) -> frozenset[str]:
        providers = self.all()
        if self._hosts_cache[0] is not providers:
            hosts = (
                _KNOWN_HOSTS
                | set(self._extra_hosts)
                | {provider.host for provider in providers.values()}
            )
            self._hosts_cache = providers, frozenset(hosts - {""})
        return self._hosts_cache[1]

    def by_model(self, model: str, family: str) -> Candidate:
        """Return the provider and model of a request at the proxy's own listener.

        The provider is the one that the model's prefix names, else the one that the path's family
        is named after, else the first usable one that speaks the same format.
        """
        providers = self.all()
        prefix, slash, rest = model.partition("/")
        if slash and prefix in providers:
            return Candidate(providers[prefix], rest)

        api_format: ApiFormat = "anthropic" if family == "anthropic" else "openai"
        # Each format has the name of a known provider, which is always there.
        default = providers.get(family) or providers[api_format]
        if default.is_usable or family not in get_args(ApiFormat.__value__):
            return Candidate(default, model)

        for provider in providers.values():
            if provider.is_usable and provider.api_format == api_format:
                return Candidate(provider, model)
        return Candidate(default, model)

    def ready(self, provider: Provider, scope: str | None) -> list[PoolKey | None]:
        """Return the keys that may be used for a scope (``KeyAnswer``) now, in order.

        [None] for a provider that takes no key. Dead keys are not among them: they are tried by
        ``claim`` and ``check_dead_keys``.
        """
        if provider.auth == "none":
            return [None]

        now = self._key_states.now()
        return [
            status.key
            for status in self._key_states.statuses(provider, scope)
            if status.ready_at <= now
        ]

    def claim(self, provider: Provider) -> PoolKey | None:
        """Return a dead key whose time for a trial has come, for the one request that tries it.

        None if there is none. The caller must give the outcome to ``record_response``.
        """
        now = self._key_states.now()
        for status in self._dead(provider):
            if status.retry_at <= now and self._key_states.claim(provider.name, status.key):
                return status.key
        return None

    def check_dead_keys(self, provider: Provider) -> None:
        """Ask the provider about a dead key whose time for a trial has come.

        For requests that have another key, and so need not try the dead one. Call it after
        ``ready``, which has read the states.
        """
        if not self._key_states.has_any:
            return
        key = self.claim(provider)
        if key is None:
            return

        # The answer to the question decides, and not that of a request which was sent before the
        # key died.
        self._key_states.end_trial(provider.name, key)
        self._ask(provider, key)

    def _dead(self, provider: Provider) -> list[KeyStatus]:
        """Return the dead keys that may be tried again, now or later."""
        if provider.auth == "none":
            return []

        statuses = self._key_states.statuses(provider, None)
        return [status for status in statuses if status.retry_at < math.inf]

    def wait(self, provider: Provider, scope: str | None) -> float:
        """Return the seconds until a key may be used for a scope; ``inf`` while all are dead.

        With ``scope`` None, rests for a scope don't count.
        """
        if provider.auth == "none":
            return 0.0

        now = self._key_states.now()
        statuses = self._key_states.statuses(provider, scope)
        if any(status.retry_at <= now for status in statuses):
            return 0.0

        first_ready = min((status.ready_at for status in statuses), default=math.inf)
        return max(0.0, first_ready - now)

    def has_usable_key(self) -> bool:
        """Return whether any provider has a key that rests at most, or may be tried again."""
        return any(self.wait(provider, None) < math.inf for provider in self.all().values())

    def count_keys(self) -> dict[tuple[str, KeyState], int]:
        """Return the number of keys by provider and state; a key that rests for any scope rests."""
        now = self._key_states.now()
        counts: dict[tuple[str, KeyState], int] = {}
        for provider in self.all().values():
            statuses = self._key_states.statuses(provider, None)
            resting = self._key_states.resting(provider)
            for key, ready_at, _ in statuses:
                state: KeyState = "ready"
                if ready_at == math.inf:
                    state = "dead"
                elif ready_at > now or key.id in resting:
                    state = "cooldown"
                counts[provider.name, state] = counts.get((provider.name, state), 0) + 1
        return counts

    def rest(self, retry_after: str) -> float | None:
        """Return ``Retry-After`` in seconds, bounded; None if it is not usable."""
        return parse_retry_after(retry_after, self._key_states.now())

    def record_response(self, provider: Provider, key: PoolKey, answer: KeyAnswer) -> bool:
        """Record what a response, or the lack of one, tells of its key.

        Return whether to try the next key.
        """
        verdict = judge(provider, answer)
        # Only the trial's own answer revives a dead key: others were sent before it died.
        was_dead = self._key_states.end_trial(provider.name, key)

        if verdict == "bad":
            if self._works_elsewhere(provider, key, answer.scope):
                # A gateway accepted this key for another model. So it may have passed on an error
                # about its own key at this model's provider.
                self._ask(provider, key)
            else:
                reason = find_code(key_rules(provider).bad_key, answer.body)
                self._kill(provider, key, answer.status, reason)
            return True

        if verdict == "doubtful":
            self._ask(provider, key)
            # A key that was dead is probably dead still. With any other key, the refusal is
            # probably about the request.
            return was_dead
        if verdict == "unknown" and was_dead:
            self._ask(provider, key)
            return False

        # Any other answer lets the key in, or says nothing of a key that was not dead.
        if verdict == "accepted":
            self._note_accepted(provider, key, answer)
        if was_dead:
            self._revive(provider, key)

        if verdict == "account":
            self._rest(provider, key, answer, for_all=True)
            return True
        if verdict == "throttled":
            if answer.scope is not None:
                self._rest(provider, key, answer, for_all=False)
            return True
        return False

    def _note_accepted(self, provider: Provider, key: PoolKey, answer: KeyAnswer) -> None:
        """Note that a server which may be a gateway answered a request for a scope."""
        if answer.scope is None or not answer.is_model_call:
            return
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES or not key_rules(provider).may_be_gateway:
            return

        scopes = self._accepted.get((provider.name, key.secret), frozenset())
        if len(scopes) < _MAX_ACCEPTED and answer.scope not in scopes:
            self._accepted[provider.name, key.secret] = scopes | {answer.scope}

    def _works_elsewhere(self, provider: Provider, key: PoolKey, scope: str | None) -> bool:
        """Return True if a server that may be a gateway has let a key in for another scope."""
        return any(each != scope for each in self._accepted.get((provider.name, key.secret), ()))

    def record_answer_to_question(
        self, provider: Provider, key: PoolKey, status: int, body: bytes
    ) -> None:
        """Record what the provider answered when it was asked about a key."""
        verdict = answer_to_question(provider, status, body)
        if verdict == "bad":
            self._kill(provider, key, status, "refused_when_asked")
        elif verdict == "accepted":
            self._revive(provider, key)

    def _ask(self, provider: Provider, key: PoolKey) -> None:
        if self.ask is not None:
            self.ask(provider, key)

    def _kill(self, provider: Provider, key: PoolKey, status: int, reason: str) -> None:
        self._accepted.pop((provider.name, key.secret), None)
        if self._key_states.kill(provider.name, key, status):
            event = {"action": "dead", "reason": reason, "cooldown_until": None}
            self._log.event("provider_pool", provider=provider.name, key_id=key.id, **event)

    def _revive(self, provider: Provider, key: PoolKey) -> None:
        if self._key_states.revive(provider.name, key):
            event = {"action": "ready", "reason": "accepted", "cooldown_until": None}
            self._log.event("provider_pool", provider=provider.name, key_id=key.id, **event)

    def _rest(self, provider: Provider, key: PoolKey, answer: KeyAnswer, *, for_all: bool) -> None:
        """Let a key rest for the answer's scope, or for all because of its account."""
        if for_all:
            scope = None
            seconds = _ACCOUNT_REST_SECONDS
            reason = find_code(key_rules(provider).account, answer.body)
        else:
            asked = self.rest(answer.retry_after)
            scope = answer.scope
            seconds = _REST_SECONDS if asked is None else asked
            reason = f"http_{answer.status}"

        until = self._key_states.rest(provider.name, key, scope, seconds, answer.status)
        if until is not None:
            event = {
                "action": "cooldown",
                "reason": reason,
                "cooldown_until": rfc3339(until),
                "model": scope,
            }
            self._log.event("provider_pool", provider=provider.name, key_id=key.id, **event)

    def secrets(self) -> list[Secret]:
        return [key.secret for provider in self.all().values() for key in provider.keys]


def parse_retry_after(retry_after: str, now: float) -> float | None:
    """Return ``Retry-After`` (seconds or a date) in seconds, at most ``MAX_REST_SECONDS``.

    None if it is not usable. ``now`` is POSIX time.
    """
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            until = parsedate_to_datetime(retry_after)
            if until.tzinfo is None:
                until = until.replace(tzinfo=UTC)
            seconds = until.timestamp() - now
        except (ValueError, OverflowError):
            return None

    if math.isnan(seconds):
        return None
    return min(max(0.0, seconds), MAX_REST_SECONDS)


def _merge(file: Providers, env: Mapping[str, str]) -> dict[str, Provider]:
    """Return all providers by name.

    A base URL of the environment overrides the file's, and keys of the file override the
    environment's.
    """
    names = dict.fromkeys([*KNOWN_PROVIDERS, *file.providers])
    merged: dict[str, Provider] = {}
    for name in names:
        entry = file.providers.get(name, ProviderEntry())
        known = KNOWN_PROVIDERS.get(name)
        if known is None:
            prefix = re.sub(r"[^A-Z0-9]", "_", name.upper())
            known = KnownProvider(None, "bearer", "openai", prefix)

        base_url = env.get(f"{known.env}_BASE_URL") or entry.base_url or known.base_url
        if base_url is None:
            continue

        merged[name] = Provider(
            name=name,
            base_url=base_url.rstrip("/"),
            auth=entry.auth or known.auth,
            api_format=entry.api_format or known.api_format,
            keys=_file_keys(entry) or _env_keys(known, env),
        )
    return merged


def _file_keys(entry: ProviderEntry) -> tuple[PoolKey, ...]:
    """Return the keys of an entry, the active one first, and that of the file's first version."""
    entries = sorted(entry.keys, key=lambda key: key.id != entry.active_key_id)
    keys = [PoolKey(key.id, key.secret, _cooldown_end(key)) for key in entries]
    if entry.api_key:
        keys.append(PoolKey("api_key", entry.api_key))
    return tuple(keys)


def _cooldown_end(key: ProviderKey) -> float:
    """Return the POSIX time before which the file forbids a key; infinite if it is laid off."""
    if key.state in {"dead", "disabled"}:
        return math.inf
    if key.state != "cooldown":
        return 0.0

    try:
        return parse_rfc3339(key.cooldown_until or "")
    except (ValueError, OverflowError):
        return 0.0


def _env_keys(known: KnownProvider, env: Mapping[str, str]) -> tuple[PoolKey, ...]:
    """Return the keys of a provider's variables, such as ``OPENAI_API_KEY``, ``OPENAI_API_KEY_2``.

    A key that is in several of them is returned once.
    """
    keys: dict[str, PoolKey] = {}
    for name in known.keys:
        numbered = [key for key in env if re.fullmatch(rf"{name}_[0-9]{{1,18}}", key)]
        numbered.sort(key=lambda key: int(key.rpartition("_")[2]))
        for variable in (name, *numbered):
            value = env.get(variable, "").strip()
            if value:
                keys.setdefault(value, PoolKey(f"env:{variable}", Secret(value)))
    return tuple(keys.values())
