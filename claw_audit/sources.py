"""Access to history files and logs. No other module of this package opens files.

A proxy may write to history, and rotate it, meanwhile. So a file is read up to the size that it had
when it was opened, and a rotation while an agent's files are opened is noticed. Only regular files
are history. Blocks and lines are streamed: memory does not grow with the size of a file.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from claw_contract.names import WORKER_PREFIX, is_agent_id

CURRENT_FILE = "history.jsonl"
_ROTATED_FILE = re.compile(r"history\.jsonl\.([1-9][0-9]{0,8})")
_MAX_FILES = 200  # older files of an agent; the proxy keeps at most 100
STDIN = "-"
MAX_LINE_BYTES = 16 << 20  # Longer lines are skipped. The proxy keeps at most 256 KiB of a body.
LINE_TOO_LONG = f"is longer than {MAX_LINE_BYTES >> 20} MiB"
_BLOCK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_RACES = 100

type Progress = Callable[[int], object]
"""Called with the number of bytes on the disk that were read since the last call."""


def ignore(_: object) -> None:
    """Do nothing. This is the default of callbacks."""


class SourceError(Exception):
    """A file or directory that can't be read. The message is one line: name, colon, reason."""


@dataclass(frozen=True)
class HistoryFile:
    """One open history file.

    ``is_rotated``: the proxy no longer writes to it, so its last line is complete.
    """

    path: Path
    file: BinaryIO
    size: int
    is_rotated: bool
    progress: Progress

    def blocks(self) -> Iterator[bytes]:
        """Yield the content from the beginning, each time it is called. Raise ``SourceError``."""
        offset = 0
        try:
            while block := os.pread(self.file.fileno(), min(_BLOCK, self.size - offset), offset):
                offset += len(block)
                self.progress(len(block))
                yield block
        except OSError as error:
            raise SourceError(f"{self.path}: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class Line:
    """One line with its line break, if it has one."""

    number: int
    offset: int
    data: bytes | None
    """None if the line is longer than ``MAX_LINE_BYTES``."""


def _line_pieces(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Cut blocks after each line break. A line that spans blocks has several pieces."""
    for block in blocks:
        start = 0
        while end := block.find(b"\n", start) + 1:
            yield block[start:end]
            start = end
        if start < len(block):
            yield block[start:]


def read_lines(
    blocks: Iterable[bytes], observe: Callable[[bytes], object] = ignore
) -> Iterator[Line]:
    """Yield all lines, including a last one without a line break.

    ``observe`` is called with each piece of a line before the line is yielded, also of a line that
    is too long.
    """
    number = 1
    offset = 0
    size = 0
    pieces: list[bytes] = []
    for piece in _line_pieces(blocks):
        observe(piece)
        size += len(piece)
        is_too_long = size > MAX_LINE_BYTES
        if is_too_long:
            pieces.clear()
        else:
            pieces.append(piece)

        if piece.endswith(b"\n"):
            yield Line(number, offset, None if is_too_long else b"".join(pieces))
            number += 1
            offset += size
            size = 0
            pieces.clear()

    if size:  # a last line without a line break
        is_too_long = size > MAX_LINE_BYTES
        yield Line(number, offset, None if is_too_long else b"".join(pieces))


def agent_directories(histories: Iterable[Path]) -> dict[str, list[Path]]:
    """Return the directories of each agent that has history, ordered by agent.

    Each worker of a proxy but the first writes to a directory of its own below the proxy's. Raise
    ``SourceError``.
    """
    places: dict[str, list[Path]] = {}
    queue = list(dict.fromkeys(map(os.path.realpath, histories)))
    for history in queue:  # which grows by directories of workers
        try:
            names = [entry.name for entry in os.scandir(history) if entry.is_dir()]
        except OSError as error:
            raise SourceError(f"{history}: {error.strerror}") from None

        for name in names:
            place = Path(history) / name
            if is_agent_id(name):
                places.setdefault(name, []).append(place)
            if name.startswith(WORKER_PREFIX) and str(place) not in queue:
                queue.append(str(place))

    return {name: sorted(places[name]) for name in sorted(places)}


@contextmanager
def open_history(directory: Path, progress: Progress) -> Iterator[list[HistoryFile]]:
    """Open an agent's files, the oldest first. Raise ``SourceError``."""
    with ExitStack() as stack:
        files = []
        for name, file in _open_all(directory):
            stack.enter_context(file)
            size = os.fstat(file.fileno()).st_size
            files.append(HistoryFile(directory / name, file, size, name != CURRENT_FILE, progress))
        yield files


def _open_all(directory: Path) -> list[tuple[str, BinaryIO]]:
    """Open an agent's files, the oldest first.

    A rotation meanwhile gives one file under two names: then try again.
    """
    for _ in range(_MAX_RACES):
        with ExitStack() as stack:
            # The newest first: a rotation gives a file the next name, so none is missed.
            files: list[tuple[str, BinaryIO]] = []
            for name in _file_names(directory):
                file = _open_regular(directory / name)
                if file is not None:
                    files.append((name, stack.enter_context(file)))

            status = [os.fstat(file.fileno()) for _, file in files]
            if len({(each.st_dev, each.st_ino) for each in status}) == len(files):
                stack.pop_all()  # all are left open, for the caller
                return files[::-1]

    raise SourceError(f"{directory / CURRENT_FILE}: is the same file as an older one")


def _file_names(directory: Path) -> list[str]:
    """Return the names that an agent's files may have, the newest first. Raise ``SourceError``."""
    try:
        names = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SourceError(f"{directory}: {error.strerror}") from None

    numbers = sorted(
        int(match[1]) for match in map(_ROTATED_FILE.fullmatch, names) if match is not None
    )
    if len(numbers) > _MAX_FILES:
        raise SourceError(f"{directory}: has more than {_MAX_FILES} older files")

    # A rotation may give each file the next number before it is opened.
    possible = {1, *numbers, *(number + 1 for number in numbers)}
    return [CURRENT_FILE, *(f"{CURRENT_FILE}.{number}" for number in sorted(possible))]


def _open_regular(path: Path) -> BinaryIO | None:
    """Open a regular file; return None if there is no file. Raise ``SourceError``."""
    try:
        # Non-blocking, because opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from None

    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SourceError(f"{path}: is not a regular file")

    return os.fdopen(descriptor, "rb", buffering=0)


@contextmanager
def open_log(name: str, progress: Progress) -> Iterator[Iterator[bytes]]:
    """Open the proxy's output, ``-`` for standard input, and yield its blocks, unpacked if gzip.

    Raise ``SourceError``.
    """
    try:
        raw = sys.stdin.buffer if name == STDIN else Path(name).open("rb", buffering=0)  # noqa: SIM115 - closed below
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror}") from None

    file = io.BufferedReader(raw)  # type: ignore[type-var] # any binary file will do
    try:
        yield _log_blocks(name, file, progress)
    finally:
        if name == STDIN:
            file.detach()  # which leaves standard input open
        else:
            file.close()


def _log_blocks(name: str, file: io.BufferedReader[Any], progress: Progress) -> Iterator[bytes]:
    position = 0
    is_seekable = file.seekable()
    try:
        is_packed = file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
        read = gzip.GzipFile(fileobj=file).read1 if is_packed else file.read1
        while block := read(_BLOCK):
            if is_seekable:
                progress(file.tell() - position)
                position = file.tell()
            yield block
    except EOFError:
        raise SourceError(f"{name}: is cut off") from None
    except (OSError, zlib.error) as error:
        raise SourceError(f"{name}: {getattr(error, 'strerror', None) or 'is damaged'}") from None


def total_bytes(histories: Iterable[Path], logs: Iterable[str], passes: int) -> int:
    """Return the bytes to read: of all logs once, of all history ``passes`` times.

    A file that is gone counts 0, and so does standard input. Raise ``SourceError``.
    """
    history_size = 0
    for directories in agent_directories(histories).values():
        for directory in directories:
            history_size += sum(_size(directory / name) for name in _file_names(directory))

    log_size = sum(_size(Path(log)) for log in logs if log != STDIN)
    return history_size * passes + log_size


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
