"""The small files of a folder that an agent gets, read within bounds.

    listed        20,000 entries, 8 folders deep; no folder of more than 200,000 entries, and no
                  other file system
    read          2,000 regular files of up to 256 KiB each, 8 MiB together
    read first    files whose names tell of credentials, then the others by their paths

Links are not followed: one that leads out of the folder leads elsewhere in the container, and what
it leads to within the folder is read there. Everything is in the order of the names, so that equal
folders give equal results. What was not looked at is said in words, because it may hold a secret.
"""

import os
import re
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

MAX_ENTRIES = 20_000
MAX_ENTRIES_OF_ONE = 200_000
MAX_DEPTH = 8
MAX_FILES = 2_000
MAX_FILE_BYTES = 256 * 1024
MAX_BYTES = 8 * 1024 * 1024

_LIKELY = re.compile(
    r"\.?env(\..*)?|.*\.env|.*\.(key|pem|secret|token)"
    r"|\.?(netrc|npmrc|pypirc|credentials|secrets)(\..*)?"
    r"|.*(api[-_]?key|credential|secret|token).*",
    re.IGNORECASE,
)
"""Names of files that tell of credentials."""

_KERNEL = ("/dev", "/proc", "/sys")
"""Not on any disk: to read there may wait, or do something."""


@dataclass(frozen=True)
class FolderFile:
    """``path`` is relative to the folder."""

    path: str
    text: str = field(repr=False)


@dataclass(frozen=True)
class FolderContent:
    """``unread`` says in words what was not looked at; () if everything was."""

    files: tuple[FolderFile, ...]
    unread: tuple[str, ...]


@dataclass(frozen=True)
class _Listing:
    """Regular files by their paths, each with its size, and what was not listed."""

    sizes: dict[str, int]
    unread: tuple[str, ...]


def read_folder(folder: Path) -> FolderContent:
    """Return the content of a folder's files."""
    root = Path(os.path.realpath(folder))
    if any(root.is_relative_to(place) for place in _KERNEL):
        return FolderContent((), ("all of it: it is the kernel's",))

    listing = _list_files(root)
    paths = sorted(listing.sizes, key=lambda path: (not _is_likely(path), path))
    files: list[FolderFile] = []
    too_large = 0
    unreadable = 0
    bytes_left = MAX_BYTES

    for number, path in enumerate(paths):
        size = listing.sizes[path]
        if size > MAX_FILE_BYTES:
            too_large += 1
            continue

        if len(files) == MAX_FILES or size > bytes_left:
            rest = len(paths) - number
            unread = (*listing.unread, f"{rest} files behind the first {len(files)}")
            return FolderContent(tuple(files), (*unread, *_count_unread(too_large, unreadable)))

        data = _read(root / path)
        if data is None:
            unreadable += 1
            continue

        bytes_left -= len(data)
        # Any bytes are searched: a secret may be in a file that is no text.
        files.append(FolderFile(path, data.decode("utf-8-sig", errors="replace")))

    return FolderContent(tuple(files), (*listing.unread, *_count_unread(too_large, unreadable)))


def _count_unread(too_large: int, unreadable: int) -> Iterator[str]:
    if too_large:
        yield f"{too_large} larger than {MAX_FILE_BYTES >> 10} KiB"
    if unreadable:
        yield f"{unreadable} that can't be read"


def _is_likely(path: str) -> bool:
    return _LIKELY.fullmatch(path.rpartition("/")[2]) is not None


def _list_files(root: Path) -> _Listing:
    """List the folder, and the folders in it, those nearer to the top first."""
    sizes: dict[str, int] = {}
    unread: dict[str, None] = {}
    device = _device(root)
    queue = deque([("", 0)])
    count = 0

    while queue:
        path, depth = queue.popleft()
        entries = _entries(root / path)
        if entries is None:
            reason = f"folders of more than {MAX_ENTRIES_OF_ONE} entries, or that can't be read"
            unread[reason] = None
            continue

        for entry in entries:
            if count == MAX_ENTRIES:
                unread[f"everything behind the first {MAX_ENTRIES} entries"] = None
                return _Listing(sizes, tuple(unread))
            count += 1

            status = _status(entry)
            if status is None:
                continue

            inside = f"{path}/{entry.name}" if path else entry.name
            is_folder = stat.S_ISDIR(status.st_mode)
            if stat.S_ISREG(status.st_mode) and status.st_size:
                sizes[inside] = status.st_size
            elif is_folder and status.st_dev != device:
                # A network share may be slow without bounds, and /proc is never the same twice.
                unread["other file systems in it"] = None
            elif is_folder and depth + 1 > MAX_DEPTH:
                unread[f"folders more than {MAX_DEPTH} deep"] = None
            elif is_folder:
                queue.append((inside, depth + 1))

    return _Listing(sizes, tuple(unread))


def _entries(folder: Path) -> list[os.DirEntry[str]] | None:
    """Return a folder's entries, those with likely names first.

    Return None if there are too many, or the folder can't be read.
    """
    try:
        with os.scandir(folder) as listing:
            entries = list(islice(listing, MAX_ENTRIES_OF_ONE + 1))
    except OSError:
        return None
    if len(entries) > MAX_ENTRIES_OF_ONE:
        return None

    return sorted(entries, key=lambda entry: (not _is_likely(entry.name), entry.name))


def _device(folder: Path) -> int | None:
    with suppress(OSError):
        return folder.stat().st_dev
    return None


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    with suppress(OSError):
        return entry.stat(follow_symlinks=False)
    return None


def _read(path: Path) -> bytes | None:
    """Return a regular file's bytes.

    Return None for one that can't be read, or has become something else.
    """
    try:
        # Another process may have put a pipe or a link in its place since it was listed.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None

    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with suppress(OSError):
            return file.read(MAX_FILE_BYTES)
    return None
