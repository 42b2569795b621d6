"""An open folder of a workspace, and how a file in it is replaced.

Specification: docs/spec/tools-host.md "Files".

Rules. Everything in a folder is done by its descriptor, wherever its path leads meanwhile. A file
is never written in place: the new content is on the disk before one rename puts it under the name,
so that no link is written through, a reader sees the old or the new file, and a kill or a full disk
leaves the old one. A change of a folder's files holds the folder's lock, which other processes of
the host respect too. A kill can leave ``.claw-new``, which the next change in that folder removes.
"""

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

from claw_tools.errors import ErrorCode, ToolError
from claw_tools.files.openat2 import Opener

TEMPORARY: Final = ".claw-new"
"""The name of a file before it gets its own. Under the lock there is one at most."""
_LOCK_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.003
_CHUNK: Final = 1 << 20
_NEW_MODE: Final = 0o666  # The umask takes away from it
_PERMISSIONS: Final = 0o777  # Without setuid, setgid and sticky
_NO_UNNAMED_FILES: Final = {
    errno.EOPNOTSUPP,
    errno.EISDIR,
    errno.EINVAL,
    errno.ENOENT,
    errno.EPERM,
    errno.EXDEV,
}
"""The errors of a file system without O_TMPFILE, and of a container without /proc."""


