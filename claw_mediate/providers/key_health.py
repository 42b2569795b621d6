"""Persistent states of provider keys: dead (401, 402, out of quota) or resting (429).

Each key has a small file, named by a digest of provider and secret and replaced atomically. So processes that share the
directory do not overwrite each other's states, a new secret starts afresh, and an operator revives a key by removing its file
(docs/decisions/0012). Files are read again when the directory changes.
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
