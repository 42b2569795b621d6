"""The ownership store on a server that several proxies share. Each change is one script."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from claw_state.ownership import (
    MAX_AGE_SECONDS,
    MAX_OBJECTS,
    MAX_PROVIDER_OBJECT_AGE_SECONDS,
    MAX_PROVIDER_OBJECTS,
    USE_MARK_SECONDS,
    KeptObject,
    ObjectName,
    ProviderObject,
    decode_kept,
    decode_object,
    encode_kept,
)
from claw_state.valkey.client import ValkeyClient, store_error_if_unreadable
from claw_state.valkey.scripts import load_script

_SAVE = load_script("owners", "owned_save")
_FIND = load_script("owners", "ownership_find")
_DELETE = load_script("owners", "ownership_delete")
_LIST_OBJECTS = load_script("objects_list")
_FIND_OBJECTS = load_script("owners", "objects_find")
_RESPONSE_KEYS = "owned", "claw:owners"
"""Two names of keys, for responses and conversations: of an agent's own, and of their owners."""
_OBJECT_KEYS = "objects", "claw:object_owners"
"""The same for files, batches and the like."""


class ValkeyOwnershipStore:
    """An ``OwnershipStore`` on a server."""

    def __init__(self, client: ValkeyClient, clock: Callable[[], float] | None = None) -> None:
        self._client = client
        self._clock = clock

    async def save(self, agent_id: str, kept: KeptObject, *, may_share: bool = False) -> bool:
        bounds = int(MAX_AGE_SECONDS), MAX_OBJECTS
        row = kept.id, kept.provider_id, kept.provider, encode_kept(kept)
        answer = await self._client.run(
            _SAVE, self._now(), agent_id, *_RESPONSE_KEYS, *bounds, int(may_share), *row
        )
        return not _read_refused(agent_id, answer)

    async def find(self, agent_id: str, object_id: str) -> KeptObject | None:
        record = await self._client.run(
            _FIND, self._now(), agent_id, object_id, int(MAX_AGE_SECONDS)
        )
        if record is None:
            return None
        with store_error_if_unreadable(f"what {agent_id} owns"):
            return decode_kept(record)

    async def delete(self, agent_id: str, object_id: str) -> None:
        await self._client.run(_DELETE, self._now(), agent_id, object_id)

    async def save_objects(
        self, agent_id: str, objects: Sequence[ProviderObject], *, may_share: bool = False
    ) -> list[ProviderObject]:
        bounds = int(MAX_PROVIDER_OBJECT_AGE_SECONDS), MAX_PROVIDER_OBJECTS
        rows: list[str | bytes] = []
        for each in objects:
            rows += _row(each)

        answer = await self._client.run(
            _SAVE, self._now(), agent_id, *_OBJECT_KEYS, *bounds, int(may_share), *rows
        )
        refused = _read_refused(agent_id, answer)
        return [each for each in objects if _field(each.name).encode() in refused]

    async def find_objects(
        self, agent_id: str, names: Collection[ObjectName]
    ) -> list[ProviderObject]:
        bounds = int(MAX_PROVIDER_OBJECT_AGE_SECONDS), int(USE_MARK_SECONDS)
        fields = [_field(name) for name in names]
        records = await self._client.read(_FIND_OBJECTS, self._now(), agent_id, *bounds, *fields)
        return _decode_objects(agent_id, records)

    async def list_objects(self, agent_id: str, kind: str) -> list[ProviderObject]:
        prefix = _field(ObjectName(kind, ""))
        age = int(MAX_PROVIDER_OBJECT_AGE_SECONDS)
        records = await self._client.read(_LIST_OBJECTS, self._now(), agent_id, prefix, age)
        return _decode_objects(agent_id, records)

    async def close(self) -> None:
        await self._client.close()

    def _now(self) -> float | str:
        return self._clock() if self._clock else ""


def _decode_objects(agent_id: str, records: Any) -> list[ProviderObject]:
    with store_error_if_unreadable(f"what {agent_id} owns"):
        return [decode_object(record) for record in records]


def _read_refused(agent_id: str, answer: Any) -> frozenset[bytes]:
    """Return the names that were not saved, because they are another agent's."""
    with store_error_if_unreadable(f"whether {agent_id} owns it"):
        _, refused = answer
        return frozenset(refused)


def _row(each: ProviderObject) -> tuple[str | bytes, ...]:
    """Return an object as the script takes it: its name, its id, its provider and its record.

    Its name among the agent's objects is also its id at the provider.
    """
    field = _field(each.name)
    return field, field, each.provider, msgspec.msgpack.encode(each)


def _field(name: ObjectName) -> str:
    """Return the name as one text. No kind has a space in it."""
    return f"{name.kind} {name.id}"
