"""The inventory of a server while proxies use it: many small commands to read,
small scripts to delete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import batched
from typing import TYPE_CHECKING, Any, NamedTuple

from claw_contract.redaction.redactor import Redactor
from claw_state.inventory import (
    AgentState,
    DeletionCounts,
    Inventory,
    RoundStats,
    count_states,
    current_state,
    is_deletable,
)
from claw_state.lease import LeaseOwner
from claw_state.url import ServerAddress, StoreError
from claw_state.valkey.client import PRELUDE, blocking_client, read_schema_version
from claw_state.valkey.scripts import load_script

if TYPE_CHECKING:
    from redis import Redis

_PATIENCE_SECONDS = 5.0
# Entries that are read or deleted at once: a proxy waits at most a quarter of a second for the
# server
_BATCH = 100
_DELETE_ROUNDS = load_script("continuity_drop", "inventory_delete_rounds")
_DELETE_TURN = load_script("inventory_delete_turn")
_DELETE_OWNED = load_script("owners", "inventory_delete_owned")
_DELETE_OBJECTS = load_script("owners", "inventory_delete_objects")
_DELETE_AGENT = load_script("inventory_delete_agent")


class _Turn(NamedTuple):
    name: bytes
    state: bytes
    owner: bytes
    seen: bytes


class ValkeyInventory:
    """A ``StateInventory`` of a server."""

    def __init__(self, server: ServerAddress, clock: Callable[[], float] | None = None) -> None:
        """``clock`` replaces the server's time in tests."""
        self._server = server
        self._clock = clock
        self._me = LeaseOwner.current()

    def inventory(self) -> Inventory:
        with self._connected() as redis:
            version = read_schema_version(redis, self._server)
            now = self._now(redis)
            lists: Any = [
                redis.zrange(name, 0, -1)
                for name in ("claw:agents", "claw:owners", "claw:object_owners")
            ]
            names = dict.fromkeys(name for names in lists for name in names)
            agents = [
                state
                for batch in batched(names, _BATCH)
                for state in self._agents(redis, batch, now)
            ]
            agents.sort(key=lambda state: state.agent)
            return Inventory(
                self._server.shown, "Valkey", version, tuple(agents), keys=redis.dbsize()
            )

    def forget(self, agent_id: str) -> DeletionCounts | None:
        with self._connected() as redis:
            read_schema_version(redis, self._server)
            rounds, marks = (
                sum(_delete_rounds(redis, agent_id, kind)) for kind in ("whole", "used")
            )
            deleted = 0
            turns = _turns(redis, [agent_id.encode()])[agent_id.encode()]
            now = self._now(redis)
            for turn in turns:
                if is_deletable(self._state(turn, now)):
                    deleted += _run(redis, _DELETE_TURN, agent_id, *turn)
            owned = sum(
                sum(_delete_owned(redis, agent_id, script))
                for script in (_DELETE_OWNED, _DELETE_OBJECTS)
            )
            _run(redis, _DELETE_AGENT, agent_id)
            left = len(_turns(redis, [agent_id.encode()])[agent_id.encode()])
            return (
                DeletionCounts(rounds, marks, deleted, left, owned)
                if rounds or marks or turns or owned
                else None
            )

    def _agents(self, redis: Redis, names: tuple[bytes, ...], now: float) -> Iterator[AgentState]:
        pipeline = redis.pipeline(transaction=False)
        for name in names:
            whole = b"claw:a:%b:whole" % name
            pipeline.zcard(whole)
            pipeline.zcard(b"claw:a:%b:used" % name)
            pipeline.get(b"claw:a:%b:bytes" % name)
            pipeline.zrange(whole, 0, 0, withscores=True)
            pipeline.zrange(whole, -1, -1, withscores=True)
            pipeline.zcard(b"claw:a:%b:owned_used" % name)
            pipeline.zcard(b"claw:a:%b:objects_used" % name)
        results = pipeline.execute()
        turns = _turns(redis, names)
        for name, (count, total, size, oldest, newest, owned, objects) in zip(
            names, batched(results, 7), strict=True
        ):
            oldest_use, newest_use = (row[0][1] if row else None for row in (oldest, newest))
            rounds = RoundStats(count, int(size or 0), oldest_use, newest_use, total - count)
            states = count_states(self._state(turn, now) for turn in turns[name])
            if total or states or owned or objects:
                yield AgentState(
                    name.decode(errors="replace"), rounds, states, owned=owned + objects
                )

    def _state(self, turn: _Turn, now: float) -> str:
        state, owner = turn.state.decode(errors="replace"), turn.owner.decode(errors="replace")
        return current_state(self._me, state, owner, now - float(turn.seen))

    def _now(self, redis: Redis) -> float:
        if self._clock:
            return self._clock()
        seconds, micros = redis.time()
        return float(seconds + micros / 1e6)

    @contextmanager
    def _connected(self) -> Iterator[Redis]:
        """Turn every error into a ``StoreError`` with one line, without secrets."""
        try:
            with blocking_client(self._server, _PATIENCE_SECONDS) as redis:
                yield redis
        except ValueError as error:
            raise StoreError(self._redact(str(error))) from None
        except StoreError as error:
            raise StoreError(
                self._redact(
                    f"{error} (the state is at {self._server.shown}: does it run, and is "
                    "it reachable from here?)"
                )
            ) from None

    def _redact(self, text: str) -> str:
        return Redactor(self._server.secrets).text(text)


def _turns(redis: Redis, agents: tuple[bytes, ...] | list[bytes]) -> dict[bytes, list[_Turn]]:
    pipeline = redis.pipeline(transaction=False)
    for agent in agents:
        pipeline.zrange(b"claw:a:%b:turns" % agent, 0, -1)
    return {
        agent: list(_read_turns(redis, names))
        for agent, names in zip(agents, pipeline.execute(), strict=True)
    }


def _read_turns(redis: Redis, names: list[bytes]) -> Iterator[_Turn]:
    for batch in batched(names, _BATCH):
        pipeline = redis.pipeline(transaction=False)
        for name in batch:
            pipeline.hmget(b"claw:t:%b" % name, "state", "owner", "seen")
        for name, known in zip(batch, pipeline.execute(), strict=True):
            if None not in known:  # else it has expired
                yield _Turn(name, *known)


def _delete_rounds(redis: Redis, agent_id: str, kind: str) -> Iterator[int]:
    while deleted := _run(redis, _DELETE_ROUNDS, agent_id, kind, _BATCH):
        yield deleted


def _delete_owned(redis: Redis, agent_id: str, script: str) -> Iterator[int]:
    while deleted := _run(redis, script, agent_id, _BATCH):
        yield deleted


def _run(redis: Redis, script: str, *values: Any) -> int:
    return int(redis.eval(PRELUDE + script, 0, "", *values))
