"""Attempts at what a contained process must not be able to do, made for real.

Part of the launcher: standard library alone.
"""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

from claw_tools.execution.syscalls import call, prctl

_NEW_USER: Final = 0x10000000
_TRACE_ME: Final = 0
_NO_NEW_PRIVS: Final = 38
_OWN_FILE: Final = ".claw-probe"


def find_breaches(outside: str, *, network: bool) -> Iterator[str]:
    """Yield what is possible that must not be, and the reverse.

    ``outside`` is a directory that all may write, with a file ``secret`` that all may read. The
    present directory is the workspace.
    """
    forbidden: dict[str, Callable[[], Any]] = {
        "read a file outside the workspace": lambda: os.open(f"{outside}/secret", os.O_RDONLY),
        "write a file outside the workspace": lambda: os.open(
            f"{outside}/new", os.O_WRONLY | os.O_CREAT, 0o600
        ),
        "cut a file outside the workspace": lambda: os.truncate(f"{outside}/secret", 0),
        "change the mode of a file outside the workspace": lambda: os.chmod(
            f"{outside}/secret", 0o600
        ),
        "link a file outside the workspace into it": lambda: os.link(
            f"{outside}/secret", _OWN_FILE
        ),
        "make a unix socket": lambda: socket.socket(socket.AF_UNIX),
        "make a namespace": lambda: call("unshare", _NEW_USER),
        "trace a process": lambda: call("ptrace", _TRACE_ME, 0, 0, 0),
        "mount": lambda: call("mount", b"none", b"/", b"tmpfs", 0, 0),
        "change the kernel's settings": lambda: os.open(
            "/proc/sys/kernel/core_pattern", os.O_WRONLY
        ),
        "gain rights again": lambda: prctl(_NO_NEW_PRIVS, 0),
    }
    if not network:
        forbidden["make a network socket"] = lambda: socket.socket(socket.AF_INET)

    for what, attempt in forbidden.items():
        if _is_possible(attempt):
            yield what

    try:
        os.close(os.open(_OWN_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(_OWN_FILE)
        os.close(os.open("/bin/sh", os.O_RDONLY))
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "?")
        yield f"not write the workspace or read the system ({name})"


def _is_possible(attempt: Callable[[], Any]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True
