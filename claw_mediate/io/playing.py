"""Turns under way: each is started with its ports, answered as JSON or as a stream, and ended with the proxy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from claw_mediate.exchange import Exchange
from claw_mediate.io.drive import Ports, World
from claw_mediate.io.mediated import Ended, Job, MediatedTurn, streamed, whole
from claw_mediate.io.record import Recorder
from claw_mediate.io.services import Caller, Services
from claw_mediate.io.settings import Pace
from claw_mediate.io.store import Store
from claw_mediate.io.upstream import ModelAnswer, ModelCall, Upstream
from claw_mediate.model import Answer, Call

_LAST_SECONDS = 2.0
"""What turns that were cancelled have for their last lines; a write may take longer than a stop can wait."""


class Peers(NamedTuple):
    """The two sides that a mediator talks to, and the clock that turns are measured with."""

    upstream: Upstream
    services: Services
    now: Callable[[], float] = time.monotonic


class Playing:
    """All turns of one mediator that have not ended."""

    def __init__(self, peers: Peers, recorder: Recorder, store: Store) -> None:
        self._peers = peers
        self._recorder = recorder
        self._store = store
        self._tasks: set[asyncio.Task[Ended]] = set()

    async def answer(self, job: Job, pace: Pace) -> Exchange:
        """Play a turn, and give its answer as the runner asked for it. Cancelled when the runner leaves."""
        self._recorder.request(job, len(job.catalog.offered))
        world = World(job.dialect, job.catalog, job.offered, self._ports(job), job.turn_id)
        play = asyncio.ensure_future(MediatedTurn(job, world, self._recorder, self._store).play())
        self._tasks.add(play)
        play.add_done_callback(self._tasks.discard)
        try:
            return await streamed(job, world, play, pace) if job.view.stream else await whole(play)
        except asyncio.CancelledError:
            play.cancel()
            raise

    async def close(self, seconds: float) -> None:
        """Let turns that are under way end, for so long; then cancel them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_SECONDS)

    def _ports(self, job: Job) -> Ports:
        caller = Caller(job.agent, job.turn_id, job.redactor)

        async def model(call: ModelCall) -> ModelAnswer:
            # What a provider echoes must reach neither a service, as an argument, nor the next provider.
            clean = replace(call, read=lambda body: call.read(job.redactor.document(body)))
            return await self._peers.upstream.post(job.route, clean)

        async def tools(call: Call, key: str, seconds: float) -> Answer:
            return await self._peers.services.call(caller, call, key, seconds)

        return Ports(model, tools, self._peers.now)
