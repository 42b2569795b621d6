"""One turn's pages of the journal: what it did before is played, what it does now is written (spec/mediation.md section 5).

of a call             known            the journal can't be written
────────────────────  ───────────────  ──────────────────────────────────────────
that only reads       its answer       it runs
that may write        its answer;      it does not run: nothing would keep it from
on its way: not  running twice (nor where
run again, and   it could not be read)
said so
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from claw_mediate import result
from claw_mediate.io.journaling import Attempt, Given, Journal, OnItsWay
from claw_mediate.model import Answer, Call, Reply
from claw_state.place import StoreError

_SETTLED = 0
"""The round before the first, whose page says what is paid for."""


class Tape:
    """The pages of a turn. ``failed`` is told, once, that the journal can't be used."""

    def __init__(self, journal: Journal, turn_id: str, failed: Callable[[str], None], attempt: Attempt) -> None:
        self._journal = journal
        self.turn_id = turn_id
        self._failed: Callable[[str], None] | None = failed
        self._attempt = attempt
        self._forgotten = False
        """Whether a reply could not be written: what it leads to would not be found again."""

    async def reply(self, round_number: int) -> bytes | None:
        """What the model said in this round, in an earlier attempt."""
        if self._attempt != "resumed":
            return None
        try:
            return await self._journal.reply(self.turn_id, round_number)
        except StoreError as error:
            self._tell(error)
            return None

    async def marked(self, round_number: int, reply: Reply) -> Reply:
        """What the model said in an earlier attempt, where that is known of its calls: they are not judged again."""
        try:
            known = [await self._known(round_number, place, call) for place, call in enumerate(reply.calls)]
        except StoreError as error:
            self._tell(error)
            return reply
        pairs = zip(reply.calls, known, strict=True)
        return replace(reply, calls=tuple(replace(call, sent=told is not None) for call, told in pairs))

    async def replied(self, round_number: int, body: bytes) -> None:
        if not await self._write(self._journal.replied, round_number, body):
            self._forgotten = True

    async def call(self, round_number: int, place: int, call: Call, run: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to a call: what is known of it, or what running it brings."""
        writes = call.tool is None or call.tool.effect != "read"
        try:
            known = await self._known(round_number, place, call)
            if isinstance(known, Answer):
                return replace(known, replayed=True)
            if writes and known is not None:
                return result.outcome_unknown(call)
            if writes and (self._attempt == "unknown" or self._forgotten):
                return result.not_noted(call)
            if writes:
                await self._journal.intends(self.turn_id, round_number, place)
        except StoreError as error:
            self._tell(error)
            if writes:
                return result.not_noted(call)
        answer = await run()
        await self._write(self._journal.answered, round_number, place, answer)
        return answer

    async def settled(self) -> int:
        """How many replies of earlier attempts are paid for."""
        return int(await self.reply(_SETTLED) or 0)

    async def settles(self, replies: int) -> None:
        """So many replies are paid for, those of earlier attempts among them."""
        await self.replied(_SETTLED, b"%d" % replies)

    async def ended(self, given: Given | None) -> None:
        await self._write(self._journal.ended, given)

    async def handed(self) -> None:
        """The whole answer went to the runner's connection."""
        await self._write(self._journal.handed)

    async def _known(self, round_number: int, place: int, call: Call) -> Answer | OnItsWay | None:
        return (
            await self._journal.answer(self.turn_id, round_number, place, call) if self._attempt == "resumed" else None
        )

    async def _write[*T](self, page: Callable[[str, *T], Awaitable[None]], *what: *T) -> bool:
        """Where the journal has this turn; of one that could not be entered nothing is written. Whether it was."""
        if self._attempt == "unknown":
            return False
        try:
            await page(self.turn_id, *what)
        except StoreError as error:
            self._tell(error)
            return False
        return True

    def _tell(self, error: StoreError) -> None:
        tell, self._failed = self._failed, None
        if tell is not None:
            tell(str(error))
