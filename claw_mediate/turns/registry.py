"""The turns that run now: each is started with its ports and its checkpoint, joined by retries, and
ended with the proxy.
"""

import asyncio
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from claw_contract.history import UsageRecord
from claw_mediate.core import tool_result
from claw_mediate.core.continuity import EMPTY_TEXT_KEY
from claw_mediate.core.http import GONE, RETRY_AFTER, STOPPING, RunnerResponse, build_error_body
from claw_mediate.core.observer import TurnObserver
from claw_mediate.core.turn import turn
from claw_mediate.core.types import (
    Deliver,
    ModelResponse,
    Outcome,
    Refuse,
    Round,
    ToolCall,
    ToolResult,
    TurnGenerator,
    add_usage,
    runner_usage,
)
from claw_mediate.http.large_bodies import compute
from claw_mediate.providers.failover import ModelCall, ModelResult, ProviderFailover
from claw_mediate.settings import Pace
from claw_mediate.telemetry.event_log import now_rfc3339
from claw_mediate.tools.executor import ToolExecutor
from claw_mediate.tools.managed_call import CallContext
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_mediate.turns.context import TurnContext, TurnResult
from claw_mediate.turns.continuity import Continuity
from claw_mediate.turns.driver import Ports, TurnDriver, drive
from claw_mediate.turns.kept.ownership import Ownership
from claw_mediate.turns.kept.provider_objects import ProviderObjects
from claw_mediate.turns.kept.records import describe_delivered, marks_of
from claw_mediate.turns.recorder import Recorder
from claw_mediate.turns.replayable import ReplayableReasoning
from claw_mediate.turns.response import StreamedTurn, json_response, sse_response
from claw_state.continuity import Anchor
from claw_state.journal import Journal, StoredResponse
from claw_state.lease import LEASE_SECONDS
from claw_state.url import StoreError

_MEDIA_TYPE = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


class Memory(NamedTuple):
    """The memory of turns, for later requests."""

    continuity: Continuity
    ownership: Ownership
    objects: ProviderObjects


