"""``python -m tests.tools.files.poor_process HOME new|old``: the file tools in a
process without root's rights.

``old``: a seccomp filter refuses openat2 and O_TMPFILE, as a kernel or a file system does that does
not have them.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import struct
import sys
from pathlib import Path

from claw_tools.errors import ErrorCode
from claw_tools.files.openat2 import find_opener, open_by_kernel, open_by_walk
from claw_tools.files.workspace import Workspace
from tests.tools.files.guarded_workspace import OWNER, GuardedWorkspace, registered

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_ENOSYS, _EOPNOTSUPP = 38, 95
_NUMBER, _FLAGS = 0, 32  # Offsets in struct seccomp_data: the call's number, and its third argument
_OPENAT2, _TMPFILE = 437, 0o20000000
OPENAT = {"x86_64": 257, "aarch64": 56}
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def refuse_new_calls() -> None:
    """Make openat2 fail with ENOSYS, and openat with O_TMPFILE with EOPNOTSUPP, in this process."""
    steps = [
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 1, _OPENAT2),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_EQUAL, 0, 3, OPENAT[platform.machine()]),
        (_LOAD, 0, 0, _FLAGS),
        (_ANY_BIT, 0, 1, _TMPFILE),
        (_RETURN, 0, 0, _ERRNO | _EOPNOTSUPP),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert (
        libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(_Program(len(steps), code)), 0, 0) == 0
    ), ctypes.get_errno()


async def use_everything(home: Path) -> None:
    """Call each tool, and each way out."""
    workspace = Workspace.open(home / "ws")
    registry = registered(workspace)
    if os.geteuid() == 0:
        os.setresgid(OWNER, OWNER, OWNER)
        os.setresuid(OWNER, OWNER, OWNER)
    assert has_no_capability()

    scene = GuardedWorkspace(home, workspace, registry)
    assert await scene.call("write_file", path="x/f", content="old") == {
        "bytes": 3,
        "created": True,
    }
    await scene.call("edit_file", path="x/f", old_text="old", new_text="new")
    assert await scene.call("read_file", path="x/../x/f") == {"content": "new"}
    await scene.call("memory_write", content="note")
    names = [each["name"] for each in (await scene.call("list_directory", path="."))["entries"]]
    assert names == ["MEMORY.md", "link", "x"], names
    for path in ("../out/s", "link/s", "link", "/etc/passwd"):
        for name, more in {
            "read_file": {},
            "write_file": {"content": "x"},
            "list_directory": {},
        }.items():
            assert await scene.refused(name, path=path, **more) is ErrorCode.INVALID_PATH


def has_no_capability() -> bool:
    status = Path("/proc/self/status").read_text()
    return all(f"{name}:\t{0:016x}\n" in status for name in ("CapEff", "CapPrm"))


def main() -> None:
    home, is_old = Path(sys.argv[1]), "old" in sys.argv
    if is_old:
        refuse_new_calls()
    folder = os.open(home, os.O_RDONLY)
    assert find_opener(folder) is (open_by_walk if is_old else open_by_kernel)
    asyncio.run(use_everything(home))


if __name__ == "__main__":
    main()
