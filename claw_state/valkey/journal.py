"""The turn journal on a server that several proxies share.

Only a turn's owner writes to it. So a proxy that was believed dead makes no further write once
another proxy has taken its turn over. A record is as durable as the server's own settings make it
(``appendfsync``).
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, cast, get_args

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
from claw_state.lease import LeaseOwner
from claw_state.url import StoreError
from claw_state.valkey.client import ValkeyClient, store_error_if_unreadable
from claw_state.valkey.scripts import load_script

_FIND = load_script("journal_find")
_TURN = load_script("journal_turn")
_BEGIN = load_script("journal_seen", "journal_begin")
_RESUME = load_script("journal_seen", "journal_resume")
_RENEW = load_script("journal_seen", "journal_renew")
_RECORD_STEP = load_script("journal_record_step")
_READ_STEP = "return redis.call('HGET', 'claw:t:' .. ARGV[2], ARGV[3])"
_ABANDON = load_script("journal_seen", "journal_abandon")
_END = load_script("journal_seen", "journal_end")
_MARK_DELIVERED = load_script("journal_seen", "journal_mark_delivered")
_RESPONSE = "reply"
_A_TURN = "the record of a turn"
_STATES = get_args(TurnState.__value__)
_TTL_SECONDS = int(RESUME_SECONDS)


class ValkeyJournal:
    """A ``Journal`` on a server."""

    def __init__(
        self, client: ValkeyClient, owner: LeaseOwner, clock: Callable[[], float] | None = None
    ) -> None:
        self._client = client
        self._owner = owner
        self._clock = clock

    async def find(self, agent_id: str, fingerprint: RequestFingerprint) -> PreviousAttempt | None:
        keys = (fingerprint.request, fingerprint.earlier, fingerprint.message_digest)
        answer = await self._client.read(
            _FIND, self._now(), agent_id, _TTL_SECONDS, *keys, MAX_CANDIDATES
        )
        with store_error_if_unreadable(_A_TURN):
            kind, *rows = answer or [b"same"]
            past = self._select(rows, fingerprint, altered=kind == b"altered")
        if past is None:
            return None

        body = await self._client.read(_READ_STEP, self._now(), past.turn_id, "answer")
        if not body:
            return past
        with store_error_if_unreadable(_A_TURN):
            return replace(past, response=msgspec.msgpack.decode(body, type=StoredResponse))

    def _select(
        self, rows: list[list[bytes]], fingerprint: RequestFingerprint, *, altered: bool
    ) -> PreviousAttempt | None:
        """Return the first of these turns that the request repeats.

        ``altered``: their requests equal this one in all but the last message.
        """
        # Each turn's digest of the last message, and its state
        keys = [(row[-1].decode(), row[1].decode()) for row in rows]
        repeated = fingerprint.openclaw_retry_of(set(keys)) if altered else set(keys)
        attempts = [
            self._past(*row, altered=altered)
            for row, key in zip(rows, keys, strict=True)
            if key in repeated
        ]

        for past in attempts:
            # A turn that runs is repeated by an equal request only.
            if not altered or not self._runs(past):
                return past
        return None

    async def is_alive(self, turn_id: str) -> bool:
        row = await self._client.read(_TURN, self._now(), turn_id)
        with store_error_if_unreadable(_A_TURN):
            return row is not None and holds_lease(
                self._owner, row[0].decode(), row[1].decode(), float(row[2])
            )

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

    async def record_intent(
        self, turn_id: str, round_number: int, place: int, record: bytes
    ) -> None:
        await self._record_step(turn_id, round_number, place, record)

    async def record_result(
        self, turn_id: str, round_number: int, place: int, record: bytes
    ) -> None:
        await self._record_step(turn_id, round_number, place, record)

    async def call_record(self, turn_id: str, round_number: int, place: int) -> bytes | None:
        return await self._read_step(turn_id, round_number, place)

    async def abandon(self, turn_id: str) -> None:
        await self._run(_ABANDON, turn_id, self._owner.name)

    async def end(self, turn_id: str, response: StoredResponse | None) -> None:
        state = "answered" if response else "failed"
        answer = msgspec.msgpack.encode(response) if response else b""
        await self._run(_END, turn_id, self._owner.name, state, answer)

    async def mark_delivered(self, turn_id: str) -> None:
        await self._run(_MARK_DELIVERED, turn_id)

    async def close(self) -> None:
        await self._client.close()

    def _past(self, *row: bytes, altered: bool = False) -> PreviousAttempt:
        """Return the attempt that a row of ``_FIND`` describes."""
        turn_id, state, owner, seen, key = (part.decode() for part in row[:5])
        silent = float(row[5])
        if state not in _STATES:
            raise ValueError(f"{state!r} is no state of a turn")

        return PreviousAttempt(
            turn_id=turn_id,
            state=cast("TurnState", state),
            is_alive=holds_lease(self._owner, state, owner, silent, altered=altered),
            idempotency_key=key,
            response=None,
            owner=owner,
            seen=float(seen),
        )

    def _runs(self, past: PreviousAttempt) -> bool:
        """Return True if a turn runs and its runner waits.

        Only an equal request joins a turn that runs here (``claw_mediate/turns/registry.py``).
        """
        return past.state == "running" and (past.is_alive or past.owner == self._owner.name)

    async def _run(self, script: str, *values: str | bytes | float) -> bool:
        """Run a script that writes, and return whether it wrote: the turn may be another's now."""
        answer = await self._client.run(script, self._now(), _TTL_SECONDS, *values)
        return bool(answer == 1)

    async def _record_step(
        self, turn_id: str, round_number: int, place: int | str, record: bytes
    ) -> None:
        step = f"{round_number}.{place}"
        answer = await self._client.run(
            _RECORD_STEP, self._now(), turn_id, self._owner.name, step, record
        )
        if answer != 1:
            raise StoreError(LEASE_LOST)

    async def _read_step(self, turn_id: str, round_number: int, place: int | str) -> bytes | None:
        record: Any = await self._client.read(
            _READ_STEP, self._now(), turn_id, f"{round_number}.{place}"
        )
        if record is not None and not isinstance(record, bytes):
            raise StoreError(f"{_A_TURN} on the server can't be read: it is no text")
        return record

    def _now(self) -> float | str:
        return self._clock() if self._clock else ""
