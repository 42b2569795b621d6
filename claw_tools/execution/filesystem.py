"""The file system that a command sees in namespaces of its own.

Part of the launcher: the standard library alone.

Rules. The root starts empty, and gets the workspace, the system's programs and libraries
read-only, a /tmp of bounded size, five devices, and /proc of its own processes if the kernel lets
it be mounted. Every source is opened before the root is there, and mounted by its descriptor: no
path is resolved twice.
"""

import ctypes
import os
import stat
import struct
from typing import Final

from claw_tools.execution.syscalls import call

WORKSPACE: Final = "/workspace"
DEVICES: Final = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS: Final = {
    "fd": "/proc/self/fd",
    "stdin": "fd/0",
    "stdout": "fd/1",
    "stderr": "fd/2",
    "shm": "/tmp",  # noqa: S108 - the call's own
}
SYSTEM: Final = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
SETTINGS: Final = (
    *("ld.so.cache", "ld.so.conf", "alternatives", "localtime", "mime.types"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "pki/ca-trust/extracted", "ca-certificates"),
)
"""The parts of /etc that programs need."""
NETWORK_SETTINGS: Final = (
    "resolv.conf",
    "hosts",
    "nsswitch.conf",
    "gai.conf",
    "services",
    "protocols",
)
"""Those that programs need with a network."""
_TMP_BYTES: Final = 256 << 20
_TMP_FILES: Final = 65_536

# Of open_tree(2), fsopen(2), fsconfig(2), move_mount(2), mount_setattr(2), umount2(2), unshare(2)
_AT_CWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_CLOEXEC: Final = 0o2000000
_CLONE: Final = 1
_READ_ONLY: Final = 1
_NO_SUID: Final = 2
_NO_DEVICES: Final = 4
_NO_EXEC: Final = 8
_PRIVATE: Final = 1 << 18
_SET_STRING: Final = 1
_CREATE: Final = 6
_MOVE_EMPTY: Final = 4
_DETACH: Final = 2
_MOUNTS: Final = 0x00020000


def build_root(*, network: bool) -> None:
    """Make the root, and enter its workspace, which is the present directory. Raise ``OSError``.

    This process is process 1 of a PID namespace of its own, and leaves the mount namespace of the
    others.
    """
    call("unshare", _MOUNTS)

    # Paths below the root, without a first slash
    trees = {WORKSPACE[1:]: _clone(".", _NO_SUID | _NO_DEVICES)}
    links = {}
    for name in SYSTEM:
        if os.path.islink(f"/{name}"):
            links[name] = os.readlink(f"/{name}")
        else:
            _add(trees, name)

    settings = (*SETTINGS, *NETWORK_SETTINGS) if network else SETTINGS
    for name in settings:
        _add(trees, f"etc/{name}")
    for name in DEVICES:
        trees[f"dev/{name}"] = _clone(f"/dev/{name}", _READ_ONLY | _NO_SUID | _NO_EXEC)

    _add_proc(trees)
    options = {"size": str(_TMP_BYTES), "nr_inodes": str(_TMP_FILES), "mode": "1777"}
    trees["tmp"] = _make("tmpfs", options, _NO_SUID | _NO_DEVICES)

    root = _make("tmpfs", {"size": "1m", "mode": "755"}, _NO_SUID | _NO_DEVICES)
    _attach(root, "/proc")  # It is there on every system, and hidden for this process alone
    os.fchdir(root)
    _fill(trees, links)

    # The old root is put upon the new one, and taken away at once (pivot_root(2), "Notes")
    call("pivot_root", b".", b".")
    call("umount2", b".", _DETACH)
    _set_flags(root, _READ_ONLY, 0)
    os.chdir(WORKSPACE)


def _fill(trees: dict[str, int], links: dict[str, str]) -> None:
    """Mount the trees below the present directory, and make the rest."""
    for name, tree in trees.items():
        os.makedirs(name.rpartition("/")[0] or ".", exist_ok=True)
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            os.mkdir(name)
        else:
            _write(name, "")
        _attach(tree, name)
        os.close(tree)

    for name, target in links.items():
        os.symlink(target, name)

    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"dev/{name}")
    _write("etc/passwd", f"worker:x:{os.getuid()}:{os.getgid()}::{WORKSPACE}:/bin/sh\n")
    _write("etc/group", f"worker:x:{os.getgid()}:\n")


def _write(name: str, text: str) -> None:
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)


def _add(trees: dict[str, int], name: str) -> None:
    """Add a part of the system, if it is there and may be read."""
    try:
        trees[name] = _clone(f"/{name}", _READ_ONLY | _NO_SUID | _NO_DEVICES)
    except OSError:
        return


def _add_proc(trees: dict[str, int]) -> None:
    """Add /proc of the own processes alone.

    A container whose own /proc is masked may not mount it.
    """
    try:
        trees["proc"] = _make("proc", {"subset": "pid"}, _NO_SUID | _NO_DEVICES | _NO_EXEC)
    except OSError:
        return


def _clone(path: str, flags: int) -> int:
    tree = call("open_tree", _AT_CWD, os.fsencode(path), _CLONE | _CLOEXEC | _AT_RECURSIVE)
    _set_flags(tree, flags)
    return tree


def _make(kind: str, options: dict[str, str], flags: int) -> int:
    context = call("fsopen", kind.encode(), 1)
    for name, value in options.items():
        call("fsconfig", context, _SET_STRING, name.encode(), value.encode(), 0)
    call("fsconfig", context, _CREATE, None, None, 0)
    made = call("fsmount", context, 1, flags)
    os.close(context)
    return made


def _attach(tree: int, path: str) -> None:
    call("move_mount", tree, b"", _AT_CWD, os.fsencode(path), _MOVE_EMPTY)


def _set_flags(tree: int, flags: int, depth: int = _AT_RECURSIVE) -> None:
    """Add flags to all mounts of a tree; without ``depth``, to the first."""
    attributes = struct.pack("4Q", flags, 0, _PRIVATE, 0)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    call("mount_setattr", tree, b"", _AT_EMPTY_PATH | depth, buffer, len(attributes))
