"""The folder of one principal, and the way into it (docs/spec/tools-host.md "Files").

    path ──paths.py──▶ openat2.py ──▶ descriptor          to read
                           └────────▶ Folder, locked      to write: its descriptor and a name

Rules. A workspace is a descriptor: its path is used once, at the start. File work runs in threads
of the workspace's own, so that one principal's slow disk holds up no other. If the host runs as
root, these threads have the rights of the workspace's owner (fsuid, fsgid): what they make belongs
to the owner, and they can read only what the owner can.
"""

import asyncio
import ctypes
import errno
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self

from claw_tools.errors import ErrorCode, ToolError
from claw_tools.files.folder import READING, TEMPORARY, Cancellation, Folder, check_file
from claw_tools.files.openat2 import Opener, find_opener
from claw_tools.files.paths import check_path, explain_errors, show, split_path
from claw_tools.files.protection import ProtectedFiles

_THREADS: Final = 4
_FAREWELL_SECONDS: Final = 1.0
"""Seconds for which a cancelled call waits for its thread, which stops at its next step."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY
_libc = ctypes.CDLL(None)


class WriteTarget(NamedTuple):
    """A file that is to be written: an open folder whose lock is held, and a name in it."""

    folder: Folder
    name: str


class Workspace:
    """The folder that holds all that a principal's file tools reach."""

    def __init__(self, root: Folder, opener: Opener, threads: ThreadPoolExecutor) -> None:
        """Own the folder and the threads; ``open`` makes all three."""
        self._root = root
        self._open = opener
        self._threads = threads

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the folder at this path.

        Raise ``OSError``, also for a host that is root and can't act as the folder's owner.
        """
        with ExitStack() as closing:
            descriptor = os.open(path, _FOLDER | os.O_CLOEXEC)
            opener = find_opener(descriptor)
            root = closing.enter_context(Folder(descriptor, opener))

            act = functools.partial(_act_as_owner, os.fstat(descriptor))
            threads = ThreadPoolExecutor(_THREADS, "files", act)
            closing.callback(threads.shutdown, wait=False)
            if not threads.submit(act).result():
                raise PermissionError(
                    errno.EPERM, "root may not act as the owner of the workspace", str(path)
                )
            closing.pop_all()  # From now on the workspace owns the folder and the threads
        return cls(root, opener, threads)

    def close(self) -> None:
        """End the threads when their work is done, and close the folder."""
        self._threads.shutdown()
        os.close(self._root.descriptor)

    async def run[T](self, work: Callable[[Cancellation], T]) -> T:
        """Return what the work returns, which runs in a thread.

        If this is cancelled, the work stops at its next step.
        """
        cancellation = Cancellation()
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._threads, _start, work, cancellation)
        # asyncio would log the error of a future that nobody awaits
        future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            cancellation.cancel()
            await asyncio.wait([future], timeout=_FAREWELL_SECONDS)
            raise
        return future.result()

    def open_file(self, path: str) -> int:
        """Return the descriptor of a file to read. Raise ``ToolError``."""
        with explain_errors(path):
            return check_file(self._open(self._root.descriptor, check_path(path), READING))

    def open_folder(self, path: str) -> int:
        """Return the descriptor of a folder to list. Raise ``ToolError``."""
        with explain_errors(path):
            return self._open(self._root.descriptor, check_path(path), _FOLDER)

    @contextmanager
    def open_for_writing(
        self,
        path: str,
        protected: ProtectedFiles,
        cancellation: Cancellation,
        *,
        make_folders: bool = False,
    ) -> Iterator[WriteTarget]:
        """Yield the folder and the name of a file that is to be written.

        Raise ``ToolError``, also for an ``OSError`` of the block.
        """
        folders, name = split_path(path)
        if name == TEMPORARY:
            raise ToolError(
                ErrorCode.INVALID_PATH,
                f"the path {show(path)} has a name that the file tools keep for themselves.",
            )

        with explain_errors(path), ExitStack() as closing:
            folder, missing = self._open_nearest(folders)
            closing.enter_context(folder)
            if missing and (not make_folders or ".." in missing):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

            protected.refuse(self._root, folder, [*missing, name])
            for missing_name in missing:
                folder = closing.enter_context(folder.make(missing_name))
            closing.enter_context(folder.lock(cancellation))
            yield WriteTarget(folder, name)

    def _open_nearest(self, folders: Sequence[str]) -> tuple[Folder, Sequence[str]]:
        """Return the innermost of these nested folders that exists, and the names of the rest."""
        root = self._root.descriptor
        for count in range(len(folders), 0, -1):
            path = "/".join(folders[:count])
            try:
                descriptor = self._open(root, path, _FOLDER)
            except FileNotFoundError:
                continue
            return Folder(descriptor, self._open), folders[count:]
        return Folder(self._open(root, ".", _FOLDER), self._open), folders


def _start[T](work: Callable[[Cancellation], T], cancellation: Cancellation) -> T:
    cancellation.check()
    return work(cancellation)


def _act_as_owner(folder: os.stat_result) -> bool:
    """Give this thread, and no other, the rights on files of the folder's owner in place of root's.

    Return False if that fails. Do nothing if this process is not root's, or if the folder is.
    """
    if os.geteuid() != 0 or folder.st_uid == 0:
        return True

    _libc.setfsgid(folder.st_gid)
    _libc.setfsuid(folder.st_uid)
    # These calls report no error; -1 changes nothing, and returns the present one
    group = _libc.setfsgid(-1)
    user = _libc.setfsuid(-1)
    return bool(group == folder.st_gid and user == folder.st_uid)
