"""One mediated turn to its end: driven, remembered for the conversation, billed and recorded.

Whatever happens, exactly one line of history is written for the turn, with what ran.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace

from claw_contract.history import UsageRecord
from claw_mediate.core.continuity import EMPTY_TEXT_KEY
from claw_mediate.core.error_bodies import build_error_body
from claw_mediate.core.http import GONE, RETRY_AFTER, STOPPING
from claw_mediate.core.turn import turn
from claw_mediate.core.types import Deliver, Outcome, Refuse, add_usage, runner_usage
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_mediate.turns.context import TurnContext, TurnResult
from claw_mediate.turns.continuity import Continuity
from claw_mediate.turns.driver import TurnDriver, drive
from claw_mediate.turns.recorder import Recorder
from claw_state.continuity import Anchor
from claw_state.journal import StoredResponse

_MEDIA_TYPE = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


class TurnRun:
    def __init__(self, context: TurnContext, driver: TurnDriver, recorder: Recorder, continuity: Continuity) -> None:
        self._context = context
        self._driver = driver
        self._recorder = recorder
        self._continuity = continuity
        self._started = time.monotonic()
        self._billed = 0  # Model responses that are paid for, by earlier attempts or by this one

    async def run(self, checkpoint: TurnCheckpoint) -> TurnResult:
        """Run the turn to its end. If cancelled, because the runner left, record what ran all the same."""
        self._billed = billed_before = await checkpoint.billed_responses()
        try:
            result = await self._run()
        except asyncio.CancelledError:
            await checkpoint.end(None)
            raise
        if not result.ok and self._billed > billed_before:
            await checkpoint.record_billed(self._billed)
        await checkpoint.end(StoredResponse(result.status, result.content_type, result.body) if result.ok else None)
        return result

    async def _run(self) -> TurnResult:
        outcome: Outcome | None = None
        try:
            outcome = await drive(turn(self._context.agent.limits, self._driver.now()), self._driver)
            result = await self._end(outcome)
        except asyncio.CancelledError:
            if self._driver.is_stopping:
                outcome = Refuse(503, *STOPPING, self._driver.partial_rounds())
                result = replace(await self._end(outcome), retry_after=RETRY_AFTER)
                self._record(outcome, result)
                return result
            left = Refuse(GONE, "runner_left", "the runner closed its connection", self._driver.partial_rounds())
            self._record(left, TurnResult(GONE, ok=False, code=left.code))
            await self._remember_unanswered(left)
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours: it is recorded with what ran, and the stream reports it
            self._recorder.log_fault(self._context, error)
            outcome = Refuse(502, "internal_error", "the proxy failed in this turn", self._driver.partial_rounds())
            result = await self._end(outcome)
        self._record(outcome, result)
        return result

    async def _end(self, outcome: Outcome) -> TurnResult:
        context = self._context
        if isinstance(outcome, Deliver):
            await self._remember(outcome)
            if context.view.uses_functions and len(outcome.response.calls) > 1 and not outcome.terminal:
                self._recorder.log_intervention(context, "legacy_function_calls_serialized")
            usage = runner_usage(outcome.usage)
            body = context.dialect.write_response(outcome.response, context.view, usage, terminal=outcome.terminal)
            return TurnResult(200, ok=True, body=context.redactor.document(body))
        await self._remember_unanswered(outcome)
        failure = outcome.failure
        retry_after = _valid(_SECONDS, failure.retry_after) if failure is not None else ""
        if failure is not None and failure.body:
            body = context.redactor.document(failure.body)
            media_type = _valid(_MEDIA_TYPE, failure.content_type.partition(";")[0]) or "application/octet-stream"
            return TurnResult(failure.status, False, body, media_type, outcome.code, retry_after)
        body = build_error_body(context.request.path, outcome.status, outcome.code, outcome.message)
        body = context.redactor.document(body)
        return TurnResult(outcome.status, ok=False, body=body, code=outcome.code, retry_after=retry_after)

    async def _remember(self, outcome: Deliver) -> None:
        """Store the hidden rounds under the anchor of the message that they led to."""
        context = self._context
        hidden = context.dialect.write_hidden_rounds(outcome.rounds, replayed=True)
        anchor = context.dialect.response_anchor(outcome.response, context.view, terminal=outcome.terminal)
        await self._continuity.remember(context, anchor, hidden)

    async def _remember_unanswered(self, outcome: Refuse) -> None:
        """Store what a failed turn did where its answer would stand: the runner may go on behind it."""
        context = self._context
        hidden = context.dialect.write_hidden_rounds(outcome.rounds, replayed=True)
        await self._continuity.remember(context, Anchor(EMPTY_TEXT_KEY, context.view.evidence.before), hidden)

    def _record(self, outcome: Outcome, result: TurnResult) -> None:
        latency_ms = round((time.monotonic() - self._started) * 1000)
        unbilled = outcome.usage[self._billed :]
        calls, self._billed = len(unbilled), self._billed + len(unbilled)
        try:
            usage = self._recorder.bill(self._context, add_usage(unbilled), calls, result.status)
        except Exception as error:  # noqa: BLE001 - a provider's odd numbers cost neither the answer nor the line of history
            self._recorder.log_fault(self._context, error)
            usage = UsageRecord(total_rounds=calls)
        self._recorder.record_turn(self._context, replace(result, latency_ms=latency_ms), outcome.rounds, usage)


def _valid(pattern: re.Pattern[str], header: str) -> str:
    """Return a header's value if it has the right form, else ""; a provider can say anything in it."""
    return header.strip() if pattern.fullmatch(header.strip()) else ""
