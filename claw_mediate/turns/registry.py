"""The turns that run now.

Each is started with its ports and its checkpoint, joined by retries, and ended with the proxy.
"""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec.structs import replace

from claw_mediate.core import tool_result
from claw_mediate.core.observer import TurnObserver
from claw_mediate.core.turn import turn
from claw_mediate.core.types import (
    ModelResponse,
    ToolCall,
    ToolResult,
)
from claw_mediate.dialects.streams import OwnOpening
from claw_mediate.providers.client import TransportFailure
from claw_mediate.providers.failover import ModelCall, ModelResult
from claw_mediate.providers.live_reply import FlowLimits
from claw_mediate.telemetry.event_log import now_rfc3339
from claw_mediate.turns.answer_stream import AnswerStream
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_mediate.turns.context import SettledAnswer, TurnContext
from claw_mediate.turns.driver import TurnDriver, drive
from claw_mediate.turns.ports import Ports, TurnParts
from claw_mediate.turns.provider_memory import ReplayableReasoning, StreamUsageRefusals
from claw_mediate.turns.run import RunningTurn
from claw_mediate.turns.shown_answer import ShownAnswer
from claw_mediate.turns.turn_memory import TurnMemory
from claw_state.lease import LEASE_SECONDS
from claw_state.url import StoreError

_GRACE_SECONDS = 1.5
"""The time that cancelled turns have for writes in flight.

A write may take longer than a stop can wait.
"""


