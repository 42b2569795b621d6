"""The turn journal on a server that several proxies share.

Only a turn's owner writes to it. So a proxy that was believed dead, and whose turn was taken over, runs no further write.
A record is as durable as the server's own settings make it (``appendfsync``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, cast

import msgspec

from claw_state.journal import (
    LEASE_LOST,
    MAX_CANDIDATES,
    RESUME_SECONDS,
    PreviousAttempt,
    RequestFingerprint,
    StoredResponse,
    TurnState,
    holds_lease,
)
from claw_state.lease import Owner
from claw_state.url import StoreError
from claw_state.valkey.link import Link

_SEEN = """
local within = tonumber(ARGV[2])
local function seen(turn, agent, request)
  redis.call('HSET', 'claw:t:' .. turn, 'seen', exact(now))
  redis.call('EXPIRE', 'claw:t:' .. turn, within)
  redis.call('SET', of(agent) .. 'asked:' .. request, turn, 'EX', within)
  redis.call('ZADD', of(agent) .. 'turns', exact(now), turn)
  redis.call('EXPIRE', of(agent) .. 'turns', within)
  local earlier = of(agent) .. 'earlier:' .. redis.call('HGET', 'claw:t:' .. turn, 'earlier')
  redis.call('ZADD', earlier, exact(now), turn)
  redis.call('ZREMRANGEBYSCORE', earlier, '-inf', exact(now - within))
  redis.call('EXPIRE', earlier, within)
end
local function runs(agent, request, but)
  local turn = redis.call('GET', of(agent) .. 'asked:' .. request)
  if not turn or turn == but then return false end
  local known = redis.call('HMGET', 'claw:t:' .. turn, 'state', 'request', 'seen')
  return known[1] == 'running' and known[2] == request and tonumber(known[3]) > now - within
end
"""
_FIND = """
local agent, within, request, earlier, words = ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local function read(turn)
  local known = redis.call('HMGET', 'claw:t:' .. turn, 'state', 'owner', 'seen', 'attempt', 'request', 'said', 'earlier')
  if not known[1] or tonumber(known[3]) <= now - within then return nil end
  return known
end
local function row(turn, known)
  return {turn, known[1], known[2], known[3], known[4], exact(now - tonumber(known[3])), known[6]}
