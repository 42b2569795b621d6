"""That a mediator is alive, as the others on its file of SQLite see it: it holds a lock on a file beside that one, which the
kernel takes from it when it dies, however it dies. Names and numbers of machines and processes prove nothing: two containers
may have the same. (Who share such a file are on one machine: SQLite's write-ahead log asks for that.)
"""

from __future__ import annotations

import fcntl
import glob
import os
from contextlib import suppress
from pathlib import Path


class LifeLock:
    """Held from here on, until it is closed or the process ends."""

    def __init__(self, file: str, name: str) -> None:
        """Raises ``OSError``."""
        self._path = _path(file, name)
        for left in self._path.parent.glob(f"{glob.escape(Path(file).name)}-life-*"):
            with suppress(OSError):
                if not _is_locked(left):
                    left.unlink()  # by one that died
        self._held: int | None = _locked(self._path)

    def close(self) -> None:
        """Once: the second time the descriptor may be somebody else's."""
        held, self._held = self._held, None
        if held is not None:
            with suppress(OSError):
                self._path.unlink()
            os.close(held)


def holder_lives(file: str, name: str) -> bool:
    """Whether the one of that name does. Where that can't be seen it may."""
    try:
        return _is_locked(_path(file, name))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _path(file: str, name: str) -> Path:
    return Path(f"{file}-life-{name}")


def _locked(path: Path) -> int:
    while True:
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
        if os.fstat(held).st_nlink:
            return held
        os.close(held)  # somebody has just cleared it away


def _is_locked(path: Path) -> bool:
    looking = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(looking, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(looking)
    return False
