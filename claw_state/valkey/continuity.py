"""The continuity store on a server that several proxies share. Each change is one script."""

from collections.abc import Callable, Collection

from claw_state.continuity import (
    EVICTED,
    MAX_AGE_SECONDS,
    MAX_BYTES,
    MAX_CANDIDATES,
    MAX_MARKS,
    MAX_NAMES,
    MAX_TURNS,
    Anchor,
    StoredRounds,
    decode_stored_rounds,
    join_by_id,
)
from claw_state.url import StoreError
from claw_state.valkey.client import SCHEMA, ValkeyClient, store_error_if_unreadable
from claw_state.valkey.scripts import load_script

_SAVE = load_script("continuity_drop", "continuity_save")
_FIND = load_script("continuity_find")
_MARK_USED = load_script("continuity_drop", "continuity_mark_used")
_PROBE = """
redis.call('SET', 'claw:schema', ARGV[2], 'EX', ARGV[3])
redis.call('EXPIRE', 'claw:pod', ARGV[3])
return 1
"""


class ValkeyContinuityStore:
    """A ``ContinuityStore`` on a server."""

    def __init__(self, client: ValkeyClient, clock: Callable[[], float] | None = None) -> None:
        self._client = client
        self._clock = clock

    async def save(self, agent_id: str, anchor: Anchor, session: str, messages: bytes) -> None:
        # `_decode` reads it.
        about = "\n".join([anchor.key, " ".join(anchor.before), session, *anchor.names[:MAX_NAMES]])
        bounds = (int(MAX_AGE_SECONDS), MAX_TURNS, MAX_BYTES, MAX_MARKS, EVICTED)
        await self._client.run(_SAVE, self._now(), agent_id, about, messages, *bounds)

    async def find(self, agent_id: str, keys: Collection[str]) -> list[StoredRounds]:
        distinct = sorted(set(keys))
        rows = await self._client.read(_FIND, self._now(), agent_id, MAX_CANDIDATES, *distinct)
        with store_error_if_unreadable(f"the hidden rounds of {agent_id}"):
            return join_by_id(_decode(*row) for row in rows)

    async def mark_used(self, agent_id: str, entries: Collection[StoredRounds]) -> None:
        if not entries:
            return
        ids = [entry.id for entry in entries]
        await self._client.run(_MARK_USED, self._now(), agent_id, int(MAX_AGE_SECONDS), *ids)

    async def is_writable(self) -> bool:
        try:
            await self._client.run(_PROBE, self._now(), SCHEMA, int(MAX_AGE_SECONDS))
        except StoreError:
            return False
        return True

    async def close(self) -> None:
        await self._client.close()

    def _now(self) -> float | str:
        return self._clock() if self._clock else ""


def _decode(number: bytes, about: bytes, messages: bytes) -> StoredRounds:
    key, before, session, *names = about.decode().split("\n")
    anchor = Anchor(key, tuple(before.split()), names=tuple(names))
    return decode_stored_rounds(int(number), anchor, session, messages)