end
local turn = redis.call('GET', of(agent) .. 'asked:' .. request)
local known = turn and read(turn)
if known and known[5] == request then return {'same', row(turn, known)} end
if words == '' then return nil end
local alike = {'altered'}
for _, other in ipairs(redis.call('ZREVRANGE', of(agent) .. 'earlier:' .. earlier, 0, tonumber(ARGV[7]) - 1)) do
  known = read(other)
  if known and known[1] ~= 'done' and known[7] == earlier and known[6] ~= '' then
    alike[#alike + 1] = row(other, known)
  end
end
return alike
"""
_BEGIN = (
    _SEEN
    + """
local turn, agent, owner = ARGV[3], ARGV[4], ARGV[5]
local request, earlier, said, attempt = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
if runs(agent, request, turn) then return 0 end
redis.call('HSET', 'claw:t:' .. turn, 'agent', agent, 'state', 'running', 'owner', owner,
  'request', request, 'earlier', earlier, 'said', said, 'attempt', attempt)
seen(turn, agent, request)
redis.call('ZREMRANGEBYSCORE', of(agent) .. 'turns', '-inf', exact(now - within))
redis.call('ZADD', 'claw:agents', 'NX', exact(now), agent)
if redis.call('TTL', 'claw:agents') < within then redis.call('EXPIRE', 'claw:agents', within) end
return 1
"""
)
_RESUME = (
    _SEEN
    + """
local turn, how, whose, when, owner = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local request, earlier, said, attempt = ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local t = 'claw:t:' .. turn
local known = redis.call('HMGET', t, 'state', 'owner', 'seen', 'agent', 'earlier')
local same = known[1] == how and known[2] == whose and tonumber(known[3]) == tonumber(when)
if not same or runs(known[4], request, turn) then return 0 end
redis.call('ZREM', of(known[4]) .. 'earlier:' .. known[5], turn)
redis.call('HSET', t, 'state', 'running', 'owner', owner,
  'request', request, 'earlier', earlier, 'said', said, 'attempt', attempt)
seen(turn, known[4], request)
return 1
"""
)
_RENEW = (
    _SEEN
    + """
local ours = 0
for place = 4, #ARGV do
  local known = redis.call('HMGET', 'claw:t:' .. ARGV[place], 'state', 'owner', 'agent', 'request')
  if (known[1] == 'running' or known[1] == 'abandoned') and known[2] == ARGV[3] then
    seen(ARGV[place], known[3], known[4])
    ours = ours + 1
  end
end
return ours
"""
)
_RECORD_STEP = """
local t = 'claw:t:' .. ARGV[2]
if redis.call('HGET', t, 'owner') ~= ARGV[3] then return 0 end
redis.call('HSET', t, ARGV[4], ARGV[5])
return 1
"""
_READ_STEP = "return redis.call('HGET', 'claw:t:' .. ARGV[2], ARGV[3])"
_ABANDON = (
    _SEEN
    + """
local known = redis.call('HMGET', 'claw:t:' .. ARGV[3], 'state', 'owner', 'agent', 'request')
if known[1] ~= 'running' or known[2] ~= ARGV[4] then return 0 end
redis.call('HSET', 'claw:t:' .. ARGV[3], 'state', 'abandoned')
seen(ARGV[3], known[3], known[4])
return 1
"""
)
_END = (
    _SEEN
    + """
local turn, owner, state, answer = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local t = 'claw:t:' .. turn
local known = redis.call('HMGET', t, 'owner', 'agent', 'request', 'answer')
if known[1] ~= owner or (known[4] or '') ~= '' then return 0 end
redis.call('HSET', t, 'state', state, 'answer', answer)
if answer ~= '' then
  for _, name in ipairs(redis.call('HKEYS', t)) do
    if string.find(name, '.', 1, true) then redis.call('HDEL', t, name) end -- a step: ROUND.PLACE
  end
end
seen(turn, known[2], known[3])
return 1
"""
)
_MARK_DELIVERED = (
    _SEEN
    + """
local known = redis.call('HMGET', 'claw:t:' .. ARGV[3], 'state', 'agent', 'request', 'earlier')
if known[1] ~= 'answered' then return 0 end
redis.call('HSET', 'claw:t:' .. ARGV[3], 'state', 'done')
seen(ARGV[3], known[2], known[3])
redis.call('ZREM', of(known[2]) .. 'earlier:' .. known[4], ARGV[3]) -- it takes no room from those that may go on
return 1
"""
)
_RESPONSE = "reply"
_TTL_SECONDS = int(RESUME_SECONDS)


class ValkeyJournal:
    """A ``Journal`` on a server."""

    def __init__(self, link: Link, owner: Owner, clock: Callable[[], float] | None = None) -> None:
        self._link = link
        self._owner = owner
        self._clock = clock

    async def find(self, agent_id: str, fingerprint: RequestFingerprint) -> PreviousAttempt | None:
        key = (fingerprint.request, fingerprint.earlier, fingerprint.message_digest)
        answer = await self._link.read(_FIND, self._now(), agent_id, _TTL_SECONDS, *key, MAX_CANDIDATES)
        try:
            kind, *rows = answer or [b"same"]
            past = self._select(rows, fingerprint, altered=kind == b"altered")
            if past is None:
                return None
            body = await self._link.read(_READ_STEP, self._now(), past.turn_id, "answer")
            return replace(past, response=msgspec.msgpack.decode(body, type=StoredResponse) if body else None)
        except (ValueError, TypeError, msgspec.DecodeError) as error:
            raise StoreError(f"the record of a turn on the server can't be read: {error}") from error

    def _select(
        self, rows: list[list[bytes]], fingerprint: RequestFingerprint, *, altered: bool
    ) -> PreviousAttempt | None:
        """Return the first attempt that the request repeats."""
        keys = [(row[-1].decode(), row[1].decode()) for row in rows]
        matches = fingerprint.openclaw_retry_of(set(keys)) if altered else set(keys)
        attempts = [self._past(*row, altered=altered) for row, key in zip(rows, keys, strict=True) if key in matches]
        return next((past for past in attempts if not (altered and self._runs(past))), None)

    async def begin(self, turn_id: str, agent_id: str, fingerprint: RequestFingerprint) -> bool:
        return await self._run(_BEGIN, turn_id, agent_id, self._owner.name, *fingerprint.columns)

    async def resume(self, past: PreviousAttempt, fingerprint: RequestFingerprint) -> bool:
        before = (past.turn_id, past.state, past.owner, past.seen)
        return await self._run(_RESUME, *before, self._owner.name, *fingerprint.columns)

    async def renew_leases(self, turn_ids: Collection[str]) -> None:
        await self._run(_RENEW, self._owner.name, *turn_ids)

    async def record_response(self, turn_id: str, round_number: int, body: bytes) -> None:
        await self._record_step(turn_id, round_number, _RESPONSE, body)

    async def response(self, turn_id: str, round_number: int) -> bytes | None:
        return await self._read_step(turn_id, round_number, _RESPONSE)

    async def record_intent(self, turn_id: str, round_number: int, place: int, record: bytes) -> None:
        await self._record_step(turn_id, round_number, place, record)

    async def record_result(self, turn_id: str, round_number: int, place: int, record: bytes) -> None:
        await self._record_step(turn_id, round_number, place, record)

    async def call_record(self, turn_id: str, round_number: int, place: int) -> bytes | None:
        return await self._read_step(turn_id, round_number, place)

    async def abandon(self, turn_id: str) -> None:
        await self._run(_ABANDON, turn_id, self._owner.name)

    async def end(self, turn_id: str, response: StoredResponse | None) -> None:
        state, answer = ("answered", msgspec.msgpack.encode(response)) if response else ("failed", b"")
        await self._run(_END, turn_id, self._owner.name, state, answer)

    async def mark_delivered(self, turn_id: str) -> None:
        await self._run(_MARK_DELIVERED, turn_id)

    async def close(self) -> None:
        await self._link.close()

    def _past(self, *row: bytes, altered: bool = False) -> PreviousAttempt:
        turn_id, state, owner, seen, key = (part.decode() for part in row[:5])
        is_alive = holds_lease(self._owner, state, owner, float(row[5]), altered=altered)
        return PreviousAttempt(turn_id, cast("TurnState", state), is_alive, key, None, owner, float(seen))

    def _runs(self, past: PreviousAttempt) -> bool:
        """Return True if a turn runs and its runner waits.

        A turn that runs here is found only by its own request (``claw_mediate/turns/registry.py``).
        """
        return past.state == "running" and (past.is_alive or past.owner == self._owner.name)

    async def _run(self, script: str, *values: str | bytes | float) -> bool:
        return bool(await self._link.run(script, self._now(), _TTL_SECONDS, *values) == 1)

    async def _record_step(self, turn_id: str, round_number: int, place: int | str, record: bytes) -> None:
        step = f"{round_number}.{place}"
        if await self._link.run(_RECORD_STEP, self._now(), turn_id, self._owner.name, step, record) != 1:
            raise StoreError(LEASE_LOST)

    async def _read_step(self, turn_id: str, round_number: int, place: int | str) -> bytes | None:
        record: Any = await self._link.read(_READ_STEP, self._now(), turn_id, f"{round_number}.{place}")
        return None if record is None else bytes(record)

    def _now(self) -> float | str:
        return self._clock() if self._clock else ""
