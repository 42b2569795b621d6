"""Session history: one line a turn, appended; each line holds the hash of the line before (spec/contract.md)."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from claw_contract.chain import GENESIS, SEAL_BYTES, seal_of, sealed
from claw_contract.secret import Redactor

BODY_LIMIT = 262_144
"""Bytes of a request or response that history keeps; what is longer is cut with an explicit mark."""


class History:
    """The history files of all agents below one directory; rotation keeps one older file (``history.jsonl.1``)."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._files: dict[str, Path] = {}
        self._last: dict[str, str] = {}

    def is_writable(self) -> bool:
        """Whether there is a directory to write to, as far as can be told without writing."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return False
        return os.access(self._directory, os.W_OK | os.X_OK)

    def append(self, agent_id: str, entry: dict[str, Any], redactor: Redactor) -> tuple[bytes, str]:
        """Add one turn, sealed (``prev``, ``id`` and ``hash``): (its line, its hash). Raises ``OSError`` when it can't be."""
        if agent_id not in self._files:
            self._files[agent_id] = self._directory / agent_id / "history.jsonl"
        file, torn = self._files[agent_id], b""
        if agent_id not in self._last:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._last[agent_id] = _goes_on_behind(file)
            torn = b"\n" * _is_torn(file)
        # Sealed behind the redaction: a secret of a few digits may stand in a hash by chance.
        line, digest = sealed(redactor.document(msgspec.json.encode(entry)), self._last.pop(agent_id))
        if self._rotate(file):
            torn = b""
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "ab") as out:
            out.writelines((torn, line))
        # Not so where writing failed: then the file says where the chain goes on.
        self._last[agent_id] = digest
        return line, digest

    def _rotate(self, file: Path) -> bool:
        with suppress(FileNotFoundError):
            if file.stat().st_size >= self._max_bytes:
                file.replace(_older(file))
                return True
        return False


def _older(file: Path) -> Path:
    return file.with_name(file.name + ".1")


def _goes_on_behind(file: Path) -> str:
    """Where the chain goes on after a restart; right after a rotation, that is in the older file."""
    return last_hash(file) or last_hash(_older(file)) or GENESIS


def last_hash(file: Path) -> str | None:
    """Of the last sealed line, if any; a torn last line (a crash while writing) is passed over."""
    try:
        with file.open("rb") as old, mmap.mmap(old.fileno(), 0, access=mmap.ACCESS_READ) as data:
            # Only a line's end can match: within a line, a line break is an escape.
            end = len(data)
            while (end := data.rfind(b'"}\n', 0, end)) >= 0:
                if seal := seal_of(data[max(0, end + 3 - SEAL_BYTES) : end + 3]):
                    return seal.hash
    except (FileNotFoundError, ValueError):  # ValueError: an empty file can't be mapped
        pass
    return None


def _is_torn(file: Path) -> bool:
    """Whether the last line has no end: the next one must not be glued to it."""
    try:
        with file.open("rb") as old:
            old.seek(-1, os.SEEK_END)
            return old.read() != b"\n"
    except OSError:  # there is no file, or nothing in it
        return False


def recorded_body(body: bytes, redactor: Redactor) -> Any:
    """A JSON body as it stands (its exact numbers), cut where it is too long; text where it is not JSON.

    Secrets are taken out of the whole line; here none is cut in two, for half a secret is not found any more.
    """
    if len(body) > BODY_LIMIT:
        head = redactor.cut(body[: BODY_LIMIT + redactor.longest], BODY_LIMIT).decode(errors="replace")
        return {"truncated": True, "original_bytes": len(body), "head": head}
    try:
        body.decode()
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode(errors="replace")
    # In JSON a line break can only be white space between tokens.
    return msgspec.Raw(body.replace(b"\n", b" ").replace(b"\r", b" ").strip())
