"""The chain of a history file: how a line is sealed, and what a seal says (spec/contract.md "history.jsonl").

    {…the entry…,"prev":"<hash of the line before>","id":"hist1_<A>","hash":"<B>"}

Rules. A is the SHA-256 of the line as it would be without ``id`` and ``hash``, B that of the line without ``hash``. The
first line's ``prev`` is ``GENESIS``. A line of which this is not true was not written so, or is not all there.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

GENESIS: Final = "0" * 64
"""``prev`` of the first line."""
_SEAL = re.compile(rb',"prev":"([0-9a-f]{64})","id":"hist1_([0-9a-f]{64})","hash":"([0-9a-f]{64})"}\n')
_PREV = b',"prev":"%b"'
_ID = b',"id":"hist1_%b"'
_HASH = b',"hash":"%b"}\n'
_ID_BYTES, _HASH_BYTES = len(_ID % GENESIS.encode()), len(_HASH % GENESIS.encode())
SEAL_BYTES: Final = len(_PREV % GENESIS.encode()) + _ID_BYTES + _HASH_BYTES
"""So many bytes at the end of a line are its seal, the line break among them."""


@dataclass(frozen=True, slots=True)
class Seal:
    """What the end of a line says of it."""

    prev: str
    hash: str
    holds: bool
    """Whether the line is what was sealed: no byte of it was changed."""


def seal_entry(entry: bytes, prev: str) -> tuple[bytes, str]:
    """A line for an entry (a JSON object with something in it), and its hash.

    >>> sealed(b'{"a":1}', GENESIS)[0][:17]
    b'{"a":1,"prev":"00'
    """
    body = entry[:-1] + _PREV % prev.encode()
    # Both digests are of what begins alike.
    digest = hashlib.sha256(body)
    name = digest.copy()
    name.update(b"}")
    identity = _ID % name.hexdigest().encode()
    digest.update(identity + b"}")
    return b"".join((body, identity, _HASH % digest.hexdigest().encode())), digest.hexdigest()


class SealReader:
    """A line that is read piece by piece, however long it is."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._end = b""

    def add(self, piece: bytes) -> None:
        """The next bytes of the line, its line break among them."""
        data = self._end + piece if self._end else piece
        cut = max(0, len(data) - SEAL_BYTES)
        self._digest.update(memoryview(data)[:cut])
        self._end = data[cut:]

    def seal(self) -> Seal | None:
        """Of the whole line; None where it has none."""
        found = _SEAL.fullmatch(self._end)
        if found is None:
            return None
        prev, identity, claimed = (group.decode() for group in found.groups())
        digest, end = self._digest.copy(), self._end
        digest.update(end[: -_ID_BYTES - _HASH_BYTES])
        name = digest.copy()
        name.update(b"}")
        digest.update(end[-_ID_BYTES - _HASH_BYTES : -_HASH_BYTES] + b"}")
        return Seal(prev, claimed, holds=(name.hexdigest(), digest.hexdigest()) == (identity, claimed))


def read_seal(line: bytes) -> Seal | None:
    """What a line's end says of it; None where it has no seal."""
    reading = SealReader()
    reading.add(line)
    return reading.seal()
