"""Paths below a folder that others may not enter, such as root's home, made
reachable for processes of other users.

The folder is covered by an empty one, in a mount namespace of the test's own, and what is needed is
mounted there again.
"""

from __future__ import annotations

import stat
from pathlib import Path
from shlex import quote


class OpenedPaths:
    """The paths of one mount namespace, whose mounts must be private.

    ``hold``: an empty folder, to reach what is covered.
    """

    def __init__(self, hold: Path) -> None:
        self._hold = hold
        self._held: dict[Path, Path] = {}
        """Each covered folder, and where it is still reached."""

    def lines(self, *paths: Path) -> list[str]:
        """Return the lines of a shell script, to be run by root within the
        namespace, that open these paths.
        """
        lines: list[str] = []
        for path in paths:
            for part in _open_parts(path.resolve()):
                lines += self._open(part)
            if path != path.resolve() and _first_closed(path) is not None:
                link, target = quote(str(path)), quote(str(path.resolve()))
                lines.append(
                    f"mkdir -p {quote(str(path.parent))}; [ -e {link} ] || ln -s {target} {link}"
                )
        return lines

    def _open(self, path: Path) -> list[str]:
        closed = _first_closed(path)
        if closed is None:
            return []

        lines = []
        held = self._held.get(closed)
        if held is None:
            held = self._held[closed] = self._hold / str(len(self._held))
            folder, place = quote(str(closed)), quote(str(held))
            lines.append(
                f"mkdir -p {place}; mount --rbind {folder} {place}; mount -t tmpfs -o "
                f"mode=755 none {folder}"
            )

        source, target = quote(str(held / path.relative_to(closed))), quote(str(path))
        if path.is_dir():
            lines.append(f"mkdir -p {target}")
        else:
            lines.append(f"mkdir -p {quote(str(path.parent))}; touch {target}")
        lines.append(f"mount --rbind {source} {target}")
        return lines


def _open_parts(path: Path) -> list[Path]:
    """Return the path, or what is in it if it is a closed folder: mounted again, it
    would still be closed.
    """
    return [path] if not path.is_dir() or _is_open(path) else sorted(path.iterdir())


def _first_closed(path: Path) -> Path | None:
    return next((each for each in reversed(path.parents) if not _is_open(each)), None)


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)
