"""Session history: one line a turn, each with the hash of the line before.

docs/spec/contract.md "history.jsonl".
"""

import errno
import mmap
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from claw_contract.chain import GENESIS, SEAL_BYTES, read_seal, seal_entry
from claw_contract.redaction.redactor import Redactor
from claw_mediate.telemetry.event_log import encode_json

_check_json = msgspec.json.Decoder(msgspec.Raw).decode
"""Raises an error for invalid JSON. It builds nothing, and takes numbers of any size."""
MAX_BODY_BYTES = 262_144
"""Limit of a request or response in history. A longer one is cut, and marked as such."""

MAX_FREE_BODY_BYTES = 4096
"""The same limit for a turn that failed and cost its agent nothing.

An agent can make as many of those as it likes, for example requests that the provider refuses. In
full length they would push everything else out of history.
"""

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
"""Not blocking: a pipe may have replaced the file."""
_OLDER_FILE = re.compile(r"history\.jsonl\.([1-9][0-9]{0,8})")


class AppendedLine(NamedTuple):
    """A turn's line as written."""

    line: bytes
    hash: str
    has_rotated: bool  # True if the line starts a new file because the old one was full
    is_cut: bool  # True if lines that this writer wrote earlier have disappeared


class History:
    """The history files of all agents in one directory.

    A full ``history.jsonl`` becomes ``history.jsonl.1``, which was ``.2`` before, and so on:
    ``generations`` older files are kept.
    """

    def __init__(self, directory: Path, max_bytes: int, generations: int = 1) -> None:
        self.directory = directory
        self._max_bytes = max_bytes
        self._generations = generations
        self._files: dict[str, Path] = {}
        self._ends: dict[str, tuple[_FileState, str]] = {}
        """The end of each agent's chain: the file as this writer left it, and the last hash."""

    def is_writable(self) -> bool:
        """Return whether files can be written in the directory, by its permissions.

        Create it if it is missing.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return False
        return os.access(self.directory, os.W_OK | os.X_OK)

    def append(self, agent_id: str, entry: dict[str, Any], redactor: Redactor) -> AppendedLine:
        """Append one turn, sealed with ``prev``, ``id`` and ``hash``. Raise ``OSError``."""
        if agent_id not in self._files:
            self._files[agent_id] = self.directory / agent_id / "history.jsonl"
        file = self._files[agent_id]
        prefix = b""
        has_rotated = False
        is_cut = False

        # A file that can't be looked at now is still known afterwards.
        found = _state(file)
        # Unset until the line is written: after a failure the file says where the chain ends.
        left, last = self._ends.pop(agent_id, (None, GENESIS))

        # If the file is empty or gone, something else rotated it, and the chain goes on. If it is
        # not as this writer left it, a mediator of other settings may have written since.
        is_empty = found is None or not found.size
        has_changed = left != found and not is_empty
        if left is None or has_changed:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_cut = left is not None and not _contains(left, found, _newest_older(file))
            last, has_rotated = _chain_end(file)
            if _is_torn(file):
                prefix = b"\n"

        # Sealed after redaction: a hash may contain a secret of a few digits by chance.
        line, digest = seal_entry(redactor.document(encode_json(entry)), last)
        if found is not None and found.size >= self._max_bytes:
            _rotate(file, self._generations)
            prefix = b""
            has_rotated = True

        descriptor = os.open(file, _APPEND, 0o600)
        try:
            _write(descriptor, prefix + line)
            written = _regular_file(os.fstat(descriptor))
        finally:
            os.close(descriptor)

        self._ends[agent_id] = written, digest
        return AppendedLine(line, digest, has_rotated, is_cut)


class _FileState(NamedTuple):
    """A file's identity and size: unchanged unless somebody else has written to it."""

    device: int
    inode: int
    size: int


def _regular_file(status: os.stat_result) -> _FileState:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is no regular file")
    return _FileState(status.st_dev, status.st_ino, status.st_size)


def _state(file: Path) -> _FileState | None:
    try:
        return _regular_file(file.stat())
    except FileNotFoundError:
        return None


