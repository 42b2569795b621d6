"""The checkpoint of one turn: replays the steps of an earlier attempt, and records new ones.

    a call        it is recorded                    the journal can't be written
    ────────────  ────────────────────────────────  ───────────────────────────────────────────
    that reads    its result                        it runs
    that writes   its result; or, if it was sent,   it does not run: nothing would keep it from
                  that its outcome is unknown       running twice (nor if it could not be read)

A step that could not be written is written before the next one, or none is: what the model was
shown is found again as it was, or not at all. This holds also for a call that was not made: a
resumed turn must not make it, since the model was told otherwise (docs/spec/mediation.md section
5).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from claw_contract.history import McpRecord
from claw_mediate.core import tool_result
from claw_mediate.core.held_text import write_shown
from claw_mediate.core.types import Image, ModelResponse, ToolCall, ToolResult
from claw_state.health import StateUnavailableError
from claw_state.journal import AttemptKind, Journal, StoredResponse
from claw_state.url import StoreError

_BILLING_ROUND = 0  # The round before the first: its record counts the responses that are paid for
SHOWN_STEP: Final = (_BILLING_ROUND, -2)
"""The round and the place of the step that has what a failed turn has shown."""
_NOT_ENTERED = "this turn is not in the journal"
type _Step = Callable[[], Awaitable[None]]


class _CallRecord(msgspec.Struct, array_like=True):
    """A call as the journal holds it; without content it was sent, and its result is not known.

    A record that an earlier version wrote may end before ``images`` or ``mcp``.
    """

    content: bytes | None = None
    ok: bool = False
    code: str | None = None
    status_code: int | None = None
    latency_ms: int = 0
    ran: bool = False
    images: tuple[Image, ...] = ()
    mcp: tuple[str, str | None, str] | None = None  # Server, session and protocol


@dataclass(frozen=True, slots=True)
class InFlight:
    """A call that was sent, and whose result is not known."""


_SENT = msgspec.msgpack.encode(_CallRecord())  # The record of a call that is about to be sent


def _encode_result(result: ToolResult) -> bytes:
    mcp: tuple[str, str | None, str] | None = None
    if result.mcp is not None:
        mcp = result.mcp.server, result.mcp.session, result.mcp.protocol

    record = _CallRecord(
        content=result.content,
        ok=result.ok,
        code=result.code,
        status_code=result.status_code,
        latency_ms=result.latency_ms,
        ran=result.ran,
        images=result.images,
        mcp=mcp,
    )
    return msgspec.msgpack.encode(record)


def _decode_result(record: bytes, call: ToolCall) -> ToolResult | InFlight:
    """Return what a record says of a call. Raise ``StoreError`` for one that can't be read."""
    try:
        read = msgspec.msgpack.decode(record, type=_CallRecord)
    except msgspec.DecodeError as error:
        raise StoreError(f"what is kept of a call can't be read: {error}") from error
    if read.content is None:
        return InFlight()

    mcp: McpRecord | None = None
    if read.mcp is not None:
        server, session, protocol = read.mcp
        mcp = McpRecord(server=server, session=session, protocol=protocol)

    return ToolResult(
        call,
        read.content,
        read.ok,
        read.code,
        read.status_code,
        read.latency_ms,
        read.ran,
        images=read.images,
        mcp=mcp,
    )


@dataclass(slots=True)
class ReplayStats:
    """The numbers of steps that were taken from an earlier attempt.

    They are model responses, calls with a result, and calls of unknown outcome.
    """

    replies: int = 0
    calls: int = 0
    unknown: int = 0


