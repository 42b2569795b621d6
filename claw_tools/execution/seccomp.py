"""The filter of system calls. Part of the launcher: the standard library alone.

Rules. It refuses what Landlock and namespaces do not mediate, and what would loosen them;
everything else is theirs. A call of another architecture ends the process. Sockets are of the
listed families alone; AF_UNIX never, but for connected pairs.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable
from typing import Final

from claw_tools.execution.syscalls import MACHINES, numbers, prctl

AF_UNIX: Final = 1
AF_INET: Final = 2
AF_INET6: Final = 10

# Answers of the filter (linux/seccomp.h)
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_ERRNO: Final = 0x00050000

# Instructions of classic BPF (linux/bpf_common.h)
_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_ANY_BIT: Final = 0x45
_AND: Final = 0x54
_RETURN: Final = 0x06

# Offsets in ``struct seccomp_data``
_NUMBER_AT: Final = 0
_ARCH_AT: Final = 4
_ARGUMENTS_AT: Final = 16

_X32: Final = 0x40000000
_NAMESPACES: Final = 0x7E020000 | 0x80
"""CLONE_NEWNS, …CGROUP, …UTS, …IPC, …USER, …PID, …NET, …TIME."""
_ABSENT: Final = tuple(
    """
    clone3
    io_uring_setup io_uring_enter io_uring_register
    memfd_create memfd_secret
    """.split()  # noqa: SIM905 - a table
)
"""System calls that fail as on a kernel without them, so that programs do without.

clone3 hides its flags from a filter, and a memfd is memory that no limit counts.
"""
_REFUSED: Final = tuple(
    """
    ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd
    bpf perf_event_open userfaultfd keyctl add_key request_key open_by_handle_at
    fanotify_init fanotify_mark
    mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount
    open_tree open_tree_attr mount_setattr unshare setns swapon swapoff quotactl quotactl_fd acct
    kexec_load kexec_file_load init_module finit_module delete_module reboot syslog vhangup
    sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex
    ioperm iopl modify_ldt uselib lookup_dcookie nfsservctl ioprio_set
    shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
    mq_open mq_unlink
    """.split()  # noqa: SIM905 - a table
)
_METADATA: Final = tuple(
    """
    chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat
    utime utimes futimesat utimensat
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
    file_setattr
    """.split()  # noqa: SIM905 - a table
)
"""System calls that change a file's metadata, which Landlock does not mediate.

They are refused everywhere, unless namespaces hide the files outside the workspace.
"""
_WATCHES: Final = ("inotify_add_watch",)
"""The system call that watches a folder, which Landlock does not mediate either.

A watch tells the names in a folder, and when they are opened, even if only the owner may look; and
the commands of all principals have the same user.
"""
_SIGNALS: Final = (
    "kill",
    "tkill",
    "tgkill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "pidfd_send_signal",
)
_ZERO: Final = {
    **dict.fromkeys(
        ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"),
        (0,),
    ),
    **dict.fromkeys(("migrate_pages", "move_pages"), (0,)),
    "setpriority": (0, 1),
}
"""Calls about a process, with the arguments that must be 0.

