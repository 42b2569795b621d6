"""The steps by which a process gives up its rights, and probes of what it can no longer do.

The probes are real attempts at what must fail afterwards.

Part of the launcher: the standard library alone.

Rules. The order is: user, namespaces, root, limits, capabilities, Landlock, seccomp. Each step that
the form needs either works or raises ``OSError``, and then nothing runs.
"""

import contextlib
import ctypes
import errno
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from claw_tools.execution import landlock, seccomp
from claw_tools.execution.filesystem import DEVICES, NETWORK_SETTINGS, SETTINGS, SYSTEM, WORKSPACE
from claw_tools.execution.syscalls import call, prctl

type Form = Literal["namespaces", "landlock"]

# Options of prctl(2)
_PDEATHSIG: Final = 1
_DUMPABLE: Final = 4
_CAPBSET_DROP: Final = 24
_NO_NEW_PRIVS: Final = 38
_AMBIENT: Final = 47
_AMBIENT_CLEAR_ALL: Final = 4

_CAPABILITY_VERSION: Final = 0x20080522
_NAMESPACES: Final = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000
"""Cgroup, uts, ipc, user and pid.

The mount namespace is process 1's: its keeper still needs the host's /proc.
"""
_NETWORK: Final = 0x40000000
_MAX_FILES = 1_024
_LAST_CAPABILITY = 63

# What the probes try
_NEW_USER: Final = 0x10000000
_TRACE_ME: Final = 0
_OWN_FILE: Final = ".claw-probe"


@dataclass(frozen=True)
class CommandLimits:
    """The limits of all commands of a launcher. The host gives some of them as JSON."""

    form: Form
    network: bool = False
    max_processes: int = 256
    max_memory: int = 1 << 30
    max_file: int = 1 << 30
    runs_own: bool = True  # Whether programs in the workspace may be run
    max_abi: int = 99  # The newest ABI of Landlock to use: tests set an older one
    abi: int = field(default=0, init=False)
    program: bytes = field(default=b"", init=False)  # The filter of seccomp

    def __post_init__(self) -> None:
        """Ask for the ABI of Landlock, and write the filter, once for all calls.

        Raise ``OSError``.
        """
        abi = min(landlock.find_abi(), self.max_abi)
        alone = self.form == "landlock"
        program = seccomp.write_filter(network=self.network, alone=alone, abi=abi)
        object.__setattr__(self, "abi", abi)
        object.__setattr__(self, "program", program)


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

    Call it after a change of the user, which would take it back.
    """
    prctl(_PDEATHSIG, signal)


def hide_memory() -> None:
    """Let no other process of this user read this one in /proc."""
    prctl(_DUMPABLE, 0)


def prefer_to_keeper() -> None:
    """End before the keeper where the machine's memory is short."""
    prctl(_DUMPABLE, 1)  # Without this, the file in /proc belongs to root
    with open("/proc/self/oom_score_adj", "w", encoding="utf-8") as file:
        file.write("1000")
    hide_memory()


def enter_namespaces(*, network: bool) -> None:
    """Leave the namespaces of the host; children are in a PID namespace of their own.

    Raise ``OSError``.
    """
    user = os.getuid()
    group = os.getgid()
    prctl(_DUMPABLE, 1)  # Else the maps belong to root
    call("unshare", _NAMESPACES if network else _NAMESPACES | _NETWORK)

    # An unprivileged process may map its group only after it has given up setgroups
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
            file.write(line)
    hide_memory()


def set_limits(limits: CommandLimits, tasks: int) -> None:
    """Set the limits of one process.

    The kernel counts ``tasks`` other tasks of the same user with those of the call.
    """
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
        _, hard = resource.getrlimit(kind)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


def confine(limits: CommandLimits) -> None:
    """Give up capabilities, then restrict this process by Landlock and seccomp.

    The present directory is the workspace.
    """
    prctl(_NO_NEW_PRIVS, 1)

    # An error means that the kernel has no further capabilities, or that there is no right to drop
    # any.
    with contextlib.suppress(OSError):
        for capability in range(_LAST_CAPABILITY + 1):
            prctl(_CAPBSET_DROP, capability)
    prctl(_AMBIENT, _AMBIENT_CLEAR_ALL)
    head = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    no_capabilities = ctypes.create_string_buffer(24)
    call("capset", ctypes.create_string_buffer(head, len(head)), no_capabilities)

    landlock.restrict(_rules(limits), limits.abi, network=limits.network)
    seccomp.install(limits.program)


def _rules(limits: CommandLimits) -> list[tuple[str, int]]:
    """Return paths with the rights of Landlock."""
    own = landlock.WRITE if limits.runs_own else landlock.WRITE & ~landlock.EXECUTE
    system = [(f"/{name}", landlock.READ) for name in SYSTEM]
    devices = [(f"/dev/{name}", landlock.WRITE) for name in DEVICES]
    shared = [*system, *devices]
    if limits.form == "namespaces":
        # Landlock adds up the rights of a path and of all folders above it. So the rule of the root
        # gives only what everything below it may have.
        return [("/", landlock.READ & ~landlock.EXECUTE), (WORKSPACE, own), ("/tmp", own), *shared]  # noqa: S108 - the call's own

    settings = (*SETTINGS, *NETWORK_SETTINGS) if limits.network else SETTINGS
    return [(".", own), *((f"/etc/{name}", landlock.READ) for name in settings), *shared]


def count_tasks() -> int:
    """Return how many tasks the user of this process has: the limit of processes counts them."""
    user = os.getuid()
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == user:
                count += os.stat(f"/proc/{name}/task").st_nlink - 2
    return count


def find_breaches(outside: str, *, network: bool) -> Iterator[str]:
    """Yield every forbidden act that is possible, and every needed act that is not.

    The process tries all of them on itself. So it must be confined already, and its current
    directory must be the workspace. ``outside`` is a directory that everybody may write, with a
    file ``secret`` that everybody may read: only the confinement protects them.
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
