"""The continuity store: hidden rounds of earlier turns, by agent and anchor.

The page is docs/spec/mediation.md, section 7. Each agent's entries are bounded by turns, bytes and
age, and the least recently used one is evicted first.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

MAX_TURNS = 256
MAX_AGE_SECONDS = 7 * 24 * 3600.0
MAX_BYTES = 8 * 1024 * 1024
MAX_MARKS = 1024
"""Stored entries of an agent without hidden messages: the latest, and some more for a while."""
MAX_NAMES = 64
ID_KIND = "item"  # The kind of a key that is the id of an item
MAX_CANDIDATES = 64
"""The number of an agent's entries with equal anchors that are read: the latest."""
EVICTED = b"-"  # Stored in the place of messages that were evicted


class Anchor(msgspec.Struct, frozen=True):
    """The keys by which an assistant message is recognized in a later request.

    A request has one or two for each of its messages: a frozen dataclass takes ten times as long.
    """

    key: str
    """The message's digest."""
    before: tuple[str, ...] = ()
    """The digests of the messages before it, the oldest first."""
    alternatives: tuple[str, ...] = ()
    """Other keys of the same message, for runners that write their calls into its text."""
    names: tuple[str, ...] = ()
    """Keys of parts of the message, for runners that send back only a part of it.

    At most ``MAX_NAMES`` are stored.
    """

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys to look it up by."""
        return self.key, *self.alternatives, *self.names

    @property
    def content_keys(self) -> tuple[str, ...]:
        """The keys made of the message's content, without ids of items.

        Some runners number the items of each conversation from 1, so an id proves little.
        """
        names = [name for name in self.names if f":{ID_KIND}:" not in f":{name}"]
        return (self.key, *self.alternatives, *names)


@dataclass(frozen=True, slots=True)
class StoredRounds:
    """The hidden messages of one earlier turn."""

    id: int
    """A later entry has a higher one."""
    anchor: Anchor
    """Its ``names`` are at least those that were looked up."""
    session: str
    messages: bytes
    """JSON, comma separated; empty if the turn hid nothing, or if they were evicted.

    An entry of a turn that hid nothing distinguishes its answer from an equal one that hid
    something.
    """
    evicted: bool = False
    """True if the messages were dropped to make room."""


class ContinuityStore(Protocol):
    """A persistent store of hidden rounds.

    ``save``, ``find`` and ``mark_used`` raise ``StoreError``.
    """

    async def save(self, agent_id: str, anchor: Anchor, session: str, messages: bytes) -> None:
        """Store the hidden messages that led to the anchor's message, possibly none."""

    async def find(self, agent_id: str, keys: Collection[str]) -> list[StoredRounds]:
        """Return the entries whose anchor has one of these keys or names, each entry once."""

    async def mark_used(self, agent_id: str, entries: Collection[StoredRounds]) -> None:
        """Record that these entries were injected again, so that they are evicted last."""

    async def is_writable(self) -> bool:
        """Return True if the state can be written now (for ``/ready``)."""

    async def close(self) -> None: ...


def join_by_id(entries: Iterable[StoredRounds]) -> list[StoredRounds]:
    """Return each entry once, with all the names by which it was found, in their order."""
    found: dict[int, StoredRounds] = {}
    for entry in entries:
        earlier = found.setdefault(entry.id, entry)
        if earlier is entry or not entry.anchor.names:
            continue

        names = tuple(dict.fromkeys((*earlier.anchor.names, *entry.anchor.names)))
        found[entry.id] = replace(
            earlier, anchor=msgspec.structs.replace(earlier.anchor, names=names)
        )
    return [*found.values()]


def decode_stored_rounds(number: int, anchor: Anchor, session: str, stored: bytes) -> StoredRounds:
    """Return an entry from its stored columns."""
    is_evicted = stored == EVICTED
    return StoredRounds(number, anchor, session, b"" if is_evicted else stored, is_evicted)
