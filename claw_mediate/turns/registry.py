"""The turns that run now: each is started with its ports and its checkpoint, joined by retries, and ended with the proxy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from claw_mediate.core.http import RunnerResponse
from claw_mediate.core.observer import TurnObserver
from claw_mediate.core.types import ToolCall, ToolResult
from claw_mediate.providers.failover import ModelCall, ModelResult, ProviderFailover
from claw_mediate.settings import Pace
from claw_mediate.telemetry.event_log import now_rfc3339
from claw_mediate.tools.http import CallContext, HttpToolExecutor
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_mediate.turns.context import TurnContext, TurnResult
from claw_mediate.turns.continuity import Continuity
from claw_mediate.turns.driver import Ports, TurnDriver
from claw_mediate.turns.recorder import Recorder
from claw_mediate.turns.response import json_response, sse_response
from claw_mediate.turns.run import TurnRun
from claw_state.journal import Journal
from claw_state.lease import LEASE_SECONDS
from claw_state.url import StoreError

_GRACE_SECONDS = 1.5
"""The time that cancelled turns have for writes in flight, which may take longer than a stop can wait."""


class Peers(NamedTuple):
    """The two sides that a mediator talks to, and the clock by which turns are measured."""

    upstream: ProviderFailover
    services: HttpToolExecutor
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

    def __init__(self, peers: Peers, recorder: Recorder, continuity: Continuity, journal: Journal) -> None:
        self._peers = peers
        self._recorder = recorder
        self._continuity = continuity
        self.journal = journal
        self._turns: dict[tuple[str, str], RunningTurn] = {}
        self._heartbeat: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._turns)

    def find(self, agent_id: str, fingerprint: str) -> RunningTurn | None:
        """Return the running turn of an equal request, if there is one."""
        return self._turns.get((agent_id, fingerprint))

    def start(self, context: TurnContext) -> RunningTurn:
        self._recorder.log_request(context, len(context.catalog.offered))
        checkpoint = TurnCheckpoint(
            self.journal,
            context.turn_id,
            lambda reason: self._recorder.log_journal_failure(context, reason),
            context.attempt,
            lambda stats: self._recorder.log_resume(context, stats),
        )
        driver = TurnDriver(context.dialect, context.catalog, context.variants, self._ports(context), checkpoint)
        run = TurnRun(context, driver, self._recorder, self._continuity)
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
                exchange = await sse_response(
                    turn.context, turn.driver.progress, turn.task, pace, on_disconnect=turn.disconnect
                )
            else:
                exchange = await json_response(turn.task)
        except asyncio.CancelledError:
            turn.disconnect()
            raise
        return replace(exchange, on_delivered=turn.checkpoint.mark_delivered)

    async def finish(self, seconds: float) -> None:
        """Let running turns end for ``seconds``, then cancel them, and then what they wait for too."""
        turns = list(self._turns.values())
        if turns:
            await asyncio.wait([turn.task for turn in turns], timeout=max(seconds, 0))
        for grace in (_GRACE_SECONDS, _GRACE_SECONDS / 2):
            running = [turn for turn in turns if not turn.task.done()]
            for turn in running:
                turn.driver.is_stopping = True
                turn.task.cancel()
            if running:
                await asyncio.wait([turn.task for turn in running], timeout=grace)
        if self._heartbeat is not None:
            self._heartbeat.cancel()

    async def _renew_leases(self) -> None:
        """Show other processes that these turns are alive."""
        while self._turns:
            await asyncio.sleep(LEASE_SECONDS / 4)
            try:
                await self.journal.renew_leases([turn.context.turn_id for turn in self._turns.values()])
            except StoreError:
                continue  # the turns themselves report it

    def _ports(self, context: TurnContext) -> Ports:
        onlooker = TurnObserver(context.request.observer, context.turn_id, context.agent.id, context.redactor)
        caller = CallContext(context.agent, context.turn_id, context.redactor, onlooker)

        async def model(call: ModelCall) -> ModelResult:
            # What a provider echoes must reach neither a service, as an argument, nor the next provider.
            redacted = replace(call, read=lambda body: call.read(context.redactor.document(body)))
            return await self._peers.upstream.post(context.route, redacted)

        async def tools(call: ToolCall, key: str, seconds: float) -> ToolResult:
            started = now_rfc3339()
            with context.route.stopwatch.waiting():
                result = await self._peers.services.call(caller, call, key, seconds)
            return replace(result, started=started)

        return Ports(model, tools, self._peers.now, onlooker)
