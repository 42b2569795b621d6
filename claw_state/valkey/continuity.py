"""The continuity store on a server that several proxies share. Each change is one script."""

from __future__ import annotations

from collections.abc import Callable, Collection

from claw_state.continuity import (
    EVICTED,
    MAX_AGE_SECONDS,
    MAX_BYTES,
    MAX_CANDIDATES,
    MAX_MARKS,
    MAX_TURNS,
    Anchor,
    StoredRounds,
    decode_stored_rounds,
)
from claw_state.url import StoreError
from claw_state.valkey.link import DROP, SCHEMA, Link

_SAVE = (
    DROP
    + """
local agent, key, about, messages = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local age, max_turns, max_bytes = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local max_marks, evicted = tonumber(ARGV[9]), ARGV[10]
local a = of(agent)
local by = a .. 'by:' .. key
local id = redis.call('INCR', 'claw:last')
redis.call('HSET', a .. 'about', id, about)
redis.call('HSET', a .. 'messages', id, messages)
redis.call('ZADD', by, id, id)
redis.call('ZADD', a .. 'used', exact(now), id)
redis.call('INCRBY', a .. 'bytes', #messages)
if #messages > 0 then redis.call('ZADD', a .. 'whole', exact(now), id) end
local function evict(id)
  redis.call('INCRBY', a .. 'bytes', #evicted - redis.call('HSTRLEN', a .. 'messages', id))
  redis.call('HSET', a .. 'messages', id, evicted)
  redis.call('ZREM', a .. 'whole', id)
end
for _, old in ipairs(redis.call('ZRANGEBYSCORE', a .. 'used', '-inf', '(' .. exact(now - age))) do drop(a, old) end
local over = redis.call('ZCARD', a .. 'whole') - max_turns
if over > 0 then
  for _, old in ipairs(redis.call('ZRANGE', a .. 'whole', 0, over - 1)) do evict(old) end
end
while tonumber(redis.call('GET', a .. 'bytes')) > max_bytes and redis.call('ZCARD', a .. 'whole') > 0 do
  evict(redis.call('ZRANGE', a .. 'whole', 0, 0)[1])
end
over = redis.call('ZCARD', a .. 'used') - redis.call('ZCARD', a .. 'whole') - max_marks
if over > 0 then
  for _, old in ipairs(redis.call('ZRANGE', a .. 'used', 0, max_turns + over)) do
    if over > 0 and not redis.call('ZSCORE', a .. 'whole', old) then
      drop(a, old)
      over = over - 1
    end
  end
end
for _, name in ipairs({by, a .. 'about', a .. 'messages', a .. 'used', a .. 'whole', a .. 'bytes',
  'claw:last'}) do
  redis.call('EXPIRE', name, age)
end
redis.call('ZADD', 'claw:agents', exact(now), agent)
redis.call('EXPIRE', 'claw:agents', age)
redis.call('ZREMRANGEBYSCORE', 'claw:agents', '-inf', exact(now - age))
return id
"""
)
_FIND = """
local a, limit, entries = of(ARGV[2]), tonumber(ARGV[3]), {}
for place = 4, #ARGV do
  for _, id in ipairs(redis.call('ZREVRANGE', a .. 'by:' .. ARGV[place], 0, limit - 1)) do
    entries[#entries + 1] = {id, redis.call('HGET', a .. 'about', id), redis.call('HGET', a .. 'messages', id)}
  end
end
return entries
"""
_MARK_USED = """
local a, age = of(ARGV[2]), ARGV[3]
for place = 4, #ARGV do
  redis.call('ZADD', a .. 'used', 'XX', exact(now), ARGV[place])
  redis.call('ZADD', a .. 'whole', 'XX', exact(now), ARGV[place])
  local about = redis.call('HGET', a .. 'about', ARGV[place])
  if about then redis.call('EXPIRE', a .. 'by:' .. string.match(about, '^[^\\n]*'), age) end
end
for _, name in ipairs({'about', 'messages', 'used', 'whole', 'bytes'}) do redis.call('EXPIRE', a .. name, age) end
redis.call('EXPIRE', 'claw:last', age) -- never before what it has numbered
return 1
"""
_PROBE = "redis.call('SET', 'claw:schema', ARGV[2], 'EX', ARGV[3]) return 1"


class ValkeyContinuityStore:
    """A ``ContinuityStore`` on a server."""

    def __init__(self, link: Link, clock: Callable[[], float] | None = None) -> None:
        self._link = link
        self._clock = clock

    async def save(self, agent_id: str, anchor: Anchor, session: str, messages: bytes) -> None:
        about = "\n".join([anchor.key, " ".join(anchor.before), session])
        bounds = (int(MAX_AGE_SECONDS), MAX_TURNS, MAX_BYTES, MAX_MARKS, EVICTED)
        await self._link.run(_SAVE, self._now(), agent_id, anchor.key, about, messages, *bounds)

    async def find(self, agent_id: str, keys: Collection[str]) -> list[StoredRounds]:
        rows = await self._link.read(_FIND, self._now(), agent_id, MAX_CANDIDATES, *sorted(set(keys)))
        try:
            return [_decode(*row) for row in rows]
        except (ValueError, TypeError, AttributeError) as error:
            raise StoreError(f"the hidden rounds of {agent_id} on the server can't be read: {error}") from error

    async def mark_used(self, agent_id: str, entries: Collection[StoredRounds]) -> None:
        if entries:
            await self._link.run(
                _MARK_USED, self._now(), agent_id, int(MAX_AGE_SECONDS), *(entry.id for entry in entries)
            )

    async def is_writable(self) -> bool:
        try:
            await self._link.run(_PROBE, self._now(), SCHEMA, int(MAX_AGE_SECONDS))
        except StoreError:
            return False
        return True

    async def close(self) -> None:
        await self._link.close()

    def _now(self) -> float | str:
        return self._clock() if self._clock else ""


def _decode(number: bytes, about: bytes, messages: bytes) -> StoredRounds:
    key, before, session = about.decode().split("\n", 2)
    return decode_stored_rounds(int(number), Anchor(key, tuple(before.split())), session, messages)
