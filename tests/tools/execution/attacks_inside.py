"""Attacks, run inside a command: ``python3 attacks_inside.py GIVEN`` prints
{attack: what came of it} as JSON.

It is a program of the standard library of any Python 3. ``denied …`` is an error of the kernel; all
else is a breach.
"""

import ctypes
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import sys

given = json.loads(sys.argv[1])
other, host, victim, number = given["other"], given["host"], given["victim"], given["numbers"]
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    return checked(
        libc.syscall(ctypes.c_long(number[name]), *[ctypes.c_long(each) for each in arguments])
    )


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def write(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def link_out():
    os.symlink(other + "/secret", "link-out")
    with open("link-out") as file:
        return file.read()


def foreign():
    """Make a system call of another architecture: getpid by int 0x80."""
    child = os.fork()
    if child == 0:
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS:
        raise OSError(1, "killed")


def kill_from_child():
    """Kill the host from another session."""
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.kill(host, signal.SIGKILL)
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise OSError(1, "refused")


def connect(family, kind, address):
    with socket.socket(family, kind) as made:
        made.connect(address)


def descriptors():
    found = []
    for each in range(3, 4096):
        try:
            os.fstat(each)
            found.append(each)
        except OSError:
            pass
    if found:
        return found
    raise OSError(9, "none")


def passwd():
    with open("/etc/passwd") as file:
        if "root:" in file.read():
            return "the host's"
    raise OSError(2, "made for the call")


def watch(path):
    """Watch a folder for what is done in it by others."""
    watching = checked(libc.inotify_init1(0))
    try:
        return checked(libc.inotify_add_watch(watching, path.encode(), 0xFFF))
    finally:
        os.close(watching)


def system_v():
    return libc.shmget(1234, 4096, 0o1666) if libc.shmget(1234, 4096, 0o1666) >= 0 else checked(-1)


def gained():
    if libc.prctl(39, 0, 0, 0, 0) == 1:
        raise OSError(1, "no_new_privs")


secret = other + "/secret"
attacks = {
    "descriptors": descriptors,  # Before the others open any
    "read-shadow": lambda: open("/etc/shadow"),
    "read-passwd": passwd,
    "read-ssh": lambda: open(given["ssh"]),
    "read-other-workspace": lambda: open(secret),
    "read-config": lambda: open(given["config"]),
    "list-other-workspace": lambda: os.listdir(other),
    "environ-of-host": lambda: open("/proc/%d/environ" % host).read(),
    "environ-of-parent": lambda: (
        open("/proc/%d/environ" % (os.getppid() or 1)).read()
        if os.getppid() == 1
        else open("/proc/%d/environ" % host)
    ),
    "environ-of-first": lambda: open("/proc/1/environ").read(),
    "memory-of-first": lambda: open("/proc/1/mem"),
    "root-of-host": lambda: os.listdir("/proc/%d/root" % host),
    "write-other-workspace": lambda: write(other + "/new"),
    "write-usr": lambda: write("/usr/new"),
    "write-etc": lambda: write("/etc/new"),
    "write-root": lambda: write("/new"),
    "write-beside": lambda: write(other + "/../beside"),
    "write-by-dots": lambda: write("../beside"),
    "symlink-out": link_out,
    "hard-link-out": lambda: os.link(secret, "hard"),
    "rename-out": lambda: os.rename(secret, "taken"),
    "truncate": lambda: os.truncate(secret, 0),
    "chmod": lambda: os.chmod(secret, 0o600),
    "chown": lambda: os.chown(secret, os.getuid(), os.getgid()),
    "utime": lambda: os.utime(secret, (0, 0)),
    "watch-other-workspace": lambda: watch(other),
    "watch-secret": lambda: watch(secret),
    "notify-of-folder": lambda: fcntl.fcntl(os.open(".", os.O_RDONLY), 1026, 0xF),
    "fanotify": lambda: call("fanotify_mark", 0, 0, 0, 0, 0),
    "xattr": lambda: os.setxattr(secret, "user.x", b"x"),
    "tcp": lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", given["tcp"])),
    "tcp6": lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM),
    "udp": lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", given["tcp"])),
    "raw": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
    "packet": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "vsock": lambda: socket.socket(40, socket.SOCK_STREAM),
    "unix": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "service.sock"),
    "abstract": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + given["abstract"]),
    "unix-datagram": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
    "kill-host": lambda: os.kill(host, 0),
    "kill-victim": lambda: os.kill(victim, signal.SIGKILL),
    "kill-by-pidfd": lambda: signal.pidfd_send_signal(os.pidfd_open(victim), signal.SIGKILL),
    "kill-from-child": kill_from_child,
    "queue-signal": lambda: call("rt_sigqueueinfo", victim, 0, 0),
    "limits-of-victim": lambda: resource.prlimit(victim, resource.RLIMIT_NOFILE, (1, 1)),
    "priority-of-victim": lambda: os.setpriority(os.PRIO_PROCESS, victim, 19),
    "priority-of-user": lambda: os.setpriority(os.PRIO_USER, 0, 19),
    "cores-of-victim": lambda: os.sched_setaffinity(victim, {0}),
    "unshare-user": lambda: call("unshare", 0x10000000),
    "unshare-net": lambda: call("unshare", 0x40000000),
    "clone-user": lambda: call("clone", 0x10000000 | 17, 0, 0, 0, 0),
    "clone3": lambda: call("clone3", 0, 0),
    "mount": lambda: call("mount", 0, 0, 0, 0, 0),
    "open-tree": lambda: call("open_tree", -100, 0, 1),
    "fsopen": lambda: call("fsopen", 0, 0),
    "setns": lambda: call("setns", 0, 0),
    "chroot": lambda: os.chroot("."),
    "pivot-root": lambda: call("pivot_root", 0, 0),
    "ptrace-me": lambda: call("ptrace", 0, 0, 0, 0),
    "ptrace-victim": lambda: call("ptrace", 16, victim, 0, 0),
    "read-memory": lambda: call("process_vm_readv", os.getpid(), 0, 0, 0, 0, 0),
    "bpf": lambda: call("bpf", 0, 0, 0),
    "keyctl": lambda: call("keyctl", 0, -1, 0, 0, 0),
    "userfaultfd": lambda: call("userfaultfd", 1),
    "io-uring": lambda: call("io_uring_setup", 1, 0),
    "perf": lambda: call("perf_event_open", 0, 0, -1, -1, 0),
    "open-by-handle": lambda: call("open_by_handle_at", 0, 0, 0),
    "modules": lambda: call("init_module", 0, 0, 0),
    "kexec": lambda: call("kexec_load", 0, 0, 0, 0),
    "memfd": lambda: os.memfd_create("x"),
    "system-v": system_v,
    "message-queue": lambda: call("mq_open", 0, 0, 0, 0),
    "tiocsti": lambda: call("ioctl", 0, 0x5412, 0),
    "tiocsti-high-bits": lambda: call("ioctl", 0, 0x5412 | 1 << 32, 0),
    "owner-of-signals": lambda: call("fcntl", 0, 8, victim),
    "x32": lambda: checked(libc.syscall(ctypes.c_long(0x40000000 | 39))),
    "sysctl": lambda: open("/proc/sys/kernel/core_pattern", "w"),
    "sysrq": lambda: open("/proc/sysrq-trigger", "w"),
    "own-limits": lambda: resource.setrlimit(resource.RLIMIT_NPROC, (100000, 100000)),
    "own-score": lambda: open("/proc/self/oom_score_adj", "w"),
    "set-user": lambda: os.setuid(0),
    "device": lambda: os.mknod("device", 0o020600, os.makedev(1, 1)),
    "new-rights": gained,
}
if given["machine"] == "x86_64":
    attacks["foreign-architecture"] = foreign

found = {}
for name, attack in attacks.items():
    try:
        found[name] = "possible: %r" % (attack(),)
    except OSError as error:
        found[name] = "denied %s" % error.errno
    except ValueError:  # What Python makes of EPERM from setrlimit
        found[name] = "denied 1"
print(json.dumps(found))
