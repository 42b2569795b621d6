"""Session history: one line a turn, appended; each line holds the hash of the line before (spec/contract.md)."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from claw_contract.chain import GENESIS, SEAL_BYTES, read_seal, seal_entry
from claw_contract.redaction.redactor import Redactor
from claw_mediate.telemetry.unicode import encoded

BODY_LIMIT = 262_144
"""Bytes of a request or response that history keeps; what is longer is cut with an explicit mark."""


class Appended(NamedTuple):
    """A turn's line, as it was written."""

    line: bytes
    hash: str
    rotated: bool
    """Whether it begins a file, since the one before was full."""
    cut: bool
    """Whether what this writer left in the file is not all there any more."""


class History:
    """The history files of all agents below one directory; rotation keeps one older file (``history.jsonl.1``)."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._files: dict[str, Path] = {}
        self._last: dict[str, tuple[_Left, str]] = {}
        """Where the chain goes on: at a file that is as it was left, and with which hash."""

    def is_writable(self) -> bool:
        """Whether there is a directory to write to, as far as can be told without writing."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return False
        return os.access(self._directory, os.W_OK | os.X_OK)

    def append(self, agent_id: str, entry: dict[str, Any], redactor: Redactor) -> Appended:
        """Add one turn, sealed (``prev``, ``id`` and ``hash``). Raises ``OSError`` when it can't be."""
        if agent_id not in self._files:
            self._files[agent_id] = self._directory / agent_id / "history.jsonl"
        file, torn, rotated, cut = self._files[agent_id], b"", False, False
        found = _found(file)
        left, last = self._last.pop(agent_id, (None, GENESIS))
        emptied = found is None or not found.size  # by who rotates it: the chain goes on
        if left is None or (left != found and not emptied):  # a mediator of other settings may have written
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            cut = left is not None and not _is_kept(left, found, _found(_older(file)))
            (last, rotated), torn = _goes_on_behind(file), b"\n" * _is_torn(file)
        # Sealed behind the redaction: a secret of a few digits may stand in a hash by chance.
        line, digest = seal_entry(redactor.document(encoded(entry)), last)
        if found is not None and found.size >= self._max_bytes:
            file.replace(_older(file))
            torn, rotated = b"", True
        # Not blocking: what came there meanwhile may be a pipe.
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        try:
            _write(descriptor, torn + line)
            now = _left(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        # Not so where writing failed: then the file says where the chain goes on.
        self._last[agent_id] = now, digest
        return Appended(line, digest, rotated, cut)


class _Left(NamedTuple):
    """What a file is known by that nobody else has written to."""

    device: int
    inode: int
    size: int


def _left(status: os.stat_result) -> _Left:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is no regular file")
    return _Left(status.st_dev, status.st_ino, status.st_size)


def _found(file: Path) -> _Left | None:
    try:
        return _left(file.stat())
    except FileNotFoundError:
        return None


def _is_kept(left: _Left, *now: _Left | None) -> bool:
    """Whether one of the files is the one that was left, and no shorter: another writer adds to it, or rotates it."""
    return any(file is not None and file[:2] == left[:2] and file.size >= left.size for file in now)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _older(file: Path) -> Path:
    return file.with_name(file.name + ".1")


def _goes_on_behind(file: Path) -> tuple[str, bool]:
    """Where the chain goes on after a restart, and whether that is in the older file: right after a rotation."""
    if last := last_hash(file):
        return last, False
    last = last_hash(_older(file))
    return last or GENESIS, last is not None


def _opened(file: Path) -> BinaryIO:
    """To be read; not blocking, as what stands there may be a pipe that nobody writes to."""
    return os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def last_hash(file: Path) -> str | None:
    """Of the last sealed line, if any; a torn last line (a crash while writing) is passed over."""
    try:
        with _opened(file) as old, mmap.mmap(old.fileno(), 0, access=mmap.ACCESS_READ) as data:
            end = len(data)
            # What lacks its line break only is all there, and gets it before the next line.
            if seal := read_seal(data[max(0, end + 1 - SEAL_BYTES) :] + b"\n"):
                return seal.hash
            # Only a line's end can match: within a line, a line break is an escape.
            while (end := data.rfind(b'"}\n', 0, end)) >= 0:
                if seal := read_seal(data[max(0, end + 3 - SEAL_BYTES) : end + 3]):
                    return seal.hash
    except (FileNotFoundError, ValueError):  # ValueError: an empty file can't be mapped
        pass
    return None


def _is_torn(file: Path) -> bool:
    """Whether the last line has no end: the next one must not be glued to it."""
    try:
        with _opened(file) as old:
            old.seek(-1, os.SEEK_END)
            return old.read() != b"\n"
    except OSError:  # there is no file, or nothing in it
        return False


def recorded_body(body: bytes, redactor: Redactor) -> Any:
    """A JSON body as it stands (its exact numbers), cut where it is too long; text where it is not JSON.

    Secrets are taken out of the whole line; here none is cut in two, for half a secret is not found any more.
    """
    if len(body) > BODY_LIMIT:
        head = redactor.cut(body[: BODY_LIMIT + redactor.max_form_bytes], BODY_LIMIT).decode(errors="replace")
        return {"truncated": True, "original_bytes": len(body), "head": head}
    try:
        body.decode()
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode(errors="replace")
    # In JSON a line break can only be white space between tokens.
    return msgspec.Raw(body.replace(b"\n", b" ").replace(b"\r", b" ").strip())