class TurnCheckpoint:
    """The recorded steps of a turn.

    ``on_failure`` is called once when the journal can't be used, ``on_resumed`` once when every
    step of an earlier attempt was replayed.
    """

    def __init__(
        self,
        journal: Journal,
        turn_id: str,
        on_failure: Callable[[str], None],
        attempt: AttemptKind,
        on_resumed: Callable[[ReplayStats], None] = lambda _: None,
    ) -> None:
        self._journal = journal
        self.turn_id = turn_id
        self._on_failure: Callable[[str], None] | None = on_failure
        self._on_resumed: Callable[[ReplayStats], None] | None = None
        if attempt == "resumed":
            self._on_resumed = on_resumed
        self._stats = ReplayStats()
        self._attempt = attempt
        self._unwritten: deque[_Step] = deque()
        """Steps that are not written yet, in order.

        A later one without them would describe another turn.
        """
        self._writing = asyncio.Lock()

    async def response(self, round_number: int) -> bytes | None:
        """Return the model's response of this round, if an earlier attempt recorded it."""
        recorded = await self._record(round_number)
        if recorded is None:
            self._finish_replay()
        else:
            self._stats.replies += 1
        return recorded

    async def mark_sent(self, round_number: int, response: ModelResponse) -> ModelResponse:
        """Return an earlier attempt's response with its recorded calls marked.

        Marked calls are not judged again.
        """
        calls: list[ToolCall] = []
        try:
            for place, call in enumerate(response.calls):
                record = await self._call_record(round_number, place, call)
                calls.append(replace(call, sent=record is not None))
        except StoreError as error:
            self._report(error)
            return response

        return replace(response, calls=tuple(calls))

    async def record_response(
        self, round_number: int, body: bytes, *, is_answer: bool = False
    ) -> None:
        """Record a good response of the model: this round's model call is never made again.

        ``is_answer``: the response is the turn's answer, which ``end`` records in the place of all
        steps. So this step only waits, and is written before the next one if the turn goes on or
        fails all the same.
        """
        step = partial(self._journal.record_response, self.turn_id, round_number, body)
        if not is_answer:
            await self._write(step)
        elif self._attempt != "journal_unavailable":
            self._unwritten.append(step)

    async def call(
        self,
        round_number: int,
        place: int,
        call: ToolCall,
        run: Callable[[], Awaitable[ToolResult]],
    ) -> ToolResult:
        """Return the result of a call: the recorded one, or what running it gives."""
        record_result = partial(self._journal.record_result, self.turn_id, round_number, place)
        may_write = _may_write(call)
        try:
            record = await self._call_record(round_number, place, call)
            if isinstance(record, ToolResult):
                self._stats.calls += record.ran
                return replace(record, replayed=True)

            was_sent = record is not None
            if may_write and was_sent:
                self._stats.unknown += 1
                return tool_result.outcome_unknown(call)
            if may_write:
                await self._record_intent(round_number, place)
        except StoreError as error:
            self._report(error)
            if may_write:
                refused = tool_result.not_journaled(call)
                await self._write(partial(record_result, _encode_result(refused)))
                return refused

        result = await run()
        await self._write(partial(record_result, _encode_result(result)))
        return result

    async def record_unmade(self, round_number: int, place: int, result: ToolResult) -> None:
        """Record what the model is shown of a call that was settled without being made.

        After that no other attempt may make it.
        """
        if _may_write(result.call) and not result.call.sent:
            record = _encode_result(result)
            await self._write(
                partial(self._journal.record_result, self.turn_id, round_number, place, record)
            )

    async def billed_responses(self) -> int:
        """Return how many responses of earlier attempts are paid for."""
        return int(await self._record(_BILLING_ROUND) or 0)

    async def record_billed(self, responses: int) -> None:
        """Record how many responses are paid for, those of earlier attempts included."""
        await self.record_response(_BILLING_ROUND, b"%d" % responses)

    async def record_shown(self, text: str) -> None:
        """Record what a turn that fails has shown: its runner may go on with that."""
        record = write_shown(text)
        await self._write(partial(self._journal.record_result, self.turn_id, *SHOWN_STEP, record))

    async def abandon(self) -> None:
        """Record that the runner has left while a write is in flight."""
        await self._write(partial(self._journal.abandon, self.turn_id))

    async def end(self, response: StoredResponse | None) -> None:
        """Record the turn's answer, or with None that it failed."""
        self._finish_replay()
        if response is not None:  # with which the journal deletes all steps
            async with self._writing:
                self._unwritten.clear()
        await self._write(partial(self._journal.end, self.turn_id, response))

    async def mark_delivered(self) -> None:
        """Record that the whole answer has left the process."""
        await self._write(partial(self._journal.mark_delivered, self.turn_id))

    async def _record(self, round_number: int) -> bytes | None:
        if self._attempt != "resumed":
            return None
        try:
            return await self._journal.response(self.turn_id, round_number)
        except StoreError as error:
            self._report(error)
            return None

    async def _call_record(
        self, round_number: int, place: int, call: ToolCall
    ) -> ToolResult | InFlight | None:
        if self._attempt != "resumed":
            return None
        record = await self._journal.call_record(self.turn_id, round_number, place)
        return None if record is None else _decode_result(record, call)

    async def _record_intent(self, round_number: int, place: int) -> None:
        """Record that a call is about to be sent. Raise ``StoreError`` if it must not be."""
        if self._attempt == "journal_unavailable":
            raise StoreError(_NOT_ENTERED)
        async with self._writing:
            await self._write_pending()
            await self._journal.record_intent(self.turn_id, round_number, place, _SENT)

    async def _write(self, step: _Step) -> None:
        """Write a step, if the journal has this turn.

        Nothing is written of a turn that could not be entered.
        """
        if self._attempt == "journal_unavailable":
            return

        async with self._writing:
            self._unwritten.append(step)
            try:
                await self._write_pending()
            except StoreError as error:
                self._report(error)

    async def _write_pending(self) -> None:
        while self._unwritten:
            await self._unwritten[0]()
            self._unwritten.popleft()

    def _finish_replay(self) -> None:
        """Report what was replayed: every step from here on is new."""
        on_resumed, self._on_resumed = self._on_resumed, None
        if on_resumed is not None:
            on_resumed(self._stats)

    def _report(self, error: StoreError) -> None:
        # These were reported when the turn was looked for.
        if isinstance(error, StateUnavailableError) or self._attempt == "journal_unavailable":
            return

        on_failure, self._on_failure = self._on_failure, None
        if on_failure is not None:
            on_failure(str(error))


def _may_write(call: ToolCall) -> bool:
    return call.tool is None or call.tool.effect != "read"
