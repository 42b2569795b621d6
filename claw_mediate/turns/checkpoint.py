"""One turn's pages of the journal: what it did before is played, what it does now is written (spec/mediation.md section 5).

of a call             known            the journal can't be written
────────────────────  ───────────────  ──────────────────────────────────────────
that only reads       its answer       it runs
that may write        its answer;      it does not run: nothing would keep it from
                      on its way: not  running twice (nor where it could not be
                      run again, and   read)
                      said so

A page that could not be written is written before the next one, or none is: what the model has been told is found again as it
was told, or is not known at all. Also that a call was not made: a resumed turn must not make it behind the model's back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from claw_mediate.core import tool_result
from claw_mediate.core.types import ModelResponse, ToolCall, ToolResult
from claw_state.health import StateUnavailableError
from claw_state.journal import Attempt, Journal, StoredResponse
from claw_state.url import StoreError

_SETTLED = 0
"""The round before the first, whose page says what is paid for."""
_NOT_ENTERED = "this turn is not in the journal"
type _Page = Callable[[], Awaitable[None]]


class _CallRecord(msgspec.Struct, array_like=True):
    """A call as the journal holds it; without content it was sent, and its result is not known."""

    content: bytes | None = None
    ok: bool = False
    code: str | None = None
    status_code: int | None = None
    latency_ms: int = 0
    ran: bool = False


@dataclass(frozen=True, slots=True)
class InFlight:
    """A call that was sent, and whose result is not known."""


_SENT = msgspec.msgpack.encode(_CallRecord())
"""The record of a call that is about to be sent."""


def _encode_answer(answer: ToolResult) -> bytes:
    record = _CallRecord(answer.content, answer.ok, answer.code, answer.status_code, answer.latency_ms, answer.ran)
    return msgspec.msgpack.encode(record)


def _decode_answer(record: bytes, call: ToolCall) -> ToolResult | InFlight:
    """Return what a record says of a call. Raise ``StoreError`` for one that can't be read."""
    try:
        kept = msgspec.msgpack.decode(record, type=_CallRecord)
    except msgspec.DecodeError as error:
        raise StoreError(f"what is kept of a call can't be read: {error}") from error
    if kept.content is None:
        return InFlight()
    return ToolResult(call, kept.content, kept.ok, kept.code, kept.status_code, kept.latency_ms, kept.ran)


@dataclass(slots=True)
class ReplayStats:
    """What an earlier attempt did, and this one does not do again: replies of the model, calls whose results are known, and
    calls whose outcome is not.
    """

    replies: int = 0
    calls: int = 0
    unknown: int = 0


