"""Hidden rounds of earlier turns, by agent and anchor: the port of the continuity store, and its records.

Bounded for each agent by turns, bytes and age, least recently used first out (docs/spec/mediation.md section 7).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

MAX_TURNS = 256
MAX_AGE_SECONDS = 7 * 24 * 3600.0
MAX_BYTES = 8 * 1024 * 1024
MAX_MARKS = 1024
"""Of one agent's turns without hidden messages, those that are kept: the latest."""
MAX_CANDIDATES = 64
"""Of one agent's turns with equal anchors, those that are looked at: the latest."""
EVICTED = b"-"
"""What is stored in the place of messages that there was no room for."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """Of an assistant's message: what it is, and what was said before it (digests, oldest first)."""

    key: str
    before: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    """Keys that it may be kept under instead, where a runner wrote its calls into its text."""

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that it is looked for by."""
        return self.key, *self.alternatives


@dataclass(frozen=True, slots=True)
class StoredRounds:
    """Hidden messages of an earlier turn, by its anchor. ``id`` grows: a higher one is later. No messages: nothing was hidden
    before that answer, which tells it from an equal one that had something; or (``evicted``) there was no room for them.
    """

    id: int
    anchor: Anchor
    session: str
    messages: bytes
    evicted: bool = False


class ContinuityStore(Protocol):
    """What later requests need of earlier turns."""

    async def keep(self, agent_id: str, anchor: Anchor, session: str, messages: bytes) -> None:
        """Hidden messages (JSON, comma separated) that led to the message with that anchor; none, where nothing was hidden.
        Raises ``StoreError``.
        """

    async def candidates(self, agent_id: str, keys: Collection[str]) -> list[StoredRounds]:
        """The turns whose anchors have one of these keys. Raises ``StoreError``."""

    async def used(self, agent_id: str, kept: Collection[StoredRounds]) -> None:
        """These were reinjected: they are the last to be forgotten. Raises ``StoreError``."""

    async def writable(self) -> bool:
        """For ``/ready``."""

    async def close(self) -> None: ...


def decode_stored_rounds(number: int, anchor: Anchor, session: str, stored: bytes) -> StoredRounds:
    """A turn as it is stored."""
    evicted = stored == EVICTED
    return StoredRounds(number, anchor, session, b"" if evicted else stored, evicted)