0 is the process itself, and so none of another call, which has the same user.
"""
_VALUES: Final = {
    "ioctl": (0x5412, 0x541C, 0x8901, 0x8902),  # TIOCSTI, TIOCLINUX, FIOSETOWN, SIOCSPGRP
    # F_SETOWN, F_SETSIG, F_SETOWN_EX: a signal to whom the caller names; F_NOTIFY watches a folder
    "fcntl": (8, 10, 15, 1026),
}
_SCOPED_SIGNALS_ABI: Final = 6
_TRUNCATE_ABI: Final = 3
_WHOLE: Final = 0xFFFFFFFF  # A mask: all bits of an argument
_TYPE: Final = 0xF  # A mask: the type of a socket, without its flags
_SOCK_STREAM: Final = 1
_SET_SECCOMP: Final = 22  # Of prctl(2)
_MODE_FILTER: Final = 2


class Filter:
    """A program of classic BPF, while it is written."""

    def __init__(self, machine: str) -> None:
        """Begin with the machine: a call of another one ends the process."""
        self._numbers = numbers(machine)
        self._code: list[bytes] = []
        self._add(_LOAD, _ARCH_AT)
        self._add(_EQUAL, MACHINES[machine][1], 1, 0)
        self._add(_RETURN, _KILL)
        self._add(_LOAD, _NUMBER_AT)
        if machine == "x86_64":
            self._refuse_if(_AT_LEAST, _X32)

    def refuse(self, names: Iterable[str], error: int = errno.EPERM) -> None:
        """Refuse system calls, whatever their arguments."""
        for name in names:
            if name in self._numbers:
                self._refuse_if(_EQUAL, self._numbers[name], error)

    def refuse_bits(self, name: str, argument: int, bits: int) -> None:
        """Refuse a call where any of the bits is set in an argument."""
        lines = [
            (_LOAD, _argument(argument), 0, 0),
            (_ANY_BIT, bits, 0, 1),
            (_RETURN, _ERRNO | errno.EPERM, 0, 0),
        ]
        self._judge(name, lines)

    def refuse_values(self, name: str, argument: int, values: Iterable[int]) -> None:
        """Refuse a call where an argument has one of the values."""
        lines = [(_LOAD, _argument(argument), 0, 0)]
        for value in values:
            lines += [(_EQUAL, value, 0, 1), (_RETURN, _ERRNO | errno.EPERM, 0, 0)]
        self._judge(name, lines)

    def need_values(self, name: str, needed: Iterable[tuple[int, int, tuple[int, ...]]]) -> None:
        """Refuse a call unless each argument, under a mask, has one of its values."""
        lines: list[tuple[int, int, int, int]] = []
        for argument, mask, values in needed:
            lines += [(_LOAD, _argument(argument), 0, 0), (_AND, mask, 0, 0)]
            # A match jumps over the rest of the values, and over the refusal
            lines += [(_EQUAL, value, len(values) - place, 0) for place, value in enumerate(values)]
            lines.append((_RETURN, _ERRNO | errno.EPERM, 0, 0))
        self._judge(name, lines)

    def finish(self) -> bytes:
        """Return the program, which allows the rest."""
        return b"".join([*self._code, struct.pack("HBBI", _RETURN, 0, 0, _ALLOW)])

    def _judge(self, name: str, lines: list[tuple[int, int, int, int]]) -> None:
        """Run lines for one system call, which is allowed at their end.

        A line is an instruction, its value, and how many lines it skips if true and if false.
        """
        if name not in self._numbers:
            return

        self._add(_EQUAL, self._numbers[name], 0, len(lines) + 1)
        for line in lines:
            self._add(*line)
        self._add(_RETURN, _ALLOW)

    def _refuse_if(self, test: int, value: int, error: int = errno.EPERM) -> None:
        self._add(test, value, 0, 1)
        self._add(_RETURN, _ERRNO | error)

    def _add(self, code: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        self._code.append(struct.pack("HBBI", code, if_true, if_false, value))


def write_filter(
    *, network: bool, alone: bool, abi: int, machine: str = platform.machine()
) -> bytes:
    """Return the program for commands.

    ``alone``: no namespaces hide the files and processes outside; ``abi``: Landlock's.
    """
    program = Filter(machine)
    program.refuse(_ABSENT, errno.ENOSYS)
    program.refuse(_REFUSED)
    if alone:
        program.refuse(_METADATA)
        program.refuse(_WATCHES)
        if abi < _TRUNCATE_ABI:
            program.refuse(["truncate"])
        if abi < _SCOPED_SIGNALS_ABI:
            program.refuse(_SIGNALS)

    program.refuse_bits("clone", 0, _NAMESPACES)
    for name, values in _VALUES.items():
        program.refuse_values(name, 1, values)
    for name, arguments in _ZERO.items():
        program.need_values(name, [(argument, _WHOLE, (0,)) for argument in arguments])

    families = (AF_INET, AF_INET6) if network else ()
    program.need_values("socket", [(0, _WHOLE, families)])
    # A pair is connected; a stream can't be led elsewhere, as a datagram could
    program.need_values("socketpair", [(0, _WHOLE, (AF_UNIX,)), (1, _TYPE, (_SOCK_STREAM,))])
    return program.finish()


def install(program: bytes) -> None:
    """Filter the calls of this process and of all that it starts. Raise ``OSError``."""
    lines = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(lines))
    prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.create_string_buffer(head, len(head)))


def _argument(index: int) -> int:
    """Return where the low half of an argument is: both machines are little-endian."""
    return _ARGUMENTS_AT + 8 * index