class TurnRegistry:
    """All turns of one mediator that have not ended."""

    def __init__(self, parts: TurnParts, flow_limits: FlowLimits) -> None:
        """``flow_limits``: the times in which the replies of one turn may flow."""
        self._parts = parts
        self._flow_limits = flow_limits
        self._peers = parts.peers
        self._recorder = parts.recorder
        self._billing = parts.billing
        self.journal = parts.journal
        self._reasoning = ReplayableReasoning()
        self._usage_refusals = StreamUsageRefusals()
        self._turns: dict[tuple[str, str], RunningTurn] = {}
        self._heartbeat: asyncio.Task[None] | None = None
        self._searches: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._turns)

    def find(self, agent_id: str, fingerprint: str) -> RunningTurn | None:
        """Return the running turn of an equal request, if there is one."""
        running = self._turns.get((agent_id, fingerprint))
        # The runner of a turn that has just ended may be faster than the callback that removes it.
        return None if running is None or running.task.done() else running

    def find_in(self, agent_id: str, conversation: str) -> RunningTurn | None:
        """Return a running turn of a conversation that the provider keeps, if there is one."""
        for (owner, _), running in self._turns.items():
            if owner == agent_id and running.context.view.conversation == conversation:
                return running
        return None

    def search[T](self, looking: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start to look for the turn of a request: one of these, or one that it starts."""
        search = asyncio.ensure_future(looking)
        self._searches.add(search)
        search.add_done_callback(self._searches.discard)
        return search

    async def wait_for_left(self, agent_id: str, earlier: str) -> None:
        """Wait for the end of turns that their runners have left.

        The journal knows of that only then. A request with the same messages before its last one
        may go on with such a turn. ``earlier``: the digest of those (``Evidence.earlier``).
        """
        left = [
            running.task
            for (owner, _), running in self._turns.items()
            if owner == agent_id
            and running.task.cancelling()
            and running.context.view.evidence.earlier == earlier
        ]
        if left:
            await asyncio.wait(left)

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
        stream = _open_stream(context) if context.view.stream else None
        ports = self._ports(context, stream)
        driver = TurnDriver(context.dialect, context.prepared, ports, checkpoint, stream)
        running = RunningTurn(context, driver, checkpoint, self._parts, stream)
        running.start()

        key = (context.agent.id, context.fingerprint)
        self._turns[key] = running
        running.task.add_done_callback(lambda _: self._turns.pop(key, None))
        if stream is not None:
            running.task.add_done_callback(lambda _: stream.readers.wake())
        if self._heartbeat is None or self._heartbeat.done():
            self._heartbeat = asyncio.ensure_future(self._renew_leases())
        return running

    async def settle(self, context: TurnContext) -> SettledAnswer | None:
        """Remember what a failed turn did, without going on with it; None if it did nothing.

        Its rounds are rebuilt from the journal: no model is asked, and no tool is called. They are
        remembered under what the runner holds of the turn (``context.held``).
        """
        checkpoint = TurnCheckpoint(
            self.journal,
            context.turn_id,
            on_failure=lambda reason: self._recorder.log_journal_failure(context, reason),
            attempt="resumed",
        )
        stream = _open_stream(context)
        ports = Ports(model=_ask_nobody, tools=_call_nothing, now=self._peers.now)
        driver = TurnDriver(context.dialect, context.prepared, ports, checkpoint, stream)
        outcome = await drive(turn(context.agent.limits, driver.now()), driver)

        stream.drop(outcome.rounds)
        memory = TurnMemory(context, stream, self._parts)
        await memory.remember_held(outcome.rounds)
        return memory.describe_settled(outcome.rounds)

    async def abandon(self, turn_id: str) -> None:
        """End in the journal a turn that was entered there and does not start."""
        with suppress(StoreError):
            await self.journal.end(turn_id, None)

    async def finish(self, seconds: float) -> None:
        """Let running turns end for ``seconds``, then cancel them.

        At last, cancel what they wait for, too.
        """
        until = time.monotonic() + seconds
        while (under_way := self._under_way()) and (left := until - time.monotonic()) > 0:
            await asyncio.wait(under_way, timeout=left)

        for search in [*self._searches]:
            search.cancel()
        turns = [*self._turns.values()]

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

    def _under_way(self) -> list[asyncio.Task[Any]]:
        return [*self._searches, *(each.task for each in self._turns.values())]

    async def _renew_leases(self) -> None:
        while self._turns:
            await asyncio.sleep(LEASE_SECONDS / 4)
            turn_ids = [running.context.turn_id for running in self._turns.values()]
            try:
                await self.journal.renew_leases(turn_ids)
            except StoreError:
                continue  # the turns themselves report it

    def _ports(self, context: TurnContext, stream: AnswerStream | None) -> Ports:
        """Return what a turn reaches outside itself.

        ``stream``: of its answer; None if the runner asked for none.
        """
        peers = self._peers
        observer = TurnObserver(
            context.request.observer, context.turn_id, context.agent.id, context.redactor
        )

        async def ask_model(call: ModelCall) -> ModelResult:
            def read(body: bytes) -> ModelResponse:
                # What a provider echoes must reach neither a service, as an argument, nor the next
                # provider.
                return call.read(context.redactor.document(body))

            post = partial(peers.upstream.post, context.route)
            return await self._billing.ask(context, replace(call, read=read), post)

        async def call_tool(call: ToolCall, key: str, seconds: float) -> ToolResult:
            started = now_rfc3339()
            with context.route.stopwatch.waiting():
                result = await peers.services.call(context.agent, observer, call, key, seconds)
            return replace(result, started=started)

        async def note_progress(response: ModelResponse, results: Sequence[ToolResult]) -> None:
            if context.conversation is not None:
                await context.conversation.note_progress(response, results)

        ports = Ports(
            model=ask_model,
            tools=call_tool,
            now=peers.now,
            observer=observer,
            note_progress=note_progress,
            reasoning=self._reasoning,
            report=partial(self._recorder.log_intervention, context),
        )
        if stream is None or not context.view.is_live:
            return ports

        return replace(
            ports,
            sink=stream,
            flow_limits=self._flow_limits,
            on_ask=stream.note_asked,
            on_json_body=partial(self._recorder.log_live_fallback, context, "json_body"),
            usage_refusals=self._usage_refusals,
        )


async def _ask_nobody(_call: ModelCall) -> ModelResult:
    return TransportFailure("turn_settled", "the turn has ended")


async def _call_nothing(call: ToolCall, _key: str, _seconds: float) -> ToolResult:
    return tool_result.turn_ended(call)


def _open_stream(context: TurnContext) -> AnswerStream:
    """Return the stream of a turn's answer, of which nothing is written yet."""
    own_id = context.dialect.id_prefix + context.turn_id.removeprefix("turn_")
    own = OwnOpening(own_id, context.view.model, int(time.time()))
    shown = ShownAnswer(context.dialect, context.view, own, context.held)
    shows = context.view.is_live and context.agent.preamble == "show"
    return AnswerStream(shown, context.redactor, context.route.stopwatch.elapsed, shows=shows)
