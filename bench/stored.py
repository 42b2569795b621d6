"""Turns that are stored already: written through the methods that the mediator has for it, as if they had just been made."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable

import msgspec
import wire

from claw_state.continuity import Anchor, ContinuityStore
from claw_state.journal import RESUME_SECONDS, Journal, RequestFingerprint, StoredResponse
from claw_state.lease import Owner
from claw_state.sqlite.connection import Database
from claw_state.sqlite.continuity import SqliteContinuityStore
from claw_state.sqlite.journal import SqliteJournal
from claw_state.url import Server, parse_place
from claw_state.valkey.continuity import ValkeyContinuityStore
from claw_state.valkey.journal import ValkeyJournal
from claw_state.valkey.link import Link

_OF_AN_AGENT = 250
"""About as many as an agent keeps."""
_HIDDEN = wire.call(0)[:700] + b"," + wire.result(0)


async def fill(state: str, agents: int, there: int, to: int) -> None:
    """So many turns of so many agents, as if they had been made in the last ten minutes."""
    began, numbers = time.time(), iter(range(there, to))
    at = began - RESUME_SECONDS
    store, journal = _opened(state, lambda: at)

    async def some() -> None:
        nonlocal at
        for number in numbers:
            at = began - RESUME_SECONDS * (to - number) / to
            await _turn(store, journal, f"agent-{number % max(agents, to // _OF_AN_AGENT)}", str(number))

    await asyncio.gather(*(some() for _ in range(16)))
    await store.close()
    await journal.close()


async def _turn(store: ContinuityStore, journal: Journal, agent: str, name: str) -> None:
    """What the journal and the store are told of a turn with one call."""
    digests = [hashlib.sha256(f"{part} {name}".encode()).hexdigest() for part in ("request", "earlier", "key")]
    turn_id = f"turn_{int(name):032x}"
    await journal.begin(turn_id, agent, RequestFingerprint(digests[0], digests[1], f"What of {name}?", ""))
    await journal.record_response(turn_id, 1, wire.call(0))
    await journal.record_result(turn_id, 1, 0, _ANSWER)
    await journal.record_response(turn_id, 2, _GIVEN.body)
    await store.save(agent, Anchor(f"openai_chat:words:{digests[2]}", (digests[0][:16],)), "", _HIDDEN)
    await journal.end(turn_id, _GIVEN)
    await journal.mark_delivered(turn_id)


_GIVEN = StoredResponse(200, "application/json", wire.completion(wire.TEXT))
_ANSWER = msgspec.msgpack.encode([wire.result(0), True, None, 200, 3, True])
"""As ``claw_mediate.turns.checkpoint`` encodes the result of a call."""


def _opened(state: str, clock: Callable[[], float]) -> tuple[ContinuityStore, Journal]:
    where, owner = parse_place(state), Owner("bench", 1, "earlier")
    if isinstance(where, Server):
        return ValkeyContinuityStore(Link(where, timeout=10), clock), ValkeyJournal(
            Link(where, timeout=10), owner, clock
        )
    return SqliteContinuityStore(Database(where.path), clock), SqliteJournal(Database(where.path), owner, clock)
