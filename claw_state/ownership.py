"""The ownership store: what providers keep for an agent, by the id that its runner knows
(docs/spec/responses.md section 10).

A provider's account is shared by all agents, so an id by itself proves nothing. Each agent has a
bound of number and age. The least recently used entry is evicted first.

The first agent that saves an id of a provider's owns it, as long as it has an entry of it: a
provider that can be made to repeat an id makes nobody else its owner. Entries of two owners that an
earlier version wrote stay as they are.

    responses, conversations   ``KeptObject``: with all that must be known to go on from one
    files, batches, …          ``ProviderObject``: whose it is, and where. They outlive conversations, so they stay longer
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import msgspec

from claw_state.url import StoreError

MAX_OBJECTS = 10_000
MAX_AGE_SECONDS = 30 * 24 * 3600.0


MAX_PROVIDER_OBJECTS = 50_000
MAX_PROVIDER_OBJECT_AGE_SECONDS = 365 * 24 * 3600.0
USE_MARK_SECONDS = 24 * 3600.0
"""A use is written down when the last one is longer ago than this: requests repeat
the same ids again and again.
"""


class ObjectName(NamedTuple):
    """The id of a file, a batch or the like. Ids of two kinds are never the same one."""

    kind: str
    id: str


class ProviderObject(msgspec.Struct, frozen=True, array_like=True):
    """A file, a batch or the like that a provider keeps, and the key of whose account it is."""

    kind: str
    id: str
    provider: str
    key_label: str = ""

    @property
    def name(self) -> ObjectName:
        return ObjectName(self.kind, self.id)


class KeptObject(msgspec.Struct, frozen=True, array_like=True):
    """A response or a conversation that a provider keeps.

    A record that an earlier version wrote may end before any member.
    """

    id: str  # As the runner knows it
    provider_id: str
    """As the provider knows it: another one where a stream began before it was known."""
    provider: str
    key_label: str = ""
    previous: str = ""  # The id of the response that it goes on from, as the runner knows it
    session: str = ""  # The session of the turn that made it
    anchors: tuple[str, ...] = ()  # Keys of the answers that it holds
    hidden_ids: tuple[str, ...] = ()
    """Ids of the items and calls that only the provider saw of its turn."""
    hidden_responses: tuple[str, ...] = ()
    """Ids of responses of the same turn that nobody goes on from."""
    pending_results: bytes = b""
    """Items (JSON, comma separated) that the provider still waits for: they go first in the
    ``input`` of the next request that names the object.
    """
    delivered: bytes = b""  # The body that the runner got, where the provider keeps another one
    is_plain: bool = False  # True if it was forwarded without managed tools and hidden items
    managed_names: tuple[str, ...] = ()
    """Names by which managed tools were offered in its turn, or before."""
    tool_choice: bytes = b""  # The runner's own (JSON), where the provider got another one
    instructions: int = -1
    """How many characters of the provider's ``instructions`` are the runner's; -1: all."""
    turn: str = ""  # Of a conversation: the last turn in it
    is_disputed: bool = False
    """True if the provider refused the pending results: the next request goes without them."""


class OwnershipStore(Protocol):
    """A persistent store of kept objects. Every method but ``close`` raises ``StoreError``."""

    async def save(self, agent_id: str, kept: KeptObject, *, may_share: bool = False) -> bool:
        """Store an object, in the place of the agent's earlier one with its id;
        return whether it was.

        False, and nothing changes, if its id, or that at the provider, is another agent's.
        ``may_share``: then, too.
        """

    async def find(self, agent_id: str, object_id: str) -> KeptObject | None:
        """Return the agent's object with that id, and mark it used; None if the agent has none."""

    async def delete(self, agent_id: str, object_id: str) -> None:
        """Forget an object."""

    async def save_objects(
        self, agent_id: str, objects: Sequence[ProviderObject], *, may_share: bool = False
    ) -> list[ProviderObject]:
        """Store objects, all or none, in the place of the agent's earlier ones with their names.

        Return those that were left out, because they are another agent's; none with ``may_share``.
        """

    async def find_objects(
        self, agent_id: str, names: Collection[ObjectName]
    ) -> list[ProviderObject]:
        """Return the agent's objects with these names, and mark them used."""

    async def list_objects(self, agent_id: str, kind: str) -> list[ProviderObject]:
        """Return all of the agent's objects of a kind."""

    async def close(self) -> None: ...


def encode_kept(kept: KeptObject) -> bytes:
    """Return the record of an object."""
    return msgspec.msgpack.encode(kept)


def decode_kept(record: bytes) -> KeptObject:
    """Return the object of a record. Raise ``StoreError`` for one that can't be read."""
    try:
        return msgspec.msgpack.decode(record, type=KeptObject)
    except msgspec.DecodeError as error:
        raise StoreError(f"what is kept of a response can't be read: {error}") from error


def decode_object(record: bytes) -> ProviderObject:
    """Return the object of a record. Raise ``StoreError`` for one that can't be read."""
    try:
        return msgspec.msgpack.decode(record, type=ProviderObject)
    except msgspec.DecodeError as error:
        raise StoreError(
            f"what is known of an object at a provider can't be read: {error}"
        ) from error
