"""The continuity store: hidden rounds of earlier turns, by agent and anchor
(docs/spec/mediation.md section 7).

Each agent's share is bounded by turns, bytes and age. The least recently used entry is evicted
first.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

MAX_TURNS = 256
MAX_AGE_SECONDS = 7 * 24 * 3600.0
MAX_BYTES = 8 * 1024 * 1024
# Entries without hidden messages that are kept for each agent: the latest, and some more for a
# while
MAX_MARKS = 1024
MAX_NAMES = 32
ID_KIND = "item"  # The kind of a key that is the id of an item
MAX_CANDIDATES = 64  # Entries of one agent with equal anchors that are read: the latest
EVICTED = b"-"  # Stored in the place of messages that were evicted


@dataclass(frozen=True, slots=True)
class Anchor:
    """An assistant message as a key: its digest, and digests of the messages before
    it (oldest first).
    """

    key: str
    before: tuple[str, ...] = ()
    alternatives: tuple[
        str, ...
    ] = ()  # Other keys of the same message, for runners that write their calls into its text
    names: tuple[str, ...] = ()
    """Keys of parts of the message, for runners that send back a part of it: at
    most ``MAX_NAMES`` are stored.
    """

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys to look it up by."""
        return self.key, *self.alternatives, *self.names

    @property
    def content_keys(self) -> tuple[str, ...]:
        """Those that say what the message holds: ids of items may be counted anew
        by each conversation.
        """
        return (
            self.key,
            *self.alternatives,
            *(name for name in self.names if f":{ID_KIND}:" not in f":{name}"),
        )


@dataclass(frozen=True, slots=True)
class StoredRounds:
    """Hidden messages of one earlier turn. A higher ``id`` is later.

    The anchor has at least those names that were asked for.

    Without messages either nothing was hidden, which distinguishes this answer from an equal one
    that had something, or (``evicted``) the messages were dropped for want of room.
    """

    id: int
    anchor: Anchor
    session: str
    messages: bytes
    evicted: bool = False


class ContinuityStore(Protocol):
    """A persistent store of hidden rounds. Every method but the last two raises ``StoreError``."""

    async def save(self, agent_id: str, anchor: Anchor, session: str, messages: bytes) -> None:
        """Store the hidden messages (JSON, comma separated, possibly none) that led
        to the anchor's message.
        """

    async def find(self, agent_id: str, keys: Collection[str]) -> list[StoredRounds]:
        """Return the entries whose anchor has one of these as its key or as one of
        its names, each once.
        """

    async def mark_used(self, agent_id: str, entries: Collection[StoredRounds]) -> None:
        """Record that these entries were injected again, so that they are evicted last."""

    async def is_writable(self) -> bool:
        """Return True if the state can be written now (for ``/ready``)."""

    async def close(self) -> None: ...


def join_by_id(entries: Iterable[StoredRounds]) -> list[StoredRounds]:
    """Return each entry once, with all the names by which it was found, in the
    order in which they came.
    """
    found: dict[int, StoredRounds] = {}
    for entry in entries:
        before = found.setdefault(entry.id, entry)
        if entry.anchor.names and before is not entry:
            names = tuple(dict.fromkeys((*before.anchor.names, *entry.anchor.names)))
            found[entry.id] = replace(before, anchor=replace(before.anchor, names=names))
    return [*found.values()]


def decode_stored_rounds(number: int, anchor: Anchor, session: str, stored: bytes) -> StoredRounds:
    """Return an entry from its stored columns."""
    evicted = stored == EVICTED
    return StoredRounds(number, anchor, session, b"" if evicted else stored, evicted)
