"""The ownership store: kept objects, which are what providers keep for an agent.

docs/spec/responses.md section 10.

    responses, conversations   ``KeptObject``: with all that is needed to go on from one
    files, batches, …          ``ProviderObject``: whose it is, and where; stored for longer,
                               because they outlive conversations

All agents share a provider's account, so an id proves nothing by itself. The first agent that saves
an id of a provider's owns it, as long as it has a record of it: a provider that can be made to
repeat an id makes nobody else its owner. If a state of an earlier version has records of two
owners, both stay.

Each agent's records are bounded by number and age, and the least recently used one is evicted
first.
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
"""A use of a ``ProviderObject`` is recorded only if the last recorded one is longer ago.

Requests repeat the same ids again and again.
"""


class ObjectName(NamedTuple):
    """The name of a file, batch or the like. Equal ids of two kinds are two names."""

    kind: str
    id: str


class ProviderObject(msgspec.Struct, frozen=True, array_like=True):
    """A kept file, batch or the like."""

    kind: str
    id: str
    provider: str
    key_label: str = ""
    """The key of the account that it is in."""

    @property
    def name(self) -> ObjectName:
        return ObjectName(self.kind, self.id)


class KeptObject(msgspec.Struct, frozen=True, array_like=True):
    """A kept response or conversation.

    A record of an earlier version may lack the last members, so each but the first three has a
    default, and a new one comes last.
    """

    id: str
    """The id that the runner knows."""
    provider_id: str
    """The id that the provider knows.

    It is another one if a stream to the runner began before it was known.
    """
    provider: str
    key_label: str = ""
    previous: str = ""
    """The id (as the runner knows it) of the response that this one goes on from."""
    session: str = ""
    """The session of the turn that made it."""
    anchors: tuple[str, ...] = ()
    """The keys of the answers in it."""
    hidden_ids: tuple[str, ...] = ()
    """The ids of items and calls of its turn that the runner was not shown."""
    hidden_responses: tuple[str, ...] = ()
    """The ids of responses of the same turn that nobody goes on from."""
    pending_results: bytes = b""
    """Results for calls in it which the provider still lacks, as items (JSON, comma separated).

    They must come first in the ``input`` of the next request that names it.
    """
    delivered: bytes = b""
    """The body that the runner got, if the provider keeps another one."""
    is_plain: bool = False
    """True if it was forwarded without managed tools and hidden items."""
    managed_names: tuple[str, ...] = ()
    """The names by which managed tools were offered in its turn, or before."""
    tool_choice: bytes = b""
    """The runner's own (JSON), if the provider got another one."""
    instructions: int = -1
    """The characters of the provider's ``instructions`` that are the runner's, counted; -1: all."""
    turn: str = ""
    """The last turn in it, of a conversation."""
    is_disputed: bool = False
    """True if the provider refused the pending results: the next request omits them."""


class OwnershipStore(Protocol):
    """A persistent store of kept objects.

    ``save``, ``find`` and ``delete`` are about a ``KeptObject``, the others about a
    ``ProviderObject``. Every method raises ``StoreError``, except ``close``.
    """

    async def save(self, agent_id: str, kept: KeptObject, *, may_share: bool = False) -> bool:
        """Store an object, in the place of the agent's earlier one with its id.

        Return False, and change nothing, if another agent owns its id or that at the provider.
        With ``may_share``, store it nevertheless.
        """

    async def find(self, agent_id: str, object_id: str) -> KeptObject | None:
        """Return the agent's object with that id, and record its use; None if it has none."""

    async def delete(self, agent_id: str, object_id: str) -> None:
        """Delete the record of an object."""

    async def save_objects(
        self, agent_id: str, objects: Sequence[ProviderObject], *, may_share: bool = False
    ) -> list[ProviderObject]:
        """Store objects in the place of the agent's earlier ones with their names, in one step.

        Return those that were left out because another agent owns them; none with ``may_share``.
        """

    async def find_objects(
        self, agent_id: str, names: Collection[ObjectName]
    ) -> list[ProviderObject]:
        """Return the agent's objects with these names, and record their use."""

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
        raise StoreError(f"the record of an kept response can't be read: {error}") from error


def decode_object(record: bytes) -> ProviderObject:
    """Return the object of a record. Raise ``StoreError`` for one that can't be read."""
    try:
        return msgspec.msgpack.decode(record, type=ProviderObject)
    except msgspec.DecodeError as error:
        raise StoreError(f"the record of an owned object can't be read: {error}") from error