class TurnRun:
    def __init__(
        self, context: TurnContext, driver: TurnDriver, recorder: Recorder, memory: Memory
    ) -> None:
        self._context = context
        self._driver = driver
        self._recorder = recorder
        self._continuity, self._ownership, self._objects = memory
        self._started = time.monotonic()
        self._billed = 0  # Model responses that are paid for, by earlier attempts or by this one

    async def run(self, checkpoint: TurnCheckpoint) -> TurnResult:
        """Run the turn to its end.

        If cancelled, because the runner left, record what ran all the same.
        """
        self._billed = billed_before = await checkpoint.billed_responses()
        try:
            result = await self._run()
        except asyncio.CancelledError:
            await self._end_failed(checkpoint, billed_before)
            raise
        if result.ok:
            await checkpoint.end(StoredResponse(result.status, result.content_type, result.body))
        else:
            await self._end_failed(checkpoint, billed_before)
        return result

    async def _end_failed(self, checkpoint: TurnCheckpoint, billed_before: int) -> None:
        """End the turn without an answer.

        What it has paid for, a later attempt does not pay for again.
        """
        if self._billed > billed_before:
            await checkpoint.record_billed(self._billed)
        await checkpoint.end(None)

    def _work(self) -> dict[str, Any]:
        """Return what a turn that did not end by itself has done and used: members
        of its ``Refuse``.
        """
        return {"rounds": self._driver.partial_rounds(), "usage": self._driver.usage()}

    async def _run(self) -> TurnResult:
        outcome: Outcome | None = None
        try:
            outcome = await drive(self._play(), self._driver)
            result = await self._end(outcome)
        except asyncio.CancelledError:
            if self._driver.is_stopping:
                outcome = Refuse(503, *STOPPING, **self._work())
                result = replace(await self._end(outcome), retry_after=RETRY_AFTER)
                self._record(outcome, result)
                return result
            left = Refuse(GONE, "runner_left", "the runner closed its connection", **self._work())
            self._record(left, TurnResult(GONE, ok=False, code=left.code))
            await self._settle(left)
            await self._remember_unanswered(left)
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours: it is recorded with what ran, and the stream reports it
            self._recorder.log_fault(self._context, error)
            outcome = Refuse(502, "internal_error", "the proxy failed in this turn", **self._work())
            result = await self._end(outcome)
        self._record(outcome, result)
        return result

    def _play(self) -> TurnGenerator[Outcome]:
        context = self._context
        return turn(
            context.agent.limits, self._driver.now(), keeps_rounds=context.view.keeps_rounds
        )

    async def _save_given(self, outcome: Outcome) -> None:
        """Save whose the objects are that the model's own tools opened and made in
        this turn, also in hidden rounds.
        """
        context, shape = self._context, self._context.dialect.ANSWER_SHAPE
        last = [outcome.response.body] if isinstance(outcome, Deliver) else []
        documents = [*(past.response.body for past in outcome.rounds), *last]
        await self._objects.save_given(
            context.agent, documents, shape, context.provider, context.route.key_label
        )

    async def _end(self, outcome: Outcome) -> TurnResult:
        context = self._context
        await self._save_given(outcome)
        if isinstance(outcome, Deliver):
            anchor = await self._remember(outcome)
            await self._settle(outcome, marks_of([anchor]))
            if (
                context.view.uses_functions
                and len(outcome.response.calls) > 1
                and not outcome.terminal
            ):
                self._recorder.log_intervention(context, "legacy_function_calls_serialized")
            usage = runner_usage(outcome.usage)
            write = partial(
                context.dialect.write_response,
                outcome.response,
                context.view,
                usage,
                terminal=outcome.terminal,
            )
            body = await compute(len(context.view.body), write)
            body = context.redactor.document(body)
            kept = describe_delivered(context, outcome, anchor, body)
            if kept is not None:
                await self._ownership.save(context.agent, kept)
            return TurnResult(
                200, ok=True, body=body, kept=kept, headers=self._shown(outcome.response.headers)
            )
        await self._settle(outcome)
        await self._remember_unanswered(outcome)
        failure = outcome.failure
        retry_after = _valid(_SECONDS, failure.retry_after) if failure is not None else ""
        if failure is not None and failure.body:
            body = self._without_names(context.redactor.document(failure.body))
            media_type = (
                _valid(_MEDIA_TYPE, failure.content_type.partition(";")[0])
                or "application/octet-stream"
            )
            result = TurnResult(failure.status, False, body, media_type, outcome.code, retry_after)
            return replace(result, headers=self._shown(failure.headers))
        body = build_error_body(context.request.path, outcome.status, outcome.code, outcome.message)
        body = self._without_names(context.redactor.document(body))
        return TurnResult(
            outcome.status, ok=False, body=body, code=outcome.code, retry_after=retry_after
        )

    def _without_names(self, error: bytes) -> bytes:
        """Return an error without the names of managed tools: a provider tells
        whose schema it refuses.
        """
        catalog, shown = self._context.catalog, error
        for name in sorted(catalog.managed.keys() - catalog.native, key=len, reverse=True):
            shown = shown.replace(name.encode(), b"managed_tool")
        if shown != error:
            self._recorder.log_intervention(self._context, "managed_names_removed")
        return shown

    def _shown(self, headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple((name, self._context.redactor.text(value)) for name, value in headers)

    async def _settle(self, outcome: Outcome, marks: Collection[str] = ()) -> None:
        """Record what the turn leaves unanswered in a conversation that the
        provider keeps; ``marks``: of its answer.
        """
        context = self._context
        if context.conversation is not None:
            await context.conversation.note_end(outcome, self._driver.last_round(), marks)
            if any(map(_could_leave, outcome.rounds)):
                self._recorder.log_intervention(context, "conversation_keeps_rounds")

    async def _remember(self, outcome: Deliver) -> Anchor:
        context = self._context
        hidden = context.dialect.write_hidden_rounds(outcome.rounds, replayed=True)
        for loss in context.dialect.REPLAY_RULES.find_losses(outcome.rounds, replayed=True):
            self._recorder.log_intervention(context, loss)
        anchor = context.dialect.response_anchor(
            outcome.response, context.view, terminal=outcome.terminal
        )
        await self._continuity.remember(context, anchor, hidden)
        return anchor

    async def _remember_unanswered(self, outcome: Refuse) -> None:
        """Store what a failed turn did where its answer would stand: the runner may
        go on behind it.
        """
        context = self._context
        hidden = context.dialect.write_hidden_rounds(outcome.rounds, replayed=True)
        await self._continuity.remember(
            context, Anchor(EMPTY_TEXT_KEY, context.view.evidence.before), hidden
        )

    def _record(self, outcome: Outcome, result: TurnResult) -> None:
        latency_ms = round((time.monotonic() - self._started) * 1000)
        unbilled = outcome.usage[self._billed :]
        calls, self._billed = len(unbilled), self._billed + len(unbilled)
        try:
            usage = self._recorder.bill(self._context, add_usage(unbilled), calls, result.status)
        except Exception as error:  # noqa: BLE001 - a provider's odd numbers cost neither the answer nor the line of history
            self._recorder.log_fault(self._context, error)
            usage = UsageRecord(total_rounds=calls)
        self._recorder.record_turn(
            self._context, replace(result, latency_ms=latency_ms), outcome.rounds, usage
        )


def _could_leave(past: Round) -> bool:
    """Return whether a round holds what is left out of later requests elsewhere:
    advice for one turn, or a runner's call.
    """
    return any(
        result.code in tool_result.NOT_REINJECTED or result.call.owner == "native"
        for result in past.results
    )


def _valid(pattern: re.Pattern[str], header: str) -> str:
    """Return a header's value if it has the right form, else ""; a provider can say
    anything in it.
    """
    return header.strip() if pattern.fullmatch(header.strip()) else ""


# The time that cancelled turns have for writes in flight, which may take longer than a stop can
# wait
_GRACE_SECONDS = 1.5


class Peers(NamedTuple):
    """The two sides that a mediator talks to, and the clock by which turns are measured."""

    upstream: ProviderFailover
    services: ToolExecutor
    now: Callable[[], float] = time.monotonic


@dataclass
class RunningTurn:
    """A turn that has not ended, and the number of runners that wait for it."""

    context: TurnContext
    driver: TurnDriver
    task: asyncio.Task[TurnResult]
    checkpoint: TurnCheckpoint
    waiting: int = 0

    def disconnect(self) -> None:
        """Count one runner less; cancel the turn when it was the last."""
        self.waiting -= 1
        if self.waiting == 0:
            self.task.cancel()


class TurnRegistry:
    """All turns of one mediator that have not ended."""

    def __init__(self, peers: Peers, recorder: Recorder, memory: Memory, journal: Journal) -> None:
        self._peers = peers
        self._recorder = recorder
        self._memory = memory
        self.journal = journal
        self._reasoning = ReplayableReasoning()
        self._turns: dict[tuple[str, str], RunningTurn] = {}
        self._heartbeat: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._turns)

    def find(self, agent_id: str, fingerprint: str) -> RunningTurn | None:
        """Return the running turn of an equal request, if there is one."""
        return self._turns.get((agent_id, fingerprint))

    def find_in(self, agent_id: str, conversation: str) -> RunningTurn | None:
        """Return a running turn of a conversation that the provider keeps, if there is one."""
        running = (turn for (owner, _), turn in self._turns.items() if owner == agent_id)
        return next(
            (turn for turn in running if turn.context.view.conversation == conversation), None
        )

    def start(self, context: TurnContext) -> RunningTurn:
        self._recorder.log_request(context, len(context.catalog.offered))
        if context.admission is not None:
            context.admission.is_under_way = True
        checkpoint = TurnCheckpoint(
            self.journal,
            context.turn_id,
            lambda reason: self._recorder.log_journal_failure(context, reason),
            context.attempt,
            lambda stats: self._recorder.log_resume(context, stats),
        )
        driver = TurnDriver(
            context.dialect, context.catalog, context.requests, self._ports(context), checkpoint
        )
        run = TurnRun(context, driver, self._recorder, self._memory)
        key = (context.agent.id, context.fingerprint)
        turn = RunningTurn(context, driver, asyncio.ensure_future(run.run(checkpoint)), checkpoint)
        self._turns[key] = turn
        turn.task.add_done_callback(lambda _: self._turns.pop(key, None))
        if self._heartbeat is None or self._heartbeat.done():
            self._heartbeat = asyncio.ensure_future(self._renew_leases())
        return turn

    async def abandon(self, turn_id: str) -> None:
        """End in the journal a turn that was entered there and does not start."""
        with suppress(StoreError):
            await self.journal.end(turn_id, None)

    async def attend(self, turn: RunningTurn, pace: Pace) -> RunnerResponse:
        """Return the answer of a running turn, for one more runner."""
        turn.waiting += 1
        try:
            if turn.context.view.stream:
                save = partial(self._memory.ownership.save, turn.context.agent)
                streamed = StreamedTurn(turn.context, turn.driver.progress, turn.task, save)
                exchange = await sse_response(streamed, pace, on_disconnect=turn.disconnect)
            else:
                exchange = await json_response(turn.task)
        except asyncio.CancelledError:
            turn.disconnect()
            raise
        return replace(
            exchange, on_delivered=turn.checkpoint.mark_delivered, answer_of=turn.context.turn_id
        )

    async def finish(self, seconds: float) -> None:
        """Let running turns end for ``seconds``, then cancel them, and then what
        they wait for too.
        """
        turns = list(self._turns.values())
        if turns:
            await asyncio.wait([turn.task for turn in turns], timeout=max(seconds, 0))
        for grace in (_GRACE_SECONDS, _GRACE_SECONDS / 2):
            running = [turn for turn in turns if not turn.task.done()]
            for cancelled in running:
                cancelled.driver.is_stopping = True
                cancelled.task.cancel()
            if running:
                await asyncio.wait([turn.task for turn in running], timeout=grace)
        if self._heartbeat is not None:
            self._heartbeat.cancel()

    async def _renew_leases(self) -> None:
        while self._turns:
            await asyncio.sleep(LEASE_SECONDS / 4)
            try:
                await self.journal.renew_leases(
                    [turn.context.turn_id for turn in self._turns.values()]
                )
            except StoreError:
                continue  # the turns themselves report it

    def _ports(self, context: TurnContext) -> Ports:
        onlooker = TurnObserver(
            context.request.observer, context.turn_id, context.agent.id, context.redactor
        )
        caller = CallContext(context.agent, context.turn_id, context.redactor, onlooker)

        async def model(call: ModelCall) -> ModelResult:
            # What a provider echoes must reach neither a service, as an argument, nor the next
            # provider.
            redacted = replace(call, read=lambda body: call.read(context.redactor.document(body)))
            return await self._recorder.note_model_calls(
                context, redacted, partial(self._peers.upstream.post, context.route)
            )

        async def tools(call: ToolCall, key: str, seconds: float) -> ToolResult:
            started = now_rfc3339()
            with context.route.stopwatch.waiting():
                result = await self._peers.services.call(caller, call, key, seconds)
            return replace(result, started=started)

        async def note_progress(response: ModelResponse, results: Sequence[ToolResult]) -> None:
            if context.conversation is not None:
                await context.conversation.note_progress(response, results)

        report = partial(self._recorder.log_intervention, context)
        return Ports(
            model, tools, self._peers.now, onlooker, note_progress, self._reasoning, report
        )
