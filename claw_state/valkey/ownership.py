"""The ownership store on a server that several proxies share. Each change is one script."""

from collections.abc import Callable

from claw_state.ownership import MAX_AGE_SECONDS, MAX_OBJECTS, OwnedObject, decode_owned, encode_owned
from claw_state.valkey.link import Link, reading
from claw_state.valkey.scripts import load_script

_SAVE = load_script("ownership_save")
_FIND = load_script("ownership_find")
_DELETE = load_script("ownership_delete")


class ValkeyOwnershipStore:
    """An ``OwnershipStore`` on a server."""

    def __init__(self, link: Link, clock: Callable[[], float] | None = None) -> None:
        self._link = link
        self._clock = clock

    async def save(self, agent_id: str, owned: OwnedObject) -> None:
        bounds = int(MAX_AGE_SECONDS), MAX_OBJECTS
        await self._link.run(_SAVE, self._now(), agent_id, owned.id, encode_owned(owned), *bounds)

    async def find(self, agent_id: str, object_id: str) -> OwnedObject | None:
        record = await self._link.run(_FIND, self._now(), agent_id, object_id, int(MAX_AGE_SECONDS))
        with reading(f"what {agent_id} owns"):
            return None if record is None else decode_owned(record)

    async def delete(self, agent_id: str, object_id: str) -> None:
        await self._link.run(_DELETE, self._now(), agent_id, object_id)

    async def close(self) -> None:
        await self._link.close()

    def _now(self) -> float | str:
        return self._clock() if self._clock else ""