class Cancellation:
    """The cancellation of a call, which the thread that works for the call asks for."""

    def __init__(self) -> None:
        """Start as a call that somebody waits for."""
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Say that nobody waits for the call any more."""
        self._cancelled.set()

    def check(self) -> None:
        """Raise ``ToolError`` if nobody waits for the call: the rest of its work is not done."""
        if self._cancelled.is_set():
            raise ToolError(ErrorCode.TIMEOUT, "the call was given up before it changed anything.")

    def pause(self) -> None:
        """Wait a moment; raise ``ToolError`` as soon as nobody waits for the call."""
        self._cancelled.wait(_PAUSE_SECONDS)
        self.check()


class Folder:
    """A folder, by its descriptor."""

    def __init__(self, descriptor: int, opener: Opener) -> None:
        """Own the descriptor from now on."""
        self.descriptor = descriptor
        self._open = opener

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode: the folder itself, by whatever name."""
        return _identity(os.fstat(self.descriptor))

    def find(self, name: str) -> tuple[int, int] | None:
        """Return the identity of the folder that this name leads to.

        Return None if it leads to none, or out of this one.
        """
        try:
            descriptor = self._open(self.descriptor, name, os.O_PATH | os.O_DIRECTORY)
        except OSError:
            return None
        with Folder(descriptor, self._open) as found:
            return found.identity

    def parent(self) -> "Folder":
        """Open the folder that holds this one now."""
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        return Folder(os.open("..", flags, dir_fd=self.descriptor), self._open)

    def make(self, name: str) -> "Folder":
        """Open a folder in this one, and make it if it is not there. A link is ELOOP or ENOTDIR."""
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=self.descriptor)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        return Folder(self._open(self.descriptor, name, flags), self._open)

    @contextmanager
    def lock(self, cancellation: Cancellation) -> Iterator[None]:
        """Hold the lock on the files of this folder. Raise ``ToolError`` with BUSY."""
        deadline = time.monotonic() + _LOCK_SECONDS
        while not self._try_lock():
            if time.monotonic() > deadline:
                raise ToolError(
                    ErrorCode.BUSY,
                    "another program has held the lock on this folder for too long: try again "
                    "later.",
                )
            cancellation.pause()

        try:
            yield
        finally:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def open_file(self, name: str) -> int:
        """Open a file of this folder for reading.

        Raise ``OSError``: ELOOP for a link, and as ``check_file`` for what is no file.
        """
        descriptor = self._open(self.descriptor, name, READING | os.O_NOFOLLOW)
        return check_file(descriptor)

    def find_file(self, name: str) -> os.stat_result | None:
        """Return the status of the file of this name, None if there is none.

        Raise ``OSError`` as ``open_file``.
        """
        try:
            status = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        _check_mode(status.st_mode)
        return status

    def replace(
        self,
        name: str,
        content: bytes,
        cancellation: Cancellation,
        old: os.stat_result | None = None,
    ) -> None:
        """Put the content under a name in one rename. The caller must hold the lock.

        The mode of a file that has the name already stays.

        Raise ``OSError``. Raise ``ToolError`` if the file of this name is no longer ``old``, or was
        changed: another writer's file stays.
        """
        present = self.find_file(name)
        mode = None if present is None else stat.S_IMODE(present.st_mode) & _PERMISSIONS
        self._remove_temporary()  # A process that was killed may have left one

        try:
            self._write_temporary(content, mode, cancellation)
            self._refuse_changed(name, old)
            cancellation.check()
            os.rename(TEMPORARY, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except BaseException:
            with suppress(OSError, ToolError):
                self._remove_temporary()
            raise

    def _refuse_changed(self, name: str, old: os.stat_result | None) -> None:
        if old is not None and _version(self.find_file(name)) != _version(old):
            raise ToolError(
                ErrorCode.EXECUTION_FAILED,
                f"{name!r} was changed meanwhile: read it, then repeat the call.",
            )

    def _remove_temporary(self) -> None:
        try:
            os.unlink(TEMPORARY, dir_fd=self.descriptor)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            raise ToolError(
                ErrorCode.EXECUTION_FAILED,
                f"the folder {TEMPORARY!r} beside the file is in the way: remove it.",
            ) from None

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _write_temporary(
        self, content: bytes, mode: int | None, cancellation: Cancellation
    ) -> None:
        """Leave the content on the disk as ``TEMPORARY``.

        Where the file system can, the file has no name until it is whole.
        """
        try:
            self._write_unnamed(content, mode, cancellation)
        except OSError as error:
            if error.errno not in _NO_UNNAMED_FILES:
                raise
            self._write_named(content, mode, cancellation)

    def _write_unnamed(self, content: bytes, mode: int | None, cancellation: Cancellation) -> None:
        flags = os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC
        descriptor = os.open(".", flags, _NEW_MODE, dir_fd=self.descriptor)
        try:
            _fill(descriptor, content, mode, cancellation)
            os.link(
                f"/proc/self/fd/{descriptor}",
                TEMPORARY,
                dst_dir_fd=self.descriptor,
                follow_symlinks=True,
            )
        finally:
            os.close(descriptor)

    def _write_named(self, content: bytes, mode: int | None, cancellation: Cancellation) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(TEMPORARY, flags, _NEW_MODE, dir_fd=self.descriptor)
        try:
            _fill(descriptor, content, mode, cancellation)
        finally:
            os.close(descriptor)


READING: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
"""The flags to read a file.

With them, a pipe does not make the reader wait, and a terminal does not become the host's own.
"""


def check_file(descriptor: int) -> int:
    """Return the descriptor of a regular file.

    Close any other, and raise the ``OSError`` that says what it is.
    """
    try:
        _check_mode(os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_mode(mode: int) -> None:
    """Raise ``OSError`` for the mode of what is no regular file."""
    if stat.S_ISREG(mode):
        return

    number = errno.ENXIO
    if stat.S_ISDIR(mode):
        number = errno.EISDIR
    elif stat.S_ISLNK(mode):
        number = errno.ELOOP
    raise OSError(number, os.strerror(number))


def _fill(descriptor: int, content: bytes, mode: int | None, cancellation: Cancellation) -> None:
    if mode is not None:
        os.fchmod(descriptor, mode)

    rest = memoryview(content)
    while rest:
        cancellation.check()
        written = os.write(descriptor, rest[:_CHUNK])
        rest = rest[written:]
    os.fsync(descriptor)  # A disk may say only now that it is full


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _version(status: os.stat_result | None) -> tuple[int, ...] | None:
    """Return what changes when a file is replaced or written; None for no file."""
    if status is None:
        return None
    return (*_identity(status), status.st_size, status.st_mtime_ns, status.st_ctime_ns)
