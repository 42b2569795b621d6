"""The turns that run now.

Each is started with its ports and its checkpoint, joined by retries, and ended with the proxy.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from claw_mediate.core.observer import TurnObserver
from claw_mediate.core.types import (
    ModelResponse,
    ToolCall,
    ToolResult,
)
from claw_mediate.providers.failover import ModelCall, ModelResult
from claw_mediate.telemetry.event_log import now_rfc3339
from claw_mediate.tools.managed_call import CallContext
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_mediate.turns.context import TurnContext
from claw_mediate.turns.driver import TurnDriver
from claw_mediate.turns.ports import Ports, TurnParts
from claw_mediate.turns.provider_memory import ReplayableReasoning
from claw_mediate.turns.run import RunningTurn
from claw_state.lease import LEASE_SECONDS
from claw_state.url import StoreError

_GRACE_SECONDS = 1.5
"""The time that cancelled turns have for writes in flight.

A write may take longer than a stop can wait.
"""


class TurnRegistry:
    """All turns of one mediator that have not ended."""

    def __init__(self, parts: TurnParts) -> None:
        self._parts = parts
        self._peers = parts.peers
        self._recorder = parts.recorder
        self.journal = parts.journal
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
        for (owner, _), running in self._turns.items():
            if owner == agent_id and running.context.view.conversation == conversation:
                return running
        return None

    def start(self, context: TurnContext) -> RunningTurn:
        self._recorder.log_request(context, len(context.catalog.offered))
        if context.admission is not None:
            context.admission.is_under_way = True

        checkpoint = TurnCheckpoint(
            self.journal,
            context.turn_id,
            on_failure=lambda reason: self._recorder.log_journal_failure(context, reason),
            attempt=context.attempt,
            on_resumed=lambda stats: self._recorder.log_resume(context, stats),
        )
        driver = TurnDriver(context.dialect, context.prepared, self._ports(context), checkpoint)
        running = RunningTurn(context, driver, checkpoint, self._parts)
        running.start()

        key = (context.agent.id, context.fingerprint)
        self._turns[key] = running
        running.task.add_done_callback(lambda _: self._turns.pop(key, None))
        if self._heartbeat is None or self._heartbeat.done():
            self._heartbeat = asyncio.ensure_future(self._renew_leases())
        return running

    async def abandon(self, turn_id: str) -> None:
        """End in the journal a turn that was entered there and does not start."""
        with suppress(StoreError):
            await self.journal.end(turn_id, None)

    async def finish(self, seconds: float) -> None:
        """Let running turns end for ``seconds``, then cancel them.

        At last, cancel what they wait for, too.
        """
        turns = list(self._turns.values())
        if turns:
            await asyncio.wait([each.task for each in turns], timeout=max(seconds, 0))

        # Cancelled once, a turn still waits for its writes in flight; cancelled twice, it does not.
        for grace in (_GRACE_SECONDS, _GRACE_SECONDS / 2):
            unfinished = [each for each in turns if not each.task.done()]
            for each in unfinished:
                each.driver.is_stopping = True
                each.task.cancel()
            if unfinished:
                await asyncio.wait([each.task for each in unfinished], timeout=grace)

        if self._heartbeat is not None:
            self._heartbeat.cancel()

    async def _renew_leases(self) -> None:
        while self._turns:
            await asyncio.sleep(LEASE_SECONDS / 4)
            turn_ids = [running.context.turn_id for running in self._turns.values()]
            try:
                await self.journal.renew_leases(turn_ids)
            except StoreError:
                continue  # the turns themselves report it

    def _ports(self, context: TurnContext) -> Ports:
        """Return what a turn reaches outside itself."""
        peers = self._peers
        observer = TurnObserver(
            context.request.observer, context.turn_id, context.agent.id, context.redactor
        )
        caller = CallContext(context.agent, context.turn_id, context.redactor, observer)

        async def ask_model(call: ModelCall) -> ModelResult:
            def read(body: bytes) -> ModelResponse:
                # What a provider echoes must reach neither a service, as an argument, nor the next
                # provider.
                return call.read(context.redactor.document(body))

            post = partial(peers.upstream.post, context.route)
            return await self._recorder.note_model_calls(context, replace(call, read=read), post)

        async def call_tool(call: ToolCall, key: str, seconds: float) -> ToolResult:
            started = now_rfc3339()
            with context.route.stopwatch.waiting():
                result = await peers.services.call(caller, call, key, seconds)
            return replace(result, started=started)

        async def note_progress(response: ModelResponse, results: Sequence[ToolResult]) -> None:
            if context.conversation is not None:
                await context.conversation.note_progress(response, results)

        return Ports(
            model=ask_model,
            tools=call_tool,
            now=peers.now,
            observer=observer,
            note_progress=note_progress,
            reasoning=self._reasoning,
            report=partial(self._recorder.log_intervention, context),
        )
