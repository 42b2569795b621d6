"""Landlock: what of the file system a command may touch.

Part of the launcher: the standard library alone.

Rules. The ABI is asked, never assumed: each right that the kernel knows is handled, and so refused
where no rule gives it. From ABI 4 on TCP is refused, from ABI 6 on abstract sockets and signals
that lead out.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from typing import Final

from claw_tools.execution.syscalls import call, prctl

READ: Final = 1 << 0 | 1 << 2 | 1 << 3
"""EXECUTE, READ_FILE, READ_DIR."""
WRITE: Final = READ | 1 << 1 | 1 << 4 | 1 << 5 | 0b111 << 7 | 1 << 10 | 1 << 12 | 1 << 13 | 1 << 14
"""Also WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_SYM,
REFER, TRUNCATE: no devices.
"""
EXECUTE: Final = 1 << 0
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_HANDLED: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""The rights of each ABI that added any: bits 0 to n - 1."""
_TCP, _SCOPES = 0b11, 0b11
_TCP_ABI, _SCOPE_ABI = 4, 6
_NO_NEW_PRIVS = 38


def find_abi() -> int:
    """Return the ABI of the kernel.

    Raise ``OSError`` where it has no Landlock, or where it is not switched on.
    """
    return call("landlock_create_ruleset", None, 0, 1)


def restrict(rules: Iterable[tuple[str, int]], abi: int, *, network: bool) -> None:
    """Take every right from this process but those of ``rules``: a path, and its rights.

    Raise ``OSError``.

    A path that is not there is left out.
    """
    handled = max(bits for since, bits in _HANDLED.items() if since <= abi)
    parts = [handled]
    if abi >= _TCP_ABI:
        parts.append(0 if network else _TCP)
    if abi >= _SCOPE_ABI:
        parts.append(_SCOPES)
    attributes = struct.pack(f"{len(parts)}Q", *parts)
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
