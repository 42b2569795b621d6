"""The tree that the last compile wrote, for comparison with what the next one would."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

TREE = ".tree"
"""What is exchanged in one rename, in the directory that stays."""


def compiled(directory: Path, compose_file: Path) -> Mapping[PurePosixPath, bytes]:
    """Every file of the tree by its path in it, and the Compose file; none when it is not there. Raises ``OSError``."""
    root = Path(os.path.realpath(directory)) / TREE
    found: dict[PurePosixPath, bytes] = {}
    if compose_file.is_file():
        found[PurePosixPath(compose_file.name)] = compose_file.read_bytes()
    for place, _, names in os.walk(root, onerror=_unreadable):
        for name in names:
            path = Path(place) / name
            if stat.S_ISREG(path.lstat().st_mode):
                found[PurePosixPath(path.relative_to(root).as_posix())] = path.read_bytes()
    return found


def _unreadable(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
