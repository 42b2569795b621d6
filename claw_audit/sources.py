"""Where history and logs are read from: the only module here that opens files.

Rules. A file is read as long as it was when it was opened, whatever is written to it or becomes of its name meanwhile. An
agent's two files are opened so that a rotation in between shows. What is no regular file is no history.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from claw_audit.lines import Read
from claw_contract.names import is_agent_id

NEWER = "history.jsonl"
OLDER = "history.jsonl.1"
STDIN = "-"
_GZIP = b"\x1f\x8b"
_RACES = 100


class SourceError(Exception):
    """What can't be read, and why, in one line."""


@dataclass(frozen=True)
class Source:
    """One file, as it was when it was opened."""

    name: str
    size: int
    reading: Callable[[], Read]
    """From the beginning on, as often as it is asked."""
    ends: bool
    """Whether nobody writes it any more. What a proxy writes may end within a line."""


@dataclass(frozen=True)
class AgentHistory:
    """The files of one agent, the older one first."""

    agent: str
    directory: Path
    files: tuple[Source, ...]


class Progress:
    """Told of every byte that was read."""

    def __init__(self, tell: Callable[[int], None] | None = None) -> None:
        self._tell = tell

    def watched(self, read: Read) -> Read:
        """The same, told of."""
        tell = self._tell
        if tell is None:
            return read

        def reads(most: int) -> bytes:
            data = read(most)
            tell(len(data))
            return data

        return reads


def agents(directories: tuple[Path, ...]) -> list[tuple[str, Path]]:
    """The agents that have history, and where; in order of their names. Raises ``SourceError``."""
    found: list[tuple[str, Path]] = []
    for directory in dict.fromkeys(map(os.path.realpath, directories)):
        try:
            names = [entry.name for entry in os.scandir(directory) if entry.is_dir()]
        except OSError as error:
            raise SourceError(f"{directory}: {error.strerror}") from None
        found += [(name, Path(directory) / name) for name in names if is_agent_id(name)]
    return sorted(found)


@contextmanager
def open_history(agent: str, directory: Path, progress: Progress) -> Iterator[AgentHistory]:
    """One agent's files, open while it is looked at. Raises ``SourceError``."""
    newer, older = _opened(directory)
    try:
        files = [
            _source(file, directory / name, progress, ends=name == OLDER)
            for file, name in ((older, OLDER), (newer, NEWER))
            if file is not None
        ]
        yield AgentHistory(agent, directory, tuple(files))
    finally:
        for file in (newer, older):
            if file is not None:
                file.close()


def _opened(directory: Path) -> tuple[BinaryIO | None, BinaryIO | None]:
    """(newer, older). Where the file was rotated in between, both names are of one file: then it is done again."""
    for _ in range(_RACES):
        newer = _regular(directory / NEWER)
        try:
            older = _regular(directory / OLDER)
        except SourceError:
            if newer is not None:
                newer.close()
            raise
        if newer is None or older is None or _identity(newer) != _identity(older):
            return newer, older
        newer.close()
        older.close()
    raise SourceError(f"{directory / NEWER}: is {OLDER} too")


def _identity(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino


def _regular(path: Path) -> BinaryIO | None:
    """None: there is none."""
    try:
        # Not blocking: what stands there may be a pipe that nobody writes to.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SourceError(f"{path}: is no regular file")
    return os.fdopen(descriptor, "rb", buffering=0)


def _source(file: BinaryIO, path: Path, progress: Progress, *, ends: bool) -> Source:
    size = os.fstat(file.fileno()).st_size
    return Source(str(path), size, lambda: progress.watched(_reading(file, path, size)), ends)


def _reading(file: BinaryIO, path: Path, size: int) -> Read:
    """No further than it went when it was opened."""
    place = 0

    def read(most: int) -> bytes:
        nonlocal place
        try:
            data = os.pread(file.fileno(), min(most, size - place), place)
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from None
        place += len(data)
        return data

    return read


def size_of(directory: Path) -> int:
    """Bytes of an agent's files."""
    return sum(_size(directory / name) for name in (OLDER, NEWER))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def log_size(name: str) -> int:
    """Bytes of a log; 0 where nobody knows."""
    return 0 if name == STDIN else _size(Path(name))


@contextmanager
def open_log(name: str, progress: Progress) -> Iterator[Read]:
    """The proxy's output, kept in a file, packed or not; ``-`` is standard input. Raises ``SourceError``."""
    try:
        raw: BinaryIO = sys.stdin.buffer if name == STDIN else Path(name).open("rb", buffering=0)  # noqa: SIM115 - closed below
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror}") from None
    file = io.BufferedReader(_Watched(raw, progress))
    with closing(file):
        packed = file.peek(len(_GZIP)).startswith(_GZIP)
        read = gzip.GzipFile(fileobj=file).read1 if packed else file.read1
        yield _told(read, name)


class _Watched(io.RawIOBase):
    """So that progress is told in bytes on the disk, though they are unpacked later."""

    def __init__(self, raw: BinaryIO, progress: Progress) -> None:
        self._raw = raw
        self._read = progress.watched(raw.read1 if isinstance(raw, io.BufferedReader) else raw.read)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()
        super().close()


def _told(read: Read, name: str) -> Read:
    def reads(most: int) -> bytes:
        try:
            return read(most)
        except EOFError:
            raise SourceError(f"{name}: is cut off") from None
        except (OSError, zlib.error) as error:
            raise SourceError(f"{name}: {getattr(error, 'strerror', None) or 'is damaged'}") from None

    return reads
