"""An open folder of a workspace, and how a file in it is replaced
(docs/spec/tools-host.md "Files").

Rules. What is done in a folder is done by its descriptor, wherever its path leads meanwhile. A file
is never written in place: the new content is on the disk before one rename puts it under the name,
so that no link is written through, a reader sees the old or the new file, and a kill or a full disk
leaves the old one. Who changes a folder's files holds the folder's lock, which other processes of
the host heed too. A kill can leave ``.claw-new``, which the next change in that folder removes.
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


class Call:
    """One call of a tool, as the thread that works for it sees it."""

    def __init__(self) -> None:
        """Start as a call that somebody waits for."""
        self._has_ended = threading.Event()

    def abandon(self) -> None:
        """Say that nobody waits for it any more."""
        self._has_ended.set()

    def check(self) -> None:
        """Raise ``ToolError`` if nobody waits for it: what is not done yet, is not done."""
        if self._has_ended.is_set():
            raise ToolError(ErrorCode.TIMEOUT, "the call was given up before it changed anything.")

    def pause(self) -> None:
        """Wait a moment, and no longer than somebody waits for it."""
        self._has_ended.wait(_PAUSE_SECONDS)
        self.check()


class Folder:
    """A folder, by its descriptor."""

    def __init__(self, descriptor: int, opener: Opener) -> None:
        """Own the descriptor from now on."""
        self.descriptor, self._open = descriptor, opener

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode: what it is, however it is called."""
        return _identity(os.fstat(self.descriptor))

    def find(self, name: str) -> tuple[int, int] | None:
        """Return the identity of the folder that this name leads to; None if there
        is none, or none beneath this one.
        """
        try:
            descriptor = self._open(self.descriptor, name, os.O_PATH | os.O_DIRECTORY)
        except OSError:
            return None
        with Folder(descriptor, self._open) as found:
            return found.identity

    def parent(self) -> "Folder":
        """Open the folder that holds this one now."""
        return Folder(
            os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor),
            self._open,
        )

    def make(self, name: str) -> "Folder":
        """Open a folder in this one, and make it if it is not there. A link is ELOOP or ENOTDIR."""
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=self.descriptor)
        return Folder(
            self._open(self.descriptor, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW),
            self._open,
        )

    @contextmanager
    def lock(self, call: Call) -> Iterator[None]:
        """Hold the lock on the files of this folder. Raise ``ToolError`` with BUSY."""
        deadline = time.monotonic() + _LOCK_SECONDS
        while not self._try_lock():
            if time.monotonic() > deadline:
                raise ToolError(
                    ErrorCode.BUSY,
                    (
                        "another program has held the lock on this folder for too long: try "
                        "again later."
                    ),
                )
            call.pause()
        try:
            yield
        finally:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def open_file(self, name: str) -> int:
        """Open a file of this folder for reading.

        A link is ELOOP, what is no file an ``OSError`` as of ``check_file``.
        """
        descriptor = self._open(self.descriptor, name, READING | os.O_NOFOLLOW)
        return check_file(descriptor)

    def find_file(self, name: str) -> os.stat_result | None:
        """Return the file of this name, None if there is none.

        Raise ``OSError`` as of ``open_file``.
        """
        try:
            found = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        _refuse_no_file(found.st_mode)
        return found

    def replace(
        self, name: str, content: bytes, call: Call, old: os.stat_result | None = None
    ) -> None:
        """Put the content under a name in one rename; a file that is there gives its mode.

        The lock must be held.

        Raise ``OSError``; ``ToolError`` if the name no longer stands for ``old`` as it was: the
        other writer's file stays.
        """
        found = self.find_file(name)
        mode = None if found is None else stat.S_IMODE(found.st_mode) & _PERMISSIONS
        self._remove_temporary()
        try:
            self._write_temporary(content, mode, call)
            self._refuse_changed(name, old)
            call.check()
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
            problem = f"the folder {TEMPORARY!r} beside the file is in the way: remove it."
            raise ToolError(ErrorCode.EXECUTION_FAILED, problem) from None

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _write_temporary(self, content: bytes, mode: int | None, call: Call) -> None:
        """Leave the content on the disk as ``TEMPORARY``; without a name until it
        is whole, where the file system can.
        """
        try:
            descriptor = os.open(
                ".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, _NEW_MODE, dir_fd=self.descriptor
            )
            try:
                _fill(descriptor, content, mode, call)
                os.link(
                    f"/proc/self/fd/{descriptor}",
                    TEMPORARY,
                    dst_dir_fd=self.descriptor,
                    follow_symlinks=True,
                )
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno not in _NO_UNNAMED_FILES:
                raise
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(TEMPORARY, flags, _NEW_MODE, dir_fd=self.descriptor)
            try:
                _fill(descriptor, content, mode, call)
            finally:
                os.close(descriptor)


READING: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
"""How a file is opened to be read: a pipe does not make the reader wait, a terminal
does not become its own.
"""


def check_file(descriptor: int) -> int:
    """Return the descriptor of a regular file; close any other, and raise the
    ``OSError`` that says what it is.
    """
    try:
        _refuse_no_file(os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_no_file(mode: int) -> None:
    if not stat.S_ISREG(mode):
        number = (
            errno.EISDIR
            if stat.S_ISDIR(mode)
            else errno.ELOOP
            if stat.S_ISLNK(mode)
            else errno.ENXIO
        )
        raise OSError(number, os.strerror(number))


def _fill(descriptor: int, content: bytes, mode: int | None, call: Call) -> None:
    if mode is not None:
        os.fchmod(descriptor, mode)
    rest = memoryview(content)
    while rest:
        call.check()
        rest = rest[os.write(descriptor, rest[:_CHUNK]) :]
    os.fsync(descriptor)  # A disk may say only now that it is full


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _version(status: os.stat_result | None) -> tuple[int, ...] | None:
    return status and (*_identity(status), status.st_size, status.st_mtime_ns, status.st_ctime_ns)
