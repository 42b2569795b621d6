"""Landlock: the part of the file system that a command may touch.

Part of the launcher: the standard library alone.

Rules. The kernel is asked for its ABI. Each right that it knows is handled, and so refused where no
rule gives it. From ABI 4 on TCP is refused, from ABI 6 on abstract sockets and signals that lead
out.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from typing import Final

from claw_tools.execution.syscalls import call, prctl

# Rights on files and folders (linux/landlock.h)
EXECUTE: Final = 1 << 0
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIR: Final = 1 << 3
_REMOVE_DIR: Final = 1 << 4
_REMOVE_FILE: Final = 1 << 5
_MAKE_DIR: Final = 1 << 7
_MAKE_REG: Final = 1 << 8
_MAKE_SOCK: Final = 1 << 9
_MAKE_FIFO: Final = 1 << 10
_MAKE_SYM: Final = 1 << 12
_REFER: Final = 1 << 13
_TRUNCATE: Final = 1 << 14
_IOCTL_DEV: Final = 1 << 15

READ: Final = EXECUTE | _READ_FILE | _READ_DIR
WRITE: Final = (
    READ
    | _WRITE_FILE
    | _REMOVE_DIR
    | _REMOVE_FILE
    | _MAKE_DIR
    | _MAKE_REG
    | _MAKE_SOCK
    | _MAKE_FIFO
    | _MAKE_SYM
    | _REFER
    | _TRUNCATE
)
"""All but the making of devices, and calls of theirs."""
_OF_FILES: Final = EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
"""The rights that a rule about a file may have: others are those of folders."""
_HANDLED: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""The rights of each ABI that added any: bits 0 to n - 1."""
_TCP: Final = 0b11
_TCP_ABI: Final = 4
_SCOPES: Final = 0b11
_SCOPE_ABI: Final = 6
_NO_NEW_PRIVS: Final = 38


def find_abi() -> int:
    """Return the ABI of the kernel.

    Raise ``OSError`` if it has no Landlock, or if it is not switched on.
    """
    return call("landlock_create_ruleset", None, 0, 1)


def restrict(rules: Iterable[tuple[str, int]], abi: int, *, network: bool) -> None:
    """Leave this process only the rights of ``rules``: a path, and its rights.

    A path that is not there is left out.

    Raise ``OSError``.
    """
    handled = max(bits for since, bits in _HANDLED.items() if since <= abi)
    # ``struct landlock_ruleset_attr``: each ABI has as many members as it knows
    members = [handled]
    if abi >= _TCP_ABI:
        members.append(0 if network else _TCP)
    if abi >= _SCOPE_ABI:
        members.append(_SCOPES)
    attributes = struct.pack(f"{len(members)}Q", *members)

    ruleset = call(
        "landlock_create_ruleset",
        ctypes.create_string_buffer(attributes, len(attributes)),
        len(attributes),
        0,
    )
    for path, rights in rules:
        _add_rule(ruleset, path, rights & handled)

    prctl(_NO_NEW_PRIVS, 1)
    call("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


def _add_rule(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return

    if not stat.S_ISDIR(os.fstat(place).st_mode):
        rights &= _OF_FILES
    rule = struct.pack("=Qi", rights, place)
    call("landlock_add_rule", ruleset, 1, ctypes.create_string_buffer(rule, len(rule)), 0)
    os.close(place)
