"""How a process gives up its rights, step by step.

Part of the launcher: the standard library alone.

Rules. The order is: user, namespaces, root, limits, capabilities, Landlock, seccomp. Each step that
the form needs works or raises ``OSError``; then nothing runs.
"""

import contextlib
import ctypes
import os
import resource
import struct
from dataclasses import dataclass, field
from typing import Final, Literal

from claw_tools.execution import landlock, seccomp
from claw_tools.execution.filesystem import DEVICES, NETWORK_SETTINGS, SETTINGS, SYSTEM, WORKSPACE
from claw_tools.execution.syscalls import call, prctl

type Form = Literal["namespaces", "landlock"]

_PDEATHSIG, _DUMPABLE, _CAPBSET_DROP, _AMBIENT, _NO_NEW_PRIVS = 1, 4, 24, 47, 38
_NAMESPACES: Final = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000
"""Cgroup, uts, ipc, user and pid.

The mount namespace is process 1's: its keeper still needs the host's /proc.
"""
_NETWORK: Final = 0x40000000
_MAX_FILES = 1_024
_LAST_CAPABILITY = 63


@dataclass(frozen=True)
class Limits:
    """The limits of all commands of a launcher, as JSON from the host."""

    form: Form
    network: bool = False
    max_processes: int = 256
    max_memory: int = 1 << 30
    max_file: int = 1 << 30
    runs_own: bool = True  # Whether programs in the workspace may be run
    max_abi: int = 99  # Of Landlock: tests know less than the kernel
    abi: int = field(default=0, init=False)
    program: bytes = field(default=b"", init=False)  # Of seccomp

    def __post_init__(self) -> None:
        """Ask for the ABI of Landlock, and write the filter, once for all calls.

        Raise ``OSError``.
        """
        object.__setattr__(self, "abi", min(landlock.find_abi(), self.max_abi))
        alone = self.form == "landlock"
        object.__setattr__(
            self, "program", seccomp.write_filter(network=self.network, alone=alone, abi=self.abi)
        )


def drop_user(workspace: int) -> None:
    """Become the owner of the workspace, given by a descriptor, if this process is root's.

    Raise ``OSError``.
    """
    if os.geteuid() != 0:
        return
    owner = os.fstat(workspace)
    if owner.st_uid == 0:
        raise PermissionError(1, "the workspace is root's")
    os.setgroups([])
    group = owner.st_gid or owner.st_uid
    os.setresgid(group, group, group)
    os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)


def die_with_parent(signal: int) -> None:
    """Ask for a signal when the parent ends.

    A change of the user takes that back, so it comes after.
    """
    prctl(_PDEATHSIG, signal)


def hide_memory() -> None:
    """Let no other process of this user read this one in /proc."""
    prctl(_DUMPABLE, 0)


def prefer_to_keeper() -> None:
    """End before the keeper where the machine's memory is short."""
    prctl(_DUMPABLE, 1)  # Else the file belongs to root
    with open("/proc/self/oom_score_adj", "w", encoding="utf-8") as file:
        file.write("1000")
    hide_memory()


def enter_namespaces(*, network: bool) -> None:
    """Leave the namespaces of the host; children are in a PID namespace of their own.

    Raise ``OSError``.
    """
    user, group = os.getuid(), os.getgid()
    prctl(_DUMPABLE, 1)  # Else the maps belong to root
    call("unshare", _NAMESPACES | (0 if network else _NETWORK))
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
            file.write(line)
    hide_memory()


def set_limits(limits: Limits, tasks: int) -> None:
    """Set the limits of one process; ``tasks`` of the same user are counted with the call's own."""
    for kind, value in (
        (resource.RLIMIT_NPROC, limits.max_processes + tasks),
        (resource.RLIMIT_DATA, limits.max_memory),
        (resource.RLIMIT_FSIZE, limits.max_file),
        (resource.RLIMIT_NOFILE, _MAX_FILES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_STACK, 8 << 20),
    ):
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


def confine(limits: Limits) -> None:
    """Give up capabilities, then restrict this process by Landlock and seccomp.

    The present directory is the workspace.
    """
    prctl(_NO_NEW_PRIVS, 1)
    with contextlib.suppress(
        OSError
    ):  # The kernel has no more of them, or there is no right to drop any
        for capability in range(_LAST_CAPABILITY + 1):
            prctl(_CAPBSET_DROP, capability)
    prctl(_AMBIENT, 4)  # PR_CAP_AMBIENT_CLEAR_ALL
    head = struct.pack("=Ii", 0x20080522, 0)
    call("capset", ctypes.create_string_buffer(head, len(head)), ctypes.create_string_buffer(24))
    landlock.restrict(_rules(limits), limits.abi, network=limits.network)
    seccomp.install(limits.program)


def _rules(limits: Limits) -> list[tuple[str, int]]:
    own = landlock.WRITE if limits.runs_own else landlock.WRITE & ~landlock.EXECUTE
    shared = [(f"/{name}", landlock.READ) for name in SYSTEM] + [
        (f"/dev/{name}", landlock.WRITE) for name in DEVICES
    ]
    if limits.form == "namespaces":
        # A right that the root gives, no rule below it takes away
        return [("/", landlock.READ & ~landlock.EXECUTE), (WORKSPACE, own), ("/tmp", own), *shared]  # noqa: S108 - the call's own
    settings = (*SETTINGS, *(NETWORK_SETTINGS if limits.network else ()))
    return [(".", own), *((f"/etc/{name}", landlock.READ) for name in settings), *shared]


def count_tasks() -> int:
    """Return how many tasks the user of this process has: the limit of processes
    counts them all.
    """
    user, count = os.getuid(), 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == user:
                count += os.stat(f"/proc/{name}/task").st_nlink - 2
    return count