class TurnCheckpoint:
    """The pages of a turn. ``failed`` is told, once, that the journal can't be used; ``resumed``, once, what was played of an
    earlier attempt, when all of it was.
    """

    def __init__(
        self,
        journal: Journal,
        turn_id: str,
        failed: Callable[[str], None],
        attempt: Attempt,
        resumed: Callable[[ReplayStats], None] = lambda _: None,
    ) -> None:
        self._journal = journal
        self.turn_id = turn_id
        self._failed: Callable[[str], None] | None = failed
        self._resumed: Callable[[ReplayStats], None] | None = resumed if attempt == "resumed" else None
        self._played = ReplayStats()
        self._attempt = attempt
        self._unwritten: deque[_Page] = deque()
        """What could not be written yet, in order: a later page without it would tell of another turn."""
        self._writing = asyncio.Lock()

    async def reply(self, round_number: int) -> bytes | None:
        """What the model said in this round, in an earlier attempt."""
        known = await self._page(round_number)
        if known is None:
            self._goes_on()
        else:
            self._played.replies += 1
        return known

    async def _page(self, round_number: int) -> bytes | None:
        if self._attempt != "resumed":
            return None
        try:
            return await self._journal.response(self.turn_id, round_number)
        except StoreError as error:
            self._tell(error)
            return None

    def _goes_on(self) -> None:
        """What comes now was not done before."""
        tell, self._resumed = self._resumed, None
        if tell is not None:
            tell(self._played)

    async def marked(self, round_number: int, reply: ModelResponse) -> ModelResponse:
        """What the model said in an earlier attempt, where that is known of its calls: they are not judged again."""
        try:
            known = [await self._known(round_number, place, call) for place, call in enumerate(reply.calls)]
        except StoreError as error:
            self._tell(error)
            return reply
        pairs = zip(reply.calls, known, strict=True)
        return replace(reply, calls=tuple(replace(call, sent=told is not None) for call, told in pairs))

    async def replied(self, round_number: int, body: bytes) -> None:
        await self._write(partial(self._journal.record_response, self.turn_id, round_number, body))

    async def call(
        self, round_number: int, place: int, call: ToolCall, run: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """The answer to a call: what is known of it, or what running it brings."""
        answered = partial(self._journal.record_result, self.turn_id, round_number, place)
        try:
            known = await self._known(round_number, place, call)
            if isinstance(known, ToolResult):
                self._played.calls += known.ran
                return replace(known, replayed=True)
            if _may_write(call) and known is not None:
                self._played.unknown += 1
                return tool_result.outcome_unknown(call)
            if _may_write(call):
                await self._intends(round_number, place)
        except StoreError as error:
            self._tell(error)
            if _may_write(call):
                refused = tool_result.not_noted(call)
                await self._write(partial(answered, _encode_answer(refused)))
                return refused
        answer = await run()
        await self._write(partial(answered, _encode_answer(answer)))
        return answer

    async def not_made(self, round_number: int, place: int, answer: ToolResult) -> None:
        """What the model is told of a call that was settled without being made: another attempt must not make it."""
        if _may_write(answer.call) and not answer.call.sent:
            await self._write(
                partial(self._journal.record_result, self.turn_id, round_number, place, _encode_answer(answer))
            )

    async def settled(self) -> int:
        """How many replies of earlier attempts are paid for."""
        return int(await self._page(_SETTLED) or 0)

    async def settles(self, replies: int) -> None:
        """So many replies are paid for, those of earlier attempts among them."""
        await self.replied(_SETTLED, b"%d" % replies)

    async def abandoned(self) -> None:
        """The runner has left while a write is on its way."""
        await self._write(partial(self._journal.abandon, self.turn_id))

    async def ended(self, given: StoredResponse | None) -> None:
        self._goes_on()
        await self._write(partial(self._journal.end, self.turn_id, given))

    async def handed(self) -> None:
        """The whole answer went to the runner's connection."""
        await self._write(partial(self._journal.mark_delivered, self.turn_id))

    async def _known(self, round_number: int, place: int, call: ToolCall) -> ToolResult | InFlight | None:
        if self._attempt != "resumed":
            return None
        record = await self._journal.call_record(self.turn_id, round_number, place)
        return None if record is None else _decode_answer(record, call)

    async def _intends(self, round_number: int, place: int) -> None:
        """Raises ``StoreError`` where the call must not be made."""
        if self._attempt == "unknown":
            raise StoreError(_NOT_ENTERED)
        async with self._writing:
            await self._catch_up()
            await self._journal.record_intent(self.turn_id, round_number, place, _SENT)

    async def _write(self, page: _Page) -> None:
        """Where the journal has this turn; of one that could not be entered nothing is written."""
        if self._attempt == "unknown":
            return
        async with self._writing:
            self._unwritten.append(page)
            try:
                await self._catch_up()
            except StoreError as error:
                self._tell(error)

    async def _catch_up(self) -> None:
        while self._unwritten:
            await self._unwritten[0]()
            self._unwritten.popleft()

    def _tell(self, error: StoreError) -> None:
        if (
            isinstance(error, StateUnavailableError) or self._attempt == "unknown"
        ):  # of which it was told when it was looked for
            return
        tell, self._failed = self._failed, None
        if tell is not None:
            tell(str(error))


def _may_write(call: ToolCall) -> bool:
    return call.tool is None or call.tool.effect != "read"
