"""Paths as a model writes them, and what went wrong with one (docs/spec/tools-host.md "Files").

Rules. A path is relative to the workspace. The kernel decides what it means; only what no path may
be is refused here. A way out is INVALID_PATH always, also if the kernel stopped before it at a
folder that is not there. Messages name the path as it was given, and no other.
"""

import errno
import os
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from claw_tools.errors import ErrorCode, ToolError

MAX_BYTES: Final = 1_024
MAX_PARTS: Final = 32
_MAX_SHOWN: Final = 200  # Characters of a path in a message
_OUTSIDE: Final = (
    ErrorCode.INVALID_PATH,
    "leads out of the workspace: give a path inside it, relative to it.",
)
_NO_FILE: Final = (ErrorCode.INVALID_PATH, "is a device, a pipe or a socket, and no file.")
_FORBIDDEN: Final = (
    ErrorCode.PERMISSION_DENIED,
    "is not accessible: the rights of the file or of its folder forbid it.",
)
_FULL: Final = (
    ErrorCode.EXECUTION_FAILED,
    "can't be written: the disk is full. What was there is unchanged.",
)
_PROBLEMS: Final = {
    errno.EXDEV: _OUTSIDE,
    errno.ELOOP: (
        ErrorCode.INVALID_PATH,
        "is a link, or leads through one, that is not followed here: give the path of the file.",
    ),
    errno.ENAMETOOLONG: (
        ErrorCode.INVALID_PATH,
        "has a name that is too long for the file system.",
    ),
    errno.EISDIR: (ErrorCode.INVALID_PATH, "is a folder, and no file."),
    errno.ENXIO: _NO_FILE,
    errno.ENODEV: _NO_FILE,
    errno.ENOENT: (ErrorCode.FILE_NOT_FOUND, "is not there: list_directory shows what is."),
    errno.ENOTDIR: (
        ErrorCode.FILE_NOT_FOUND,
        "is not there: it, or a part of its path, is no folder.",
    ),
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: (ErrorCode.PERMISSION_DENIED, "can't be written: the file system is read-only."),
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EAGAIN: (ErrorCode.BUSY, "is moved while it is opened: try again."),
}
"""The code and the words that a model gets for an error of the system, by errno."""


def check_path(path: str) -> str:
    """Return the path. Raise ``ToolError`` if it can't be one, whatever the workspace holds."""
    problem = _find_problem(path)
    if problem is not None:
        raise ToolError(ErrorCode.INVALID_PATH, f"the path {show(path)} {problem}")
    return path


def split_path(path: str) -> tuple[list[str], str]:
    """Return the folders of a file's path, ``..`` among them, and its name.

    Raise ``ToolError`` for the path of a folder.
    """
    *folders, name = check_path(path).split("/")
    if name in {"", ".", ".."}:
        raise ToolError(
            ErrorCode.INVALID_PATH,
            f"the path {show(path)} is that of a folder: it does not end with a name.",
        )
    return [part for part in folders if part not in {"", "."}], name


def show(path: str) -> str:
    """Return a path as a message shows it: quoted, short, and printable whatever it holds."""
    return repr(path if len(path) <= _MAX_SHOWN else f"{path[:_MAX_SHOWN]}…")


@contextmanager
def explain_errors(path: str) -> Iterator[None]:
    """Turn an ``OSError`` into the ``ToolError`` that tells a model what is wrong with the path."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        if number in {errno.ENOENT, errno.ENOTDIR} and _leads_out(path):
            number = errno.EXDEV

        unknown = (ErrorCode.EXECUTION_FAILED, f"failed: {os.strerror(number)}.")
        code, problem = _PROBLEMS.get(number, unknown)
        raise ToolError(code, f"the path {show(path)} {problem}") from None


def _find_problem(path: str) -> str | None:
    if not path:
        return "is empty: '.' is the workspace itself."
    if path.startswith("/"):
        return _OUTSIDE[1]
    if any(unicodedata.category(each) in {"Cc", "Cs"} for each in path[: MAX_BYTES + 1]):
        return "has a control character, or one that is no character."
    if len(path) > MAX_BYTES or len(os.fsencode(path)) > MAX_BYTES:
        return f"is longer than {MAX_BYTES} bytes."
    if path.strip("/").count("/") >= MAX_PARTS:
        return f"has more than {MAX_PARTS} parts."
    return None


def _leads_out(path: str) -> bool:
    """Return True if more ``..`` than names stand before a part of the path."""
    depth = 0
    for part in path.split("/"):
        depth += {"": 0, ".": 0, "..": -1}.get(part, 1)
        if depth < 0:
            return True
    return False
