"""Files that may change at any time.

They are read again when their version changes, and never while half written.

A version has the ctime too, which nobody can set back: a file that was written in place, or copied
with the old one's times, may have the same inode, mtime and size.
"""

import errno
import math
import os
import stat
import time
from pathlib import Path

from claw_contract.secret import Secret, SecretRef

type FileVersion = tuple[int, int, int, int] | None
"""Inode, mtime in ns, ctime in ns, size; None for a missing file."""


MAX_FILE_BYTES = 16 * 1024 * 1024
_OF_THE_FILE = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EACCES,
        errno.EPERM,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENXIO,
        errno.EINVAL,
    }
)


def file_version(path: Path | str, dir_fd: int | None = None) -> FileVersion:
    """Return the version of a file, as a cache key (docs/spec/contract.md "Layout")."""
    try:
        status = os.stat(path, dir_fd=dir_fd)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return 0, 0, 0, 0  # it exists but can't be examined; reading it will say why
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def read_file(name: str | Path, dir_fd: int | None = None) -> bytes:
    """Return a file's content.

    With ``dir_fd``, all files come from one directory even if it is replaced meanwhile.

    Raise ``OSError``, also unless it is a regular file of at most ``MAX_FILE_BYTES``: reading a
    FIFO would block.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=dir_fd)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
            raise OSError(errno.EINVAL, "not a regular file of a sane size")
        return file.read()


def is_of_the_file(error: OSError) -> bool:
    """Return whether an error is about the file itself, and stays until that changes.

    Any other error, as of too many open files, is about the machine, and passes: then the file is
    to be read again though its version is the same.
    """
    return error.errno in _OF_THE_FILE


class LookTimer:
    """The time at which files are looked at again: at most once in so many seconds.

    A stat gives the interpreter's lock away, so that one for each file and request costs more than
    its own time.
    """

    __slots__ = ("_due_at", "_looked_at", "_seconds")

    def __init__(self, seconds: float) -> None:
        """With 0 seconds, the files are looked at whenever somebody asks for them."""
        self._seconds = seconds
        self._looked_at = self._due_at = -math.inf

    def is_due(self) -> bool:
        # A clock that went back, as that of a restored machine, must not put the look off.
        return not self._looked_at <= time.monotonic() < self._due_at

    def restart(self) -> None:
        """Note that the files are looked at now."""
        self._looked_at = time.monotonic()
        self._due_at = self._looked_at + self._seconds

    def reset(self) -> None:
        """Make the next look due."""
        self._due_at = -math.inf


class MissingCredentialError(Exception):
    """A reference to a credential file that does not exist or can't be read."""


def resolve_secret(secrets: Path, value: Secret | SecretRef) -> Secret:
    """Return the credential; a reference names a file of the secrets directory.

    Raise ``MissingCredentialError``.
    """
    if isinstance(value, Secret):
        return value

    try:
        return Secret(read_file(secrets / value.secret).decode().strip())
    except (OSError, ValueError) as error:
        raise MissingCredentialError from error
