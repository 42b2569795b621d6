"""Turns under way: each is started with its ports and its journal, answered as JSON or as a stream, joined by a runner that
tries again, and ended with the proxy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from claw_mediate.core.http import Exchange
from claw_mediate.core.observer import TurnObserver
from claw_mediate.core.types import ToolCall, ToolResult
from claw_mediate.providers.failover import ModelAnswer, ModelCall, ProviderFailover
from claw_mediate.settings import Pace
from claw_mediate.telemetry.event_log import now_rfc3339
from claw_mediate.tools.http import CallContext, HttpToolExecutor
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_mediate.turns.continuity import Continuing
from claw_mediate.turns.driver import Ports, TurnDriver
from claw_mediate.turns.recorder import Recorder
from claw_mediate.turns.run import TurnContext, TurnResult, TurnRun, json_response, sse_response
from claw_state.journal import Journal
from claw_state.lease import LEASE_SECONDS
from claw_state.url import StoreError

_LAST_SECONDS = 1.5
"""What turns that were cut off have for the writes that are on their way, which may take longer than a stop can wait."""


class Peers(NamedTuple):
    """The two sides that a mediator talks to, and the clock that turns are measured with."""

    upstream: ProviderFailover
    services: HttpToolExecutor
    now: Callable[[], float] = time.monotonic


@dataclass
class RunningTurn:
    """A turn that has not ended, and how many runners wait for it."""

    job: TurnContext
    world: TurnDriver
    play: asyncio.Task[TurnResult]
    tape: TurnCheckpoint
    waiting: int = 0

    def left(self) -> None:
        """A runner has gone; the last one takes the turn along."""
        self.waiting -= 1
        if self.waiting == 0:
            self.play.cancel()


class TurnRegistry:
    """All turns of one mediator that have not ended."""

    def __init__(self, peers: Peers, recorder: Recorder, continuing: Continuing, journal: Journal) -> None:
        self._peers = peers
        self._recorder = recorder
        self._continuing = continuing
        self.journal = journal
        self._turns: dict[tuple[str, str], RunningTurn] = {}
        self._heart: asyncio.Task[None] | None = None

    def under_way(self, agent_id: str, asked: str) -> RunningTurn | None:
        """The turn of an equal request that runs here now."""
        return self._turns.get((agent_id, asked))

    def start(self, job: TurnContext) -> RunningTurn:
        """Begin to play a turn."""
        self._recorder.request(job, len(job.catalog.offered))
        tape = TurnCheckpoint(
            self.journal,
            job.turn_id,
            lambda reason: self._recorder.unwritten(job, reason),
            job.attempt,
            lambda played: self._recorder.resumed(job, played),
        )
        world = TurnDriver(job.dialect, job.catalog, job.offered, self._ports(job), tape)
        turn = TurnRun(job, world, self._recorder, self._continuing)
        key = (job.agent.id, job.asked)
        under_way = RunningTurn(job, world, asyncio.ensure_future(turn.play(tape)), tape)
        self._turns[key] = under_way
        under_way.play.add_done_callback(lambda _: self._turns.pop(key, None))
        if self._heart is None or self._heart.done():
            self._heart = asyncio.ensure_future(self._beat())
        return under_way

    def __len__(self) -> int:
        return len(self._turns)

    async def abandon(self, turn_id: str) -> None:
        """A turn that was entered in the journal does not begin."""
        with suppress(StoreError):
            await self.journal.end(turn_id, None)

    async def attend(self, turn: RunningTurn, pace: Pace) -> Exchange:
        """The answer of a turn that is under way, for one more runner."""
        turn.waiting += 1
        try:
            if turn.job.view.stream:
                exchange = await sse_response(turn.job, turn.world, turn.play, pace, turn.left)
            else:
                exchange = await json_response(turn.play)
        except asyncio.CancelledError:
            turn.left()
            raise
        return replace(exchange, handed=turn.tape.handed)

    async def finish(self, seconds: float) -> None:
        """Let turns that are under way end, for so long; then cut them off, and then what they wait for too."""
        turns = list(self._turns.values())
        if turns:
            await asyncio.wait([turn.play for turn in turns], timeout=max(seconds, 0))
        for patience in (_LAST_SECONDS, _LAST_SECONDS / 2):
            left = [turn for turn in turns if not turn.play.done()]
            for turn in left:
                turn.world.stopped = True
                turn.play.cancel()
            if left:
                await asyncio.wait([turn.play for turn in left], timeout=patience)
        if self._heart is not None:
            self._heart.cancel()

    async def _beat(self) -> None:
        """Other processes see that these turns are alive."""
        while self._turns:
            await asyncio.sleep(LEASE_SECONDS / 4)
            try:
                await self.journal.renew_leases([turn.job.turn_id for turn in self._turns.values()])
            except StoreError:
                continue  # the turns themselves tell of it

    def _ports(self, job: TurnContext) -> Ports:
        onlooker = TurnObserver(job.request.watch, job.turn_id, job.agent.id, job.redactor)
        caller = CallContext(job.agent, job.turn_id, job.redactor, onlooker)

        async def model(call: ModelCall) -> ModelAnswer:
            # What a provider echoes must reach neither a service, as an argument, nor the next provider.
            clean = replace(call, read=lambda body: call.read(job.redactor.document(body)))
            return await self._peers.upstream.post(job.route, clean)

        async def tools(call: ToolCall, key: str, seconds: float) -> ToolResult:
            started = now_rfc3339()
            with job.route.stopwatch.away():
                answer = await self._peers.services.call(caller, call, key, seconds)
            return replace(answer, started=started)

        return Ports(model, tools, self._peers.now, onlooker)
