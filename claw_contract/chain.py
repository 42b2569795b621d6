"""The hash chain of a history file (docs/spec/contract.md "history.jsonl").

    {…the entry…,"prev":"<hash of the line before>","id":"hist1_<A>","hash":"<B>"}

A is the SHA-256 of the line without ``id`` and ``hash``, B that of the line without ``hash``. The
first line's ``prev`` is ``GENESIS``. A line that breaks these rules was changed, or is incomplete.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

GENESIS: Final = "0" * 64  # ``prev`` of the first line
_SEAL = re.compile(
    rb',"prev":"([0-9a-f]{64})","id":"hist1_([0-9a-f]{64})","hash":"([0-9a-f]{64})"}\n'
)
_PREV = b',"prev":"%b"'
_ID = b',"id":"hist1_%b"'
_HASH = b',"hash":"%b"}\n'
_PREV_BYTES = len(_PREV % GENESIS.encode())
_ID_BYTES = len(_ID % GENESIS.encode())
_HASH_BYTES = len(_HASH % GENESIS.encode())
SEAL_BYTES: Final = _PREV_BYTES + _ID_BYTES + _HASH_BYTES
"""The length of the seal at the end of a line, including the line break."""


@dataclass(frozen=True, slots=True)
class Seal:
    """The end of a line."""

    prev: str
    hash: str
    is_intact: bool
    """True if no byte of the line was changed since it was sealed."""


def seal_entry(entry: bytes, prev: str) -> tuple[bytes, str]:
    """Return the line for an entry (a JSON object that is not empty), and the line's hash.

    >>> seal_entry(b'{"a":1}', GENESIS)[0][:17]
    b'{"a":1,"prev":"00'
    """
    body = entry[:-1] + _PREV % prev.encode()

    # Both digests begin with the same bytes, which are read once.
    line_digest = hashlib.sha256(body)
    id_digest = line_digest.copy()
    id_digest.update(b"}")
    identity = _ID % id_digest.hexdigest().encode()

    line_digest.update(identity + b"}")
    line_hash = line_digest.hexdigest()
    return b"".join((body, identity, _HASH % line_hash.encode())), line_hash


class SealReader:
    """Checks the seal of one line of any length, piece by piece."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._end = b""

    def add(self, piece: bytes) -> None:
        """Read the next bytes of the line. The last ones are its line break."""
        data = self._end + piece if self._end else piece
        cut = max(0, len(data) - SEAL_BYTES)
        self._digest.update(memoryview(data)[:cut])
        self._end = data[cut:]

    def seal(self) -> Seal | None:
        """Return the seal of the bytes read so far, or None if they do not end with one."""
        match = _SEAL.fullmatch(self._end)
        if match is None:
            return None
        prev, claimed_id, claimed_hash = (group.decode() for group in match.groups())

        # The end of a line is `,"prev":…,"id":…,"hash":…`. The id covers all before itself, and so
        # does the hash.
        id_start = SEAL_BYTES - _ID_BYTES - _HASH_BYTES
        hash_start = SEAL_BYTES - _HASH_BYTES
        line_digest = self._digest.copy()
        line_digest.update(self._end[:id_start])
        id_digest = line_digest.copy()
        id_digest.update(b"}")
        line_digest.update(self._end[id_start:hash_start] + b"}")

        is_intact = id_digest.hexdigest() == claimed_id and line_digest.hexdigest() == claimed_hash
        return Seal(prev, claimed_hash, is_intact)


def read_seal(line: bytes) -> Seal | None:
    """Return the seal of a line, or None if it has none."""
    reader = SealReader()
    reader.add(line)
    return reader.seal()
