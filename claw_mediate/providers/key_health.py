"""What the proxy found out about keys: dead ones (401, 402, out of quota) and resting ones (429).

One small file a key in a directory of their own, named by the digest of provider and secret, written to a temporary name
and renamed: processes that share the directory never write over each other's findings, a replaced secret starts afresh, and
an operator revives a key by removing its file (docs/decisions/0012). Files are read again when the directory changes.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from claw_contract.base import error_line
from claw_contract.providers import KeyRecord
from claw_contract.secret import Secret
from claw_mediate.core.model_policy import PoolKey
from claw_mediate.file_cache import Identity, identity, read_at
from claw_mediate.telemetry.event_log import EventLog, rfc3339

LONGEST_REST_SECONDS = 3600.0
_WORTH_WRITING_SECONDS = 5.0
"""A shorter rest is over before a new process could heed it."""
_STEP_NS = 100_000_000
_SAME_SECONDS = 1.0
"""Requests that ran side by side learn the same of a key, each a little later."""


class KeyStates:
    """By provider and secret, the time from which a key may be used again; ``inf`` for a dead one."""

    def __init__(self, directory: Path, log: EventLog, clock: Callable[[], float] = time.time) -> None:
        self.now = clock
        self._directory = directory
        self._log = log
        self._seen: Identity | bool = False
        self._written: dict[str, float] = {}
        self._unwritten: dict[str, float] = {}
        self._broken: dict[str, Identity] = {}
        self._may_write = True

    def wakes_at(self, provider: str, key: PoolKey) -> float:
        """POSIX time, in the past for a key that is ready."""
        self._read()
        name = _name(provider, key)
        return max(key.unavailable_until, self._written.get(name, 0.0), self._unwritten.get(name, 0.0))

    def note(self, provider: str, key: PoolKey, until: float, status: int) -> bool:
        """From now on, and after a restart. ``status``: what the provider answered. False: it was known already."""
        if until <= self.wakes_at(provider, key) + _SAME_SECONDS:
            return False
        name, now = _name(provider, key), self.now()
        self._unwritten[name] = until
        if until - now < _WORTH_WRITING_SECONDS:
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
            if self._may_write:
                self._log.event("error", error="key_states_not_written", reason=error.strerror)
            self._may_write = False
        else:
            self._may_write = True
            self._written[name] = self._unwritten.pop(name)
        return True

    def _write(self, name: str, record: KeyRecord) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name_now = tempfile.mkstemp(dir=self._directory, prefix=".")  # of mode 0600
        staged = Path(name_now)
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

    def _read(self) -> None:
        found = identity(self._directory)
        if found == self._seen:
            return
        # File systems count time in steps: what changes twice in one of them looks unchanged.
        settled = found is None or time.time_ns() - found[1] > _STEP_NS
        self._seen = found if settled else False
        self._written = {}
        for file in sorted(self._directory.glob("[!.]*.json")) if found else ():
            try:
                record = KeyRecord.model_validate_json(read_at(file))
                until = math.inf if record.state == "dead" else posix(record.cooldown_until or "")
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                self._is_broken(file, error)
            else:
                longest = math.inf if until == math.inf else self.now() + LONGEST_REST_SECONDS
                self._written[file.name] = min(until, longest)

    def _is_broken(self, file: Path, error: Exception) -> None:
        """Once for each content: such a key starts afresh."""
        found = identity(file)
        if self._broken.get(file.name) != found:
            self._broken[file.name] = found
            reason = error_line(error) if isinstance(error, ValidationError) else "unreadable"
            self._log.event("error", error="key_state_broken", file=file.name, reason=reason)


def posix(text: str) -> float:
    """RFC 3339 as POSIX time; without a zone it is UTC. Raises ``ValueError``."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _name(provider: str, key: PoolKey) -> str:
    return _file_of(provider, key.secret)


@lru_cache(maxsize=256)
def _file_of(provider: str, secret: Secret) -> str:
    return hashlib.sha256(f"{provider}\0{secret.reveal()}".encode()).hexdigest() + ".json"
