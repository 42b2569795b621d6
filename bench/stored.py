"""Turns that are stored before a run, written by the methods that the mediator uses."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable

import wire

from claw_state.continuity import Anchor, ContinuityStore
from claw_state.journal import RESUME_SECONDS, Journal, RequestFingerprint, StoredResponse
from claw_state.lease import LeaseOwner
from claw_state.sqlite.connection import Database
from claw_state.sqlite.continuity import SqliteContinuityStore
from claw_state.sqlite.journal import SqliteJournal
from claw_state.url import ServerAddress, parse_place
from claw_state.valkey.client import ValkeyClient
from claw_state.valkey.continuity import ValkeyContinuityStore
from claw_state.valkey.journal import ValkeyJournal

_OF_AN_AGENT = 250
"""The stored turns of an agent, about as many as it keeps."""
_HIDDEN = wire.call(0)[:700] + b"," + wire.result(0)


async def fill(state: str, agents: int, there: int, total: int) -> None:
    """Store turns number `there` up to `total`, of so many agents, spread over the
    last ten minutes.
    """
    now, numbers = time.time(), iter(range(there, total))
    at = now - RESUME_SECONDS
    store, journal = _open(state, lambda: at)

    async def work() -> None:
        nonlocal at
        for number in numbers:
            at = now - RESUME_SECONDS * (total - number) / total
            await _turn(
                store, journal, f"agent-{number % max(agents, total // _OF_AN_AGENT)}", str(number)
            )

    await asyncio.gather(*(work() for _ in range(16)))
    await store.close()
    await journal.close()


async def _turn(store: ContinuityStore, journal: Journal, agent: str, name: str) -> None:
    """Store one turn with one call."""
    digests = [
        hashlib.sha256(f"{part} {name}".encode()).hexdigest()
        for part in ("request", "earlier", "key")
    ]
    turn_id = f"turn_{int(name):032x}"
    await journal.begin(
        turn_id, agent, RequestFingerprint(digests[0], digests[1], f"What of {name}?", "")
    )
    await journal.record_response(turn_id, 1, wire.call(0))
    await journal.record_result(turn_id, 1, 0, _RECORD)
    await journal.record_response(turn_id, 2, _RESPONSE.body)
    await store.save(
        agent, Anchor(f"openai_chat:words:{digests[2]}", (digests[0][:16],)), "", _HIDDEN
    )
    await journal.end(turn_id, _RESPONSE)
    await journal.mark_delivered(turn_id)


_RESPONSE = StoredResponse(200, "application/json", wire.completion(wire.TEXT))
_RECORD = wire.result(0)
"""The record of a call: the journal stores bytes, most of them the result."""


def _open(state: str, clock: Callable[[], float]) -> tuple[ContinuityStore, Journal]:
    where, owner = parse_place(state), LeaseOwner("bench", 1, "earlier")
    if isinstance(where, ServerAddress):
        return ValkeyContinuityStore(ValkeyClient(where, timeout=10), clock), ValkeyJournal(
            ValkeyClient(where, timeout=10), owner, clock
        )
    return SqliteContinuityStore(Database(where.path), clock), SqliteJournal(
        Database(where.path), owner, clock
    )
