"""The states of provider keys, in memory and in files that processes share (docs/decisions/0012).

    dead    no request uses the key for ``RETRY_SECONDS``. Then one request tries it, and until that
            has its answer, or ``RETRY_SECONDS`` again, the others go on as if the key were dead
    rests   no request of one scope (a model), or of any, uses the key until a time at most
            ``MAX_REST_SECONDS`` ahead

A time further ahead than any state lasts was written by a clock that was wrong: then that state is
over.
"""

import fcntl
import hashlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from claw_contract.base import error_line
from claw_contract.providers import KeyRecord
from claw_contract.secret import Secret
from claw_mediate.core.model_policy import PoolKey, Provider
from claw_mediate.file_cache import FileVersion, LookTimer, file_version, is_of_the_file, read_file
from claw_mediate.telemetry.event_log import EventLog, rfc3339

MAX_REST_SECONDS = 600.0
RETRY_SECONDS = 300.0
_MAX_AHEAD_SECONDS = MAX_REST_SECONDS + 60.0  # With what the clocks of two machines may differ by
_MIN_STORED_SECONDS = 5.0
"""A shorter rest is not worth a file: it is over before a new process could use it."""
_MTIME_STEP_NS = 100_000_000  # Resolution of a file system's times
_SAME_SECONDS = 1.0  # Times this close are one finding of concurrent requests
_MAX_RESTS = 128
"""Limit of rests in files, and of those in memory.

An agent may name any model, and so cause a rest by each request.
"""
_MAX_SCOPE = 200  # Characters of a scope that count; a model's name may have any length
_LOCK = ".lock"


class KeyStatus(NamedTuple):
    """A key and its times, as POSIX time."""

    key: PoolKey
    ready_at: float
    """In the past if the key is ready; infinite if it is dead."""
    retry_at: float = math.inf
    """When a dead key may be tried.

    Infinite for any other key, and for one that the operator laid off.
    """


class _State(NamedTuple):
    is_dead: bool
    until: float  # The end of a rest, or the time when a dead key may be tried


