"""The lease on a turn: which mediator runs it, and proof that this mediator is alive.

Each mediator has a unique id, its ``life``. A process may have two mediators: after a change of
settings a second one starts while the turns of the first go on. Host names and process numbers are
only for people to read: two containers may share both.

On a server only the lease counts. With a SQLite file each mediator also holds a lock on a file next
to it, which the kernel releases when the process dies. All users of such a file are on one machine,
because SQLite's write-ahead log requires it.
"""

import fcntl
import glob
import os
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

LEASE_SECONDS = 10.0  # Time without a sign of life after which a process no longer holds a turn


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """A mediator as others see it in a shared state."""

    node: str
    pid: int
    life: str
    file: str = ""
    """The SQLite file next to which it proves that it is alive; "" for other states."""

    @classmethod
    def current(cls) -> "LeaseOwner":
        """Return a new owner in this process."""
        return cls(socket.gethostname(), os.getpid(), uuid.uuid4().hex)

    def with_file(self, file: str) -> "LeaseOwner":
        return replace(self, file=file)

    @property
    def name(self) -> str:
        return f"{self.node}/{self.pid}/{self.life}"

    def may_be_held_elsewhere(self, name: str, silent: float) -> bool:
        """Return True if another mediator may still hold a turn.

        ``silent``: the seconds since it was last heard of.
        """
        return name != self.name and self.may_be_held(name, silent)

    def may_be_held(self, name: str, silent: float) -> bool:
        """Return True if a mediator, this one or another, may still hold a turn."""
        # A sign of life from the future is of a clock that was set back.
        if abs(silent) >= LEASE_SECONDS:
            return False
        if name == self.name or not self.file:
            return True

        life = name.rpartition("/")[-1]
        return holder_lives(self.file, life)


class LifeLock:
    """Proof that a mediator lives: a lock on a file next to the state.

    It is held until ``close`` or the end of the process.
    """

    def __init__(self, file: str, life: str) -> None:
        """Raise ``OSError`` if the lock can't be taken.

        Lock files of dead mediators are removed.
        """
        self._path = _lock_path(file, life)
        for other in self._path.parent.glob(f"{glob.escape(Path(file).name)}-life-*"):
            with suppress(OSError):
                if not _is_locked(other):
                    other.unlink()
        self._descriptor: int | None = _lock(self._path)

    def close(self) -> None:
        """Release the lock.

        A second call does nothing: the number of the descriptor may be another file's by then.
        """
        descriptor = self._descriptor
        self._descriptor = None
        if descriptor is None:
            return

        with suppress(OSError):
            self._path.unlink()
        os.close(descriptor)


def holder_lives(file: str, life: str) -> bool:
    """Return True if the mediator of that life is alive, or if that can't be determined."""
    try:
        return _is_locked(_lock_path(file, life))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _lock_path(file: str, life: str) -> Path:
    return Path(f"{file}-life-{life}")


def _lock(path: Path) -> int:
    """Create and lock a file, and return its descriptor."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor

        # Before we had the lock, another process took the file for that of a dead mediator, and
        # removed it.
        os.close(descriptor)


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
