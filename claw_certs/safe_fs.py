"""File access below an open directory that follows no symlink and writes a file completely or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def read_file(top: int, directory: str, name: str) -> tuple[os.stat_result, bytes] | None:
    """Return the status and the content of ``directory/name`` below ``top``; None if it does not exist."""
    try:
        with (
            open_directory(top, directory) as parent,
            os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent), "rb") as file,
        ):
            return os.fstat(file.fileno()), file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _with_name(error, f"{directory}/{name}") from None


@contextmanager
def open_directory(parent: int | None, name: str, mode: int | None = None, owner: int | None = None) -> Iterator[int]:
    """Open a directory. With ``mode``, create it if needed and set its mode and owner."""
    if mode is not None:
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=parent)
    try:
        directory = os.open(name, _DIRECTORY_FLAGS, dir_fd=parent)
    except OSError as error:
        raise _with_name(error, name) from None
    try:
        if mode is not None:
            if owner is not None:
                os.fchown(directory, owner, -1)
            os.fchmod(directory, mode)  # mkdir's mode is reduced by the umask
        yield directory
    finally:
        os.close(directory)


def write_file(parent: int, name: str, content: bytes, mode: int, owner: int | None = None) -> None:
    """Write a file and put it in place with a rename, flushed to the disk."""
    temporary = temporary_name(name)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            if owner is not None:
                os.fchown(descriptor, owner, -1)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        os.fsync(parent)
    finally:
        remove_file(parent, temporary)


def temporary_name(name: str) -> str:
    """Return the name of a file while it is being written."""
    return f".{name}.new"


def file_exists(parent: int, name: str) -> bool:
    """Return True if anything of this name exists, a dangling symlink too."""
    return name in os.listdir(parent)


def remove_file(parent: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


def _with_name(error: OSError, name: str) -> OSError:
    """Return the error with the file's name, which an error about a descriptor lacks, and with a word about symlinks."""
    is_link = error.errno in {errno.ELOOP, errno.ENOTDIR}
    reason = "a symlink, or not a directory: it is not followed" if is_link else error.strerror
    return OSError(error.errno, reason, name)
