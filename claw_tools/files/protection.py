"""Files that other programs run or obey, which no file tool writes.

Specification: docs/spec/tools-host.md "Files".

Rules. A file is protected for where it really is: the folders above it are those of the open
folder, upwards to the workspace, and the file system says which of them a protected name means. So
neither a link, nor a spelling, nor a file system that takes ``.GIT`` for ``.git`` leads around it.
What is not there yet is compared by its name, without case, accents and what can't be seen.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Final

from claw_tools.errors import ErrorCode, ToolError
from claw_tools.files.folder import Folder

MAX_DEPTH: Final = 64
"""Folders between the workspace and a file that is written.

Links can lead deeper than a path is long.
"""
_INVISIBLE: Final = {"Cf", "Mn"}


class ProtectedFiles:
    """The protected names of a workspace.

    ``name`` is a file in any folder, ``name/`` a folder with all below it; both may have folders in
    front, as ``.git/config``.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Take the names."""
        self._parts_of = {name: [part for part in name.split("/") if part] for name in names}

    def refuse(self, root: Folder, folder: Folder, new_names: Sequence[str]) -> None:
        """Raise ``ToolError`` if a file may not be written.

        ``new_names`` is the rest of its path below ``folder``: folders that are missing, and its
        name.
        """
        with ExitStack() as closing:
            folders = _ancestry(root, folder, closing)
            for name, parts in self._parts_of.items():
                if _is_protected(folders, new_names, parts, is_folder=name.endswith("/")):
                    raise ToolError(
                        ErrorCode.PERMISSION_DENIED,
                        f"{name!r} is protected, since other programs run or obey it: change it "
                        "by hand.",
                    )


def _is_protected(
    folders: Sequence[Folder], new_names: Sequence[str], parts: Sequence[str], *, is_folder: bool
) -> bool:
    """Return whether a path is protected by a name of these parts, such as ``.git``, ``config``.

    The path's steps are the folders below the root, then the new names. The parts must be steps
    that follow each other: a file's the last ones of the path, a folder's any.
    """
    step_count = len(folders) - 1 + len(new_names)
    last_start = step_count - len(parts)
    if last_start < 0:
        return False

    first_start = 0 if is_folder else last_start
    for start in range(first_start, last_start + 1):
        matches = (
            _is_called(folders, new_names, start + offset, part)
            for offset, part in enumerate(parts)
        )
        if all(matches):
            return True
    return False


def _ancestry(root: Folder, folder: Folder, closing: ExitStack) -> list[Folder]:
    """Return the folders from the root to this one, whose descriptors ``closing`` closes.

    Raise ``ToolError``.
    """
    top = root.identity
    upwards = [folder]
    while upwards[-1].identity != top:
        if len(upwards) > MAX_DEPTH:
            raise ToolError(
                ErrorCode.INVALID_PATH,
                f"the file is more than {MAX_DEPTH} folders deep, or was moved away.",
            )
        upwards.append(closing.enter_context(upwards[-1].parent()))
    return upwards[::-1]


def _is_called(folders: Sequence[Folder], new_names: Sequence[str], step: int, name: str) -> bool:
    """Return whether a step of the path, into a folder or to a new name, is this name."""
    new = step - (len(folders) - 1)
    if new >= 0:
        return _fold(new_names[new]) == _fold(name)

    # The file system says which folder the name means
    return folders[step].find(name) == folders[step + 1].identity


def _fold(name: str) -> str:
    """Return a name without case, accents and invisible characters."""
    folded = unicodedata.normalize("NFKD", name).casefold()
    return "".join(sign for sign in folded if unicodedata.category(sign) not in _INVISIBLE)