class KeyStates:
    """The states of keys by provider and secret, and of rests by scope, too."""

    def __init__(
        self,
        directory: Path,
        log: EventLog,
        clock: Callable[[], float] = time.time,
        look_seconds: float = 0.0,
    ) -> None:
        """Look at what other processes changed once in ``look_seconds``, and before each change.

        0: also whenever a key is asked for.
        """
        self.now = clock
        self._directory = directory
        self._log = log
        self._look_timer = LookTimer(look_seconds)
        self._version: FileVersion | bool = False
        """The directory's when its files were read; False if they are to be read in any case."""
        self._stored: dict[str, _State] = {}  # By file name without its suffix
        self._unstored: dict[str, _State] = {}  # The same of states that are in no file
        self._broken: dict[str, FileVersion] = {}
        self._trials: set[str] = set()  # Dead keys that a request of this process tries
        self._is_writable = True

    @property
    def has_any(self) -> bool:
        """True if any key was not ready when the files were read last."""
        return bool(self._stored or self._unstored)

    def statuses(self, provider: Provider, scope: str | None) -> list[KeyStatus]:
        """Return the provider's keys in order, for requests of a scope.

        With ``scope`` None, rests for a scope don't count.
        """
        if provider.keys and self._look_timer.is_due():
            self._load()
        if not self.has_any:
            return [KeyStatus(key, key.unavailable_until) for key in provider.keys]

        now = self.now()
        return [self._status(provider.name, key, scope, now) for key in provider.keys]

    def _status(self, provider: str, key: PoolKey, scope: str | None, now: float) -> KeyStatus:
        name = _key_name(provider, key.secret)
        whole = self._find(name)
        if whole is not None and whole.is_dead:
            retry_at = whole.until if _is_ahead(whole, now) else 0.0
            return KeyStatus(key, math.inf, max(retry_at, key.unavailable_until))

        part = None if scope is None else self._find(_rest_name(name, scope))
        ends = [rest.until for rest in (whole, part) if rest is not None and _is_ahead(rest, now)]
        return KeyStatus(key, max(key.unavailable_until, *ends, 0.0))

    def resting(self, provider: Provider) -> set[str]:
        """Return the ids of the provider's keys that rest, for one scope at least."""
        now = self.now()
        states = [*self._stored.items(), *self._unstored.items()]
        names = {name.partition("-")[0] for name, state in states if _is_ahead(state, now)}
        return {key.id for key in provider.keys if _key_name(provider.name, key.secret) in names}

    def _find(self, name: str) -> _State | None:
        """Return the state of that name.

        Of one in a file and one in memory, return the dead key's, or else the later one.
        """
        stored = self._stored.get(name)
        unstored = self._unstored.get(name)
        if stored is None or unstored is None:
            return stored or unstored
        return max(stored, unstored)

    def kill(self, provider: str, key: PoolKey, status: int) -> bool:
        """Make the key dead, also after a restart. Return False if it was."""
        self._load()
        now = self.now()
        until = now + RETRY_SECONDS
        name = _key_name(provider, key.secret)
        before = self._find(name)
        was_dead = before is not None and before.is_dead
        if before is not None and was_dead and _is_known(before, now, until):
            return False

        self._save(name, _State(True, until), _record(provider, key, status))
        return not was_dead

    def rest(
        self, provider: str, key: PoolKey, scope: str | None, seconds: float, status: int
    ) -> float | None:
        """Let the key rest for a scope, or for all (None).

        Return its end as POSIX time; None if that was known.
        """
        self._load()
        now = self.now()
        until = now + min(seconds, MAX_REST_SECONDS)
        key_name = _key_name(provider, key.secret)
        whole = self._find(key_name)
        if whole is not None and whole.is_dead:
            return None

        name = key_name if scope is None else _rest_name(key_name, scope)
        before = self._find(name)
        if before is not None and _is_known(before, now, until):
            return None

        is_short = until - now < _MIN_STORED_SECONDS
        is_full = name not in self._stored and len(self._stored) >= _MAX_RESTS
        if is_short or is_full:
            self._remember(name, _State(False, until), now)
        else:
            self._save(name, _State(False, until), _record(provider, key, status, scope))
        return until

    def claim(self, provider: str, key: PoolKey, status: int = 0) -> bool:
        """Take the trial of a dead key whose time has come; the other requests then wait.

        Return True if this request is the one that tries it.
        """
        now = self.now()
        name = _key_name(provider, key.secret)
        with self._locked() as is_locked:
            if not is_locked:
                return False

            self._load()
            state = self._find(name)
            if state is None or not state.is_dead:
                return False
            if _is_ahead(state, now) or key.unavailable_until > now:
                return False

            self._save(name, _State(True, now + RETRY_SECONDS), _record(provider, key, status))

        self._trials.add(name)
        return True

    def end_trial(self, provider: str, key: PoolKey) -> bool:
        """Note that a request's outcome is known.

        Return True if this process had claimed the key, so that the request was its trial.
        """
        if not self._trials:
            return False

        name = _key_name(provider, key.secret)
        is_tried = name in self._trials
        self._trials.discard(name)
        return is_tried

    def revive(self, provider: str, key: PoolKey) -> bool:
        """Make a dead key ready. Return False if it was not dead."""
        self._load()
        name = _key_name(provider, key.secret)
        state = self._find(name)
        if state is None or not state.is_dead:
            return False

        with suppress(OSError):
            self._path(name).unlink()
        self._unstored.pop(name, None)
        self._stored.pop(name, None)
        return True

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Hold the lock for a claim; yield False if another process claims a key at this moment."""
        try:
            descriptor = os.open(
                self._directory / _LOCK,
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
                0o600,
            )
        except OSError:  # nothing can be written there: then no other process knows of the state
            yield True
            return

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
        finally:
            os.close(descriptor)

    def _remember(self, name: str, state: _State, now: float) -> None:
        """Keep a state in memory only."""
        if len(self._unstored) >= _MAX_RESTS:
            self._unstored = {
                each: kept
                for each, kept in self._unstored.items()
                if kept.is_dead or _is_ahead(kept, now)
            }
        if len(self._unstored) >= _MAX_RESTS:
            first_to_end = min(self._unstored, key=lambda each: self._unstored[each])
            del self._unstored[first_to_end]
        self._unstored[name] = state

    def _save(self, name: str, state: _State, record: KeyRecord) -> None:
        """Keep a state in a file; in memory if no file can be written."""
        until = rfc3339(state.until)
        now = self.now()
        update = {"at": rfc3339(now)}
        if state.is_dead:
            update |= {"state": "dead", "retry_at": until}
        else:
            update |= {"state": "cooldown", "cooldown_until": until}

        record = record.model_copy(update=update)
        try:
            self._write(name, record)
        except OSError as error:
            if self._is_writable:
                self._log.event("error", error="key_states_not_written", reason=error.strerror)
            self._is_writable = False
            self._remember(name, state, now)
        else:
            self._is_writable = True
            self._unstored.pop(name, None)
            self._stored[name] = state

    def _write(self, name: str, record: KeyRecord) -> None:
        """Replace a file as a whole, so that no process reads half of it. Raise ``OSError``."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=self._directory, prefix=".")  # of mode 0600
        staged = Path(temporary)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(record.model_dump_json(exclude_none=True).encode() + b"\n")
                file.flush()
                os.fsync(descriptor)
            staged.replace(self._path(name))
        except OSError:
            with suppress(OSError):
                staged.unlink()
            raise

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    def _load(self) -> None:
        """Read the files again if any has changed, and delete those of rests that are over.

        What can't be read now keeps the state that was known of it. If the reason passes, the next
        look reads again.
        """
        version = file_version(self._directory)
        self._look_timer.restart()
        if version == self._version:
            return

        # A second change within one step of the file system's time would look unchanged.
        is_stable = version is None or time.time_ns() - version[1] > _MTIME_STEP_NS
        self._version = version if is_stable else False
        known, self._stored = self._stored, {}
        if version is None:
            return

        try:
            files = self._files()
        except OSError as error:
            if not is_of_the_file(error):
                self._version = False
                self._stored = known
                self._log_broken(self._directory, error)
            return
        self._broken.pop(self._directory.name, None)

        now = self.now()
        for file in files:
            state = self._read_state(file, known)
            if state is None:
                continue
            if state.is_dead or _is_ahead(state, now):
                self._stored[file.stem] = state
            else:
                with suppress(OSError):
                    file.unlink()

    def _read_state(self, file: Path, known: dict[str, _State]) -> _State | None:
        """Return the state of a file; None if it has none that is sound: its key starts afresh.

        Of a file that can't be read, the known state is kept, and the file is left as it is.
        """
        try:
            state = _read(KeyRecord.model_validate_json(read_file(file)))
        except FileNotFoundError:  # another process has just deleted it
            return None
        except OSError as error:
            if not is_of_the_file(error):
                self._version = False
            if file.stem in known:
                self._stored[file.stem] = known[file.stem]
            self._log_broken(file, error)
            return None
        except (ValueError, OverflowError) as error:
            self._log_broken(file, error)
            return None

        self._broken.pop(file.name, None)
        return state

    def _files(self) -> list[Path]:
        """Return the files of states. Raise ``OSError``, which ``Path.glob`` would hide."""
        return sorted(
            file
            for file in self._directory.iterdir()
            if file.suffix == ".json" and not file.name.startswith(".")
        )

    def _log_broken(self, file: Path, error: Exception) -> None:
        """Log once for each version of a file that it can't be used, until it can be read."""
        version = file_version(file)
        if self._broken.get(file.name) == version:
            return

        self._broken[file.name] = version
        reason = error_line(error) if isinstance(error, ValidationError) else "unreadable"
        self._log.event("error", error="key_state_broken", file=file.name, reason=reason)


