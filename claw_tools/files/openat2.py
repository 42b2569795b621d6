"""Opening a path so that it can't lead out of a folder (docs/spec/tools-host.md "Files").

Rules. The kernel resolves the path and opens what it resolved in one step (``openat2``, Linux 5.6),
so there is nothing between a check and a use: ``..`` and links are followed as long as they stay
beneath the folder. Without ``openat2``, or where a seccomp filter refuses it, the path is walked
part by part, from one open folder to the next, and no link is followed at all. No path is ever
compared with another one.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

type Opener = Callable[[int, str, int], int]
"""``(descriptor of a folder, path, flags of open(2)) → descriptor``.

Raise ``OSError``; EXDEV for a path that leads out.
"""

_OPENAT2: Final = 437  # On every architecture
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_BENEATH: Final = 0x08
_MAX_TRIES: Final = 128
"""The kernel gives up with EAGAIN when a rename anywhere meets a path with ``..``."""


class _OpenHow(ctypes.Structure):
    """``struct open_how`` of linux/openat2.h."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (
    ctypes.c_long,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(_OpenHow),
    ctypes.c_size_t,
)
_syscall.restype = ctypes.c_long


def find_opener(folder: int) -> Opener:
    """Return ``open_by_kernel`` where it works, else ``open_by_walk``."""
    try:
        os.close(open_by_kernel(folder, ".", os.O_PATH))
    except OSError as error:
        if error.errno not in {errno.ENOSYS, errno.EPERM}:
            raise
        return open_by_walk
    return open_by_kernel


def open_by_kernel(folder: int, path: str, flags: int) -> int:
    """Open a path beneath a folder; links that stay beneath it are followed."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    number = errno.EAGAIN
    for _ in range(_MAX_TRIES):
        descriptor = int(_syscall(_OPENAT2, folder, name, ctypes.byref(how), ctypes.sizeof(how)))
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(number, os.strerror(number))


def open_by_walk(folder: int, path: str, flags: int) -> int:
    """Open a path beneath a folder; a link anywhere in it is ELOOP.

    ``..`` leads back to the folder that was walked through.
    """
    if path.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    parts = [part for part in path.split("/") if part not in {"", "."}]
    is_folder = not parts or parts[-1] == ".." or path.endswith(("/", "/."))
    last = "." if is_folder else parts.pop()
    with ExitStack() as closing:
        walked = [folder]
        for part in parts:
            if part != "..":
                walked.append(_enter(walked[-1], part))
                closing.callback(os.close, walked[-1])
            elif len(walked) > 1:
                walked.pop()
            else:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

        # The first opening refuses a link with ELOOP. With O_DIRECTORY among the flags, the second
        # one would give ENOTDIR for it.
        os.close(_enter(walked[-1], last))
        return _enter(walked[-1], last, flags)


def _enter(folder: int, name: str, flags: int = os.O_PATH) -> int:
    descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):  # O_PATH opens the link itself
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return descriptor
