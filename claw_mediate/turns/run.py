"""One running turn, from its start to its end.

It can be joined by retries. At its end, all that later requests need of it is stored before its
result is returned; a turn that fails or is left by its runner is recorded with what it did.
"""

import asyncio
import re
import time
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from msgspec.structs import replace

from claw_contract.history import UsageRecord
from claw_mediate.core import tool_result
from claw_mediate.core.http import GONE, RETRY_AFTER, STOPPING, build_error_body
from claw_mediate.core.turn import turn
from claw_mediate.core.types import (
    Deliver,
    Outcome,
    Refuse,
    Round,
    add_usage,
    runner_usage,
)
from claw_mediate.http.large_bodies import compute
from claw_mediate.turns.answer_stream import AnswerStream
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_mediate.turns.context import TurnContext, TurnResult
from claw_mediate.turns.driver import TurnDriver, drive
from claw_mediate.turns.kept.records import describe_delivered, marks_of
from claw_mediate.turns.ports import TurnParts
from claw_mediate.turns.turn_memory import TurnMemory
from claw_state.journal import StoredResponse

_MEDIA_TYPE = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


class RunningTurn:
    """A turn from its start to its end, and the number of runners that wait for it."""

    task: asyncio.Task[TurnResult]

    def __init__(
        self,
        context: TurnContext,
        driver: TurnDriver,
        checkpoint: TurnCheckpoint,
        parts: TurnParts,
        stream: AnswerStream | None,
    ) -> None:
        self.context = context
        self.driver = driver
        self.checkpoint = checkpoint
        self.stream = stream
        """The stream of the answer; None if the runner asked for none."""
        self.waiting = 0
        self._recorder = parts.recorder
        self._billing = parts.billing
        self._memory = TurnMemory(context, stream, parts)
        self._ownership, self._objects = parts.owners
        self._started = time.monotonic()
        self._billed = 0  # Model responses that are paid for, by earlier attempts or by this one

    def start(self) -> None:
        self.task = asyncio.ensure_future(self._run())

    def join(self) -> None:
        """Count one runner more."""
        self.waiting += 1

    def disconnect(self) -> None:
        """Count one runner less; cancel the turn when it was the last."""
        self.waiting -= 1
        if self.waiting == 0:
            self.task.cancel()

    async def _run(self) -> TurnResult:
        """Run the turn to its end.

        If cancelled, because the runner left, record what ran all the same.
        """
        self._billed = billed_before = await self.checkpoint.billed_responses()
        try:
            result = await self._play()
        except asyncio.CancelledError as error:
            await self._end_failed(billed_before)
            # The task keeps the error, whose traceback leads to this turn, and so to the task: all
            # of it would stay until the garbage collector comes (decision 0037).
            error.__traceback__ = None
            raise

        if result.ok:
            # Before the answer is recorded: a retry after kill -9 is given the record.
            await self._save_as_shown(result)
            response = StoredResponse(result.status, result.content_type, result.body)
            await self.checkpoint.end(response)
            await self._finish_stream(result)
        else:
            await self._end_failed(billed_before)
        return result

    async def _finish_stream(self, result: TurnResult) -> None:
        """End the stream of an answer: all that later requests need of it is stored."""
        stream = self.stream
        if stream is None:
            return
        if not self.context.view.is_live:
            stream.release(result.body, terminal=False)

        await self._save_as_shown(result)
        stream.finish()

    async def _save_as_shown(self, result: TurnResult) -> None:
        """Save the record of a response under the id that its runner has, too.

        The stream may have begun under another id: that of an earlier reply, or of a keepalive.
        """
        kept, stream = result.kept, self.stream
        if kept is None or stream is None:
            return

        saved = {kept.id}
        while unsaved := stream.readers.ids() - saved:  # A keepalive may come while this is saved.
            shown_id = unsaved.pop()
            await self._ownership.save(self.context.agent, replace(kept, id=shown_id))
            saved.add(shown_id)

    async def _end_failed(self, billed_before: int) -> None:
        """End the turn without an answer.

        What it has paid for, a later attempt does not pay for again.
        """
        billed = self._billed - self.driver.unrecorded_responses
        if billed > billed_before:
            await self.checkpoint.record_billed(billed)
        if self.stream is not None and self.stream.shown.has_content:
            held = self.context.held
            await self.checkpoint.record_shown(held + self.stream.shown.text(held))
        await self.checkpoint.end(None)

    async def _play(self) -> TurnResult:
        """Return the turn's result, after it was recorded."""
        context = self.context
        commands = turn(
            context.agent.limits, self.driver.now(), keeps_rounds=context.view.keeps_rounds
        )
        outcome: Outcome
        try:
            outcome = await drive(commands, self.driver)
            result = await self._end(outcome)
        except asyncio.CancelledError:
            if not self.driver.is_stopping:
                await self._end_without_runner()
                raise
            outcome = Refuse(503, *STOPPING, **self._work())
            is_cut = self.stream is not None and self.stream.shown.has_content
            ended = await self._end(outcome)
            result = replace(ended, retry_after=RETRY_AFTER, is_cut=is_cut)
        except Exception as error:  # noqa: BLE001 - a fault of ours: it is recorded with what ran, and the stream reports it
            self._recorder.log_fault(context, error)
            outcome = Refuse(502, "internal_error", "the proxy failed in this turn", **self._work())
            result = await self._end(outcome)

        if result.is_cut and self.stream is not None:
            self._recorder.log_live_cut(context, self.stream.place, result.code or "")
        self._record(outcome, result)
        return result

    async def _end_without_runner(self) -> None:
        message = "the runner closed its connection"
        outcome = Refuse(GONE, "runner_left", message, **self._work())
        self._record(outcome, TurnResult(GONE, ok=False, code=outcome.code))
        await self._settle(outcome)
        await self._memory.remember_unanswered(outcome)

    def _work(self) -> dict[str, Any]:
        """Return what a turn that did not end by itself has done and used.

        Those are members of its ``Refuse``.
        """
        return {"rounds": self.driver.partial_rounds(), "usage": self.driver.usage()}

    async def _end(self, outcome: Outcome) -> TurnResult:
        """Return the result of a turn, when all that later requests need of it is stored."""
        await self._save_given(outcome)
        if isinstance(outcome, Deliver):
            return await self._deliver(outcome)

        await self._settle(outcome)
        await self._memory.remember_unanswered(outcome)
        return self._refuse(outcome)

    async def _save_given(self, outcome: Outcome) -> None:
        """Save whose the objects are that the model's own tools opened and made in this turn.

        Those of hidden rounds are among them.
        """
        context, shape = self.context, self.context.dialect.answer_shape
        documents = [past.response.body for past in outcome.rounds]
        if isinstance(outcome, Deliver):
            documents.append(outcome.response.body)

        await self._objects.save_given(
            context.agent, documents, shape, context.provider, context.route.key_label
        )

    async def _deliver(self, outcome: Deliver) -> TurnResult:
        context, response = self.context, outcome.response
        has_several_calls = len(response.calls) > 1 and not outcome.terminal
        if context.view.uses_functions and has_several_calls:
            self._recorder.log_intervention(context, "legacy_function_calls_serialized")

        body = await self._write_answer(outcome)
        answer = body
        if self.stream is not None and context.view.is_live:
            # What waited for the verdict is shown at once, and the end when all is stored.
            self.stream.drop(outcome.rounds)
            self.stream.release(body, terminal=outcome.terminal, places=response.places)
            answer = self.stream.shown.answer(body)

        anchor = await self._memory.remember(outcome, body)
        is_joined = self.stream is not None and bool(self.stream.shown.rounds)
        await self._settle(outcome, marks_of([anchor]), answer if is_joined else b"")
        kept = describe_delivered(context, outcome, anchor, answer, is_joined=is_joined)
        if kept is not None:
            await self._ownership.save(context.agent, kept)
        headers = self._shown(response.headers)
        return TurnResult(200, ok=True, body=answer, kept=kept, headers=headers)

    async def _write_answer(self, outcome: Deliver) -> bytes:
        """Return the body of an answer as its runner may read it."""
        context = self.context
        usage = runner_usage(outcome.usage)
        write = partial(
            context.dialect.write_response,
            outcome.response,
            context.view,
            usage,
            terminal=outcome.terminal,
        )
        return context.redactor.document(await compute(len(context.view.body), write))

    def _refuse(self, outcome: Refuse) -> TurnResult:
        context, failure = self.context, outcome.failure
        retry_after = _valid(_SECONDS, failure.retry_after) if failure is not None else ""

        if failure is not None and failure.body:
            body = self._without_names(context.redactor.document(failure.body))
            media_type = _valid(_MEDIA_TYPE, failure.content_type.partition(";")[0])
            return TurnResult(
                failure.status,
                ok=False,
                body=body,
                content_type=media_type or "application/octet-stream",
                code=outcome.code,
                retry_after=retry_after,
                headers=self._shown(failure.headers),
            )

        body = build_error_body(context.request.path, outcome.status, outcome.code, outcome.message)
        body = self._without_names(context.redactor.document(body))
        return TurnResult(
            outcome.status,
            ok=False,
            body=body,
            code=outcome.code,
            retry_after=retry_after,
            is_cut=failure is not None and failure.is_cut,
        )

    def _without_names(self, error: bytes) -> bytes:
        """Return an error without the names of managed tools.

        A provider names the tool whose schema it refuses.
        """
        catalog, shown = self.context.catalog, error
        for name in sorted(catalog.managed.keys() - catalog.native, key=len, reverse=True):
            shown = shown.replace(name.encode(), b"managed_tool")

        if shown != error:
            self._recorder.log_intervention(self.context, "managed_names_removed")
        return shown

    def _shown(self, headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple((name, self.context.redactor.text(value)) for name, value in headers)

    async def _settle(
        self, outcome: Outcome, marks: Collection[str] = (), joined: bytes = b""
    ) -> None:
        """Record the results that a conversation of the provider's still waits for.

        ``marks``: of the turn's answer. ``joined``: the answer, if hidden rounds are shown in it.
        """
        conversation = self.context.conversation
        if conversation is None:
            return
        if isinstance(outcome, Refuse):
            joined = self._shown_items(outcome)

        await conversation.note_end(outcome, self.driver.last_round(), marks, joined)
        if any(map(_could_leave, outcome.rounds)):
            self._recorder.log_intervention(self.context, "conversation_keeps_rounds")

    def _shown_items(self, outcome: Refuse) -> bytes:
        """Return a body with all that a failed turn has shown; b"" if it has shown nothing."""
        stream = self.stream
        if stream is None or not stream.shown.has_content:
            return b""

        stream.drop(outcome.rounds)
        return stream.shown.answer(b"{}")

    def _record(self, outcome: Outcome, result: TurnResult) -> None:
        latency_ms = round((time.monotonic() - self._started) * 1000)
        unbilled = outcome.usage[self._billed :]
        self._billed += len(unbilled)
        # A reply without an end is in no journal: a later attempt asks for it, and pays, again.
        lost = self.driver.lost_usage()
        paid = (*unbilled, *lost)
        status = GONE if lost else result.status
        try:
            usage = self._billing.bill_turn(self.context, add_usage(paid), len(paid), status)
        except Exception as error:  # noqa: BLE001 - a provider's odd numbers cost neither the answer nor the line of history
            self._recorder.log_fault(self.context, error)
            usage = UsageRecord(total_rounds=len(paid))

        timed = replace(result, latency_ms=latency_ms)
        if self.stream is not None:
            timed = replace(timed, stream=self.stream.figures())
        if self.stream is not None and self.stream.shown.has_content and not result.ok:
            words = self.stream.shown.words().values()
            timed = replace(timed, shown="".join(each.text for each in words))
        self._recorder.record_turn(self.context, timed, outcome.rounds, usage)


def _could_leave(past: Round) -> bool:
    """Return whether a round holds what other requests leave out.

    That is advice for one turn, or a runner's call.
    """
    return any(
        result.code in tool_result.NOT_REINJECTED or result.call.owner == "native"
        for result in past.results
    )


def _valid(pattern: re.Pattern[str], header: str) -> str:
    """Return a header's value if it has the right form, else "".

    A provider can say anything in it.
    """
    return header.strip() if pattern.fullmatch(header.strip()) else ""