def _is_ahead(state: _State, now: float) -> bool:
    """Return True if the end of a rest, or a dead key's trial, has yet to come."""
    return now < state.until <= now + _MAX_AHEAD_SECONDS


def _is_known(state: _State, now: float, until: float) -> bool:
    """Return True if a state lasts as long as the one that a request has just found."""
    return _is_ahead(state, now) and until <= state.until + _SAME_SECONDS


def _record(provider: str, key: PoolKey, status: int, scope: str | None = None) -> KeyRecord:
    """Return a record without its state and times."""
    shown_scope: str | None = None
    if scope is not None:
        shown_scope = scope[:_MAX_SCOPE].encode("ascii", "backslashreplace").decode()

    return KeyRecord(
        provider=provider,
        key_id=key.id,
        secret_sha256=hashlib.sha256(key.secret.reveal().encode()).hexdigest(),
        scope=shown_scope,
        state="dead",
        last_error_code=status,
        at="",
    )


def _read(record: KeyRecord) -> _State:
    """Return the state that a record tells. Raise ``ValueError`` if its time can't be read."""
    if record.state == "cooldown":
        return _State(False, parse_rfc3339(record.cooldown_until or ""))
    if record.retry_at is not None:
        return _State(True, parse_rfc3339(record.retry_at))
    return _State(True, parse_rfc3339(record.at) + RETRY_SECONDS)  # as earlier versions wrote it


def parse_rfc3339(text: str) -> float:
    """Return the POSIX time; UTC is the default zone. Raise ``ValueError``."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@lru_cache(maxsize=256)
def _key_name(provider: str, secret: Secret) -> str:
    return hashlib.sha256(f"{provider}\0{secret.reveal()}".encode()).hexdigest()


def _rest_name(key_name: str, scope: str) -> str:
    """Return the name of a rest for one scope: the key's and a digest."""
    digest = hashlib.sha256(scope[:_MAX_SCOPE].encode(errors="surrogatepass")).hexdigest()
    return f"{key_name}-{digest[:32]}"
