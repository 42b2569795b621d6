"""The inventory of a server that proxies are using.

It reads by many small commands, and deletes by small scripts, so that no proxy waits for long.
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
_BATCH = 100
"""Entries that are read or deleted at once. A proxy waits a quarter of a second for the server."""
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

            names: dict[bytes, None] = {}  # in order, each once
            for key in ("claw:agents", "claw:owners", "claw:object_owners"):
                of_key: Any = redis.zrange(key, 0, -1)
                names.update(dict.fromkeys(of_key))

            agents: list[AgentState] = []
            for batch in batched(names, _BATCH):
                agents += self._agents(redis, batch, now)
            agents.sort(key=lambda state: state.agent)
            return Inventory(
                self._server.shown, "Valkey", version, tuple(agents), keys=redis.dbsize()
            )

    def forget(self, agent_id: str) -> DeletionCounts | None:
        with self._connected() as redis:
            read_schema_version(redis, self._server)
            rounds = _run_until_done(redis, _DELETE_ROUNDS, agent_id, "whole", _BATCH)
            marks = _run_until_done(redis, _DELETE_ROUNDS, agent_id, "used", _BATCH)

            turns = _turns_of(redis, agent_id)
            now = self._now(redis)
            deleted_turns = 0
            for turn in turns:
                if is_deletable(self._state(turn, now)):
                    deleted_turns += _run(redis, _DELETE_TURN, agent_id, *turn)

            owned = _run_until_done(redis, _DELETE_OWNED, agent_id, _BATCH)
            owned += _run_until_done(redis, _DELETE_OBJECTS, agent_id, _BATCH)
            _run(redis, _DELETE_AGENT, agent_id)

            running_turns = len(_turns_of(redis, agent_id))
            if not rounds and not marks and not turns and not owned:
                return None
            return DeletionCounts(rounds, marks, deleted_turns, running_turns, owned)

    def _agents(self, redis: Redis, names: tuple[bytes, ...], now: float) -> Iterator[AgentState]:
        """Yield the agents with these names that have anything in the state."""
        # One round trip for the whole batch: seven commands for each agent, in its order.
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
        answers_by_agent = batched(pipeline.execute(), 7)

        turns = _turns(redis, names)
        for name, answers in zip(names, answers_by_agent, strict=True):
            count, count_with_marks, size, oldest, newest, owned, objects = answers
            rounds = RoundStats(
                count=count,
                size=int(size or 0),
                oldest=oldest[0][1] if oldest else None,
                newest=newest[0][1] if newest else None,
                marks=count_with_marks - count,
            )
            states = count_states(self._state(turn, now) for turn in turns[name])
            if count_with_marks or states or owned or objects:
                agent = name.decode(errors="replace")
                yield AgentState(agent, rounds, states, owned=owned + objects)

    def _state(self, turn: _Turn, now: float) -> str:
        state = turn.state.decode(errors="replace")
        owner = turn.owner.decode(errors="replace")
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
            remedy = (
                f"the state is at {self._server.shown}: does it run, and is it reachable from here?"
            )
            raise StoreError(self._redact(f"{error} ({remedy})")) from None

    def _redact(self, text: str) -> str:
        return Redactor(self._server.secrets).text(text)


def _turns(redis: Redis, agents: tuple[bytes, ...]) -> dict[bytes, list[_Turn]]:
    """Return the turns of some agents, by agent."""
    pipeline = redis.pipeline(transaction=False)
    for agent in agents:
        pipeline.zrange(b"claw:a:%b:turns" % agent, 0, -1)
    answers = pipeline.execute()
    return {
        agent: list(_read_turns(redis, names)) for agent, names in zip(agents, answers, strict=True)
    }


def _turns_of(redis: Redis, agent_id: str) -> list[_Turn]:
    name = agent_id.encode()
    return _turns(redis, (name,))[name]


def _read_turns(redis: Redis, names: list[bytes]) -> Iterator[_Turn]:
    for batch in batched(names, _BATCH):
        pipeline = redis.pipeline(transaction=False)
        for name in batch:
            pipeline.hmget(b"claw:t:%b" % name, "state", "owner", "seen")
        for name, known in zip(batch, pipeline.execute(), strict=True):
            if None not in known:  # else it has expired
                yield _Turn(name, *known)


def _run_until_done(redis: Redis, script: str, *values: Any) -> int:
    """Run a script that deletes a batch until it finds nothing more; return how many it deleted."""
    total = 0
    while deleted := _run(redis, script, *values):
        total += deleted
    return total


def _run(redis: Redis, script: str, *values: Any) -> int:
    return int(redis.eval(PRELUDE + script, 0, "", *values))
