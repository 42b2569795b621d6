"""Files that other programs run or obey, which no file tool writes
(docs/spec/tools-host.md "Files").

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
"""Folders between the workspace and a file that is written; links can lead deeper
than a path is long.
"""
_INVISIBLE: Final = {"Cf", "Mn"}


class ProtectedFiles:
    """The protected names of a workspace: ``name`` is a file in any folder,
    ``name/`` a folder with all below it.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Take names such as ``.git/config``, each with the folders that stand before it."""
        self._names = [(name, [part for part in name.split("/") if part]) for name in names]

    def refuse(self, root: Folder, folder: Folder, new_names: Sequence[str]) -> None:
        """Raise ``ToolError`` if the path of new folders and a file, in this folder
        of the workspace, is a protected one.
        """
        with ExitStack() as closing:
            folders = _ancestry(root, folder, closing)
            steps = len(folders) - 1 + len(new_names)
            for name, parts in self._names:
                last = steps - len(parts)
                for start in range(0 if name.endswith("/") else max(last, 0), last + 1):
                    if all(
                        _is_called(folders, new_names, start + place, part)
                        for place, part in enumerate(parts)
                    ):
                        problem = (
                            f"{name!r} is protected, since other programs run or obey it: "
                            "change it by hand."
                        )
                        raise ToolError(ErrorCode.PERMISSION_DENIED, problem)


def _ancestry(root: Folder, folder: Folder, closing: ExitStack) -> list[Folder]:
    """Return the folders from the root to this one, whose descriptors ``closing`` closes.

    Raise ``ToolError``.
    """
    top, found = root.identity, [folder]
    while found[-1].identity != top:
        if len(found) > MAX_DEPTH:
            raise ToolError(
                ErrorCode.INVALID_PATH,
                f"the file is more than {MAX_DEPTH} folders deep, or was moved away.",
            )
        found.append(closing.enter_context(found[-1].parent()))
    return found[::-1]


def _is_called(folders: Sequence[Folder], new_names: Sequence[str], place: int, name: str) -> bool:
    """Return True if the step at this place of the path is this name: into one of
    the folders, or to a new name.
    """
    if (new := place - (len(folders) - 1)) >= 0:
        return _fold(new_names[new]) == _fold(name)
    return folders[place].find(name) == folders[place + 1].identity


def _fold(name: str) -> str:
    return "".join(
        each
        for each in unicodedata.normalize("NFKD", name).casefold()
        if unicodedata.category(each) not in _INVISIBLE
    )
