"""Files below a directory that is open: whole or not at all, and by no symlink."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def read(top: int, within: str, name: str) -> tuple[os.stat_result, bytes] | None:
    """What a file is, and what it holds; None where there is none."""
    try:
        with (
            directory(top, within) as parent,
            os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent), "rb") as file,
        ):
            return os.fstat(file.fileno()), file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _named(error, f"{within}/{name}") from None


@contextmanager
def directory(parent: int | None, name: str, mode: int | None = None, owner: int | None = None) -> Iterator[int]:
    """A directory, open; with ``mode`` it is made, and has that mode."""
    if mode is not None:
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=parent)
    try:
        opened = os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError as error:
        raise _named(error, name) from None
    try:
        if mode is not None:
            if owner is not None:
                os.fchown(opened, owner, -1)
            os.fchmod(opened, mode)  # whatever the umask takes away
        yield opened
    finally:
        os.close(opened)


def write(parent: int, name: str, content: bytes, mode: int, owner: int | None = None) -> None:
    """One file, whole or not at all."""
    fresh = unfinished(name)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            if owner is not None:
                os.fchown(descriptor, owner, -1)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.rename(fresh, name, src_dir_fd=parent, dst_dir_fd=parent)
        os.fsync(parent)
    finally:
        remove(parent, fresh)


def unfinished(name: str) -> str:
    return f".{name}.new"


def exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def remove(parent: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


def _named(error: OSError, name: str) -> OSError:
    """Which file it was: a descriptor's error does not say. A symlink is told as one."""
    is_link = error.errno in {errno.ELOOP, errno.ENOTDIR}
    return OSError(error.errno, "a symlink, or no directory: it is not followed" if is_link else error.strerror, name)