def _contains(left: _FileState, *now: _FileState | None) -> bool:
    """Return whether one of the files is the one that was left, and no shorter.

    If not, somebody cut it: other writers only append or rotate.
    """
    return any(file is not None and file[:2] == left[:2] and file.size >= left.size for file in now)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        written = os.write(descriptor, data)
        data = data[written:]


def _older(file: Path, generation: int) -> Path:
    return file.with_name(f"{file.name}.{generation}")


def _generations_of(file: Path) -> list[int]:
    """Return the numbers of the older files that exist, the newest first."""
    matches = (_OLDER_FILE.fullmatch(path.name) for path in file.parent.iterdir())
    return sorted(int(match[1]) for match in matches if match is not None)


def _newest_older(file: Path) -> _FileState | None:
    generations = _generations_of(file)
    if not generations:
        return None
    return _state(_older(file, generations[0]))


def _rotate(file: Path, generations: int) -> None:
    """Rename a full file to ``.1``, and older files to the next number, up to the first free one.

    The oldest moves first, so that a crash in between leaves a number free and loses nothing: the
    next rotation fills that number. Files beyond ``generations`` are deleted, the oldest first.
    """
    existing = _generations_of(file)
    for number in reversed(existing):
        if number > generations:
            _older(file, number).unlink(missing_ok=True)

    # If no number is free, the oldest file that is kept is overwritten.
    free = [number for number in range(1, generations) if number not in existing]
    last = free[0] if free else generations
    for number in range(last, 1, -1):
        _older(file, number - 1).replace(_older(file, number))

    file.replace(_older(file, 1))


def _chain_end(file: Path) -> tuple[str, bool]:
    """Return (the last hash, True if it is in an older file), as the files have it.

    It is in an older file right after a rotation.
    """
    last = last_hash(file)
    if last:
        return last, False

    for number in _generations_of(file):
        last = last_hash(_older(file, number))
        if last:
            return last, True

    return GENESIS, False


def _open(file: Path) -> BinaryIO:
    """Open for reading without blocking: the file may be a pipe without a writer."""
    return os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def last_hash(file: Path) -> str | None:
    """Return the hash of the last sealed line, if any.

    A torn last line (a crash while writing) is skipped.
    """
    try:
        with _open(file) as reader, mmap.mmap(reader.fileno(), 0, access=mmap.ACCESS_READ) as data:
            end = len(data)
            # A last line that only lacks its line break is complete; the next append adds it.
            seal = read_seal(data[max(0, end + 1 - SEAL_BYTES) :] + b"\n")
            if seal:
                return seal.hash

            # Only the end of a line can match: inside a line, line breaks are escaped.
            while (end := data.rfind(b'"}\n', 0, end)) >= 0:
                seal = read_seal(data[max(0, end + 3 - SEAL_BYTES) : end + 3])
                if seal:
                    return seal.hash
    except (FileNotFoundError, ValueError):  # ValueError: an empty file can't be mapped
        pass
    return None


def _is_torn(file: Path) -> bool:
    try:
        with _open(file) as reader:
            reader.seek(-1, os.SEEK_END)
            return reader.read() != b"\n"
    except OSError:  # no file, or an empty one
        return False


def cut_for_history(body: bytes, size: int, redactor: Redactor, limit: int = MAX_BODY_BYTES) -> Any:
    """Return the beginning of a body of ``size`` bytes, marked as cut.

    The cut does not split a secret: half of one would not be found by redaction.
    """
    head = redactor.cut(body[: limit + redactor.max_form_bytes], limit)
    text = head.decode(errors="replace")
    return {"truncated": True, "original_bytes": size, "head": text}


def body_for_history(body: bytes, redactor: Redactor, limit: int = MAX_BODY_BYTES) -> Any:
    """Return a body for a line of history: JSON unchanged (exact numbers), other bodies as text.

    A body above the limit is cut. Secrets are redacted later, in the whole line.
    """
    if len(body) > limit:
        return cut_for_history(body, len(body), redactor, limit)

    try:
        body.decode()
        _check_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode(errors="replace")
    # In valid JSON, line breaks are only white space between tokens.
    return msgspec.Raw(body.replace(b"\n", b" ").replace(b"\r", b" ").strip())
