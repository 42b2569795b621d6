"""Files that may change at any moment: read when their identity (inode, mtime, size) changes, never half written."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from claw_contract.secret import Secret, SecretRef

type FileVersion = tuple[int, int, int] | None
"""(inode, mtime in ns, size); None where there is no such file."""


MAX_FILE_BYTES = 16 * 1024 * 1024
"""A longer file is no manifest."""


def file_version(path: Path | str, dir_fd: int | None = None) -> FileVersion:
    """What a cache is keyed by (spec/contract.md "Layout")."""
    try:
        found = os.stat(path, dir_fd=dir_fd)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return 0, 0, 0  # there is something that can't be looked at; reading it will say why
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_file(name: str | Path, dir_fd: int | None = None) -> bytes:
    """A file, of an opened directory where there is one: an agent's files come from one tree, though it be swapped.

    Only a regular file of a sane size: opening a FIFO would wait for ever, and a device never ends. Raises ``OSError``.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=dir_fd)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
            raise OSError(errno.EINVAL, "not a regular file of a sane size")
        return file.read()


class MissingCredentialError(Exception):
    """A token reference that leads nowhere."""


def resolve_secret(secrets: Path, value: Secret | SecretRef) -> Secret:
    """Return the credential; a reference names a file of the secrets directory. Raise ``MissingCredentialError``."""
    if isinstance(value, Secret):
        return value
    try:
        return Secret(read_file(secrets / value.secret).decode().strip())
    except (OSError, ValueError) as error:
        raise MissingCredentialError from error
