"""The system calls that Python has no function for.

Part of the launcher: the standard library alone.

Rules. The numbers are those of ``asm/unistd_64.h`` and ``asm-generic/unistd.h`` of Linux. A machine
that is in neither column has no containment.
"""

import ctypes
import os
import platform
from typing import Any, Final

MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Each machine with its column in the table below, and its AUDIT_ARCH of seccomp."""
_TABLE = """
acct 163 89, add_key 248 217, adjtimex 159 171, bpf 321 280, capset 126 91, chmod 90 -,
chown 92 -, chroot 161 51, clock_adjtime 305 266, clock_settime 227 112, clone 56 220,
clone3 435 435, close_range 436 436, delete_module 176 106, fanotify_init 300 262,
fanotify_mark 301 263, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, fchown 93 55,
fchownat 260 54, fcntl 72 25, file_setattr 469 469, finit_module 313 273, fremovexattr 199 16,
fsconfig 431 431, fsetxattr 190 7, fsmount 432 432, fsopen 430 430, fspick 433 433,
futimesat 261 -, init_module 175 105, inotify_add_watch 254 27, io_uring_enter 426 426,
io_uring_register 427 427, io_uring_setup 425 425, ioctl 16 29, ioperm 173 -, iopl 172 -,
ioprio_set 251 30, kcmp 312 272, kexec_file_load 320 294, kexec_load 246 104, keyctl 250 219,
kill 62 129, landlock_add_rule 445 445, landlock_create_ruleset 444 444,
landlock_restrict_self 446 446, lchown 94 -, lookup_dcookie 212 18, lremovexattr 198 15,
lsetxattr 189 6, memfd_create 319 279, memfd_secret 447 447, migrate_pages 256 238,
modify_ldt 154 -, mount 165 40, mount_setattr 442 442, move_mount 429 429, move_pages 279 239,
mq_open 240 180, mq_unlink 241 181, msgctl 71 187, msgget 68 186, msgrcv 70 188, msgsnd 69 189,
nfsservctl 180 42, open_by_handle_at 304 265, open_tree 428 428, open_tree_attr 467 467,
perf_event_open 298 241, pidfd_getfd 438 438, pidfd_send_signal 424 424, pivot_root 155 41,
prlimit64 302 261, process_madvise 440 440, process_mrelease 448 448, process_vm_readv 310 270,
process_vm_writev 311 271, ptrace 101 117, quotactl 179 60, quotactl_fd 443 443, reboot 169 142,
removexattr 197 14, removexattrat 466 466, request_key 249 218, rt_sigqueueinfo 129 138,
rt_tgsigqueueinfo 297 240, sched_setaffinity 203 122, sched_setattr 314 274,
sched_setparam 142 118, sched_setscheduler 144 119, semctl 66 191, semget 64 190, semop 65 193,
semtimedop 220 192, setdomainname 171 162, sethostname 170 161, setns 308 268,
setpriority 141 140, settimeofday 164 170, setxattr 188 5, setxattrat 463 463, shmat 30 196,
shmctl 31 195, shmget 29 194, socket 41 198, socketpair 53 199, swapoff 168 225, swapon 167 224,
syslog 103 116, tgkill 234 131, tkill 200 130, truncate 76 45, umount2 166 39, unshare 272 97,
uselib 134 -, userfaultfd 323 282, utime 132 -, utimensat 280 88, utimes 235 -, vhangup 153 58
"""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def numbers(machine: str) -> dict[str, int]:
    """Return the number of each system call that a machine has; none for an unknown machine."""
    if machine not in MACHINES:
        return {}

    column, _ = MACHINES[machine]
    rows = (row.split() for row in _TABLE.split(","))
    return {name: int(columns[column]) for name, *columns in rows if columns[column] != "-"}


_NUMBERS = numbers(platform.machine())


def call(name: str, *arguments: Any) -> int:
    """Make a system call; arguments are integers, bytes and ctypes buffers.

    Raise ``OSError`` that names the call.
    """
    if name not in _NUMBERS:
        raise OSError(38, f"{name} is not known on {platform.machine()}")
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _checked(name, _libc.syscall(ctypes.c_long(_NUMBERS[name]), *wide))


def prctl(option: int, *arguments: Any) -> int:
    """Set an attribute of this process. Raise ``OSError``."""
    wide = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    zeros = [ctypes.c_ulong(0)] * (4 - len(wide))
    return _checked(f"prctl {option}", _libc.prctl(option, *wide, *zeros))


def _checked(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result
