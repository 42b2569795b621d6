"""One mediated request, from its view to the turn that answers it: found again, paid for, routed, offered, played."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakValueDictionary

from claw_contract.log.turns import JoinKind
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.authenticate import Admitted
from claw_mediate.core.http import Exchange, Request
from claw_mediate.core.session_id import session
from claw_mediate.dialects.base import Dialect, RunnerRequest
from claw_mediate.http.headers import for_provider
from claw_mediate.providers.routing import Asker, Route, Routing, new_turn_id, with_model
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.timing import Stopwatch
from claw_mediate.turns.idempotency import Completed, Resume, RetryLookup, fingerprint, is_retry
from claw_mediate.turns.prepare import Around, Offering
from claw_mediate.turns.registry import RunningTurn, TurnRegistry
from claw_mediate.turns.run import TurnContext, stored_response
from claw_state.health import StateUnavailableError
from claw_state.journal import Attempt, RequestFingerprint
from claw_state.url import StoreError


@dataclass(frozen=True, slots=True)
class Mediated:
    """A request that gets tools."""

    admitted: Admitted
    request: Request
    view: RunnerRequest
    dialect: Dialect
    redactor: Redactor


@dataclass(frozen=True, slots=True)
class Before:
    """What is asked before a turn begins: whether the agent may spend (the refusal, when not), and the context."""

    spend: Callable[[], Awaitable[Exchange | None]]
    context: Callable[[], Awaitable[str]]


class TurnPipeline:
    """Requests with tools, of one mediator."""

    def __init__(
        self, settings: Settings, log: EventLog, routing: Routing, offering: Offering, playing: TurnRegistry
    ) -> None:
        self._settings = settings
        self._log = log
        self._routing = routing
        self._offering = offering
        self._playing = playing
        self._attempts = RetryLookup(playing.journal)
        self._entering: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def answer(self, what: Mediated, before: Before) -> Exchange:
        """The turn's answer. Cancelled when the runner leaves. Raises ``UnreadableRequestError`` and ``WireError``."""
        agent, key = what.admitted.agent, fingerprint(what.request, what.view, what.redactor)
        pace = self._settings.pace(what.dialect.NAME)
        # Two equal requests at one moment must not both find that there is no turn yet.
        async with self._entering.setdefault((agent.id, key.request), asyncio.Lock()):
            turn = self._playing.under_way(agent.id, key.request)
            if turn is not None and turn.play.cancelling():
                # Its runner has gone, and a write that is on its way may still finish: then this one goes on with it.
                await asyncio.wait([turn.play])
                turn = None
            if turn is not None:
                self._joined(what, turn.job.turn_id, "running", waiting=turn.waiting + 1)
            else:
                entered = await self._enter(what, key, before)
                if isinstance(entered, Exchange):
                    return entered
                turn = entered
        return await self._playing.attend(turn, pace)

    async def _enter(self, what: Mediated, key: RequestFingerprint, before: Before) -> RunningTurn | Exchange:
        turn_id, stopwatch = new_turn_id(), Stopwatch()
        found = await self._found(what, key, turn_id)
        if isinstance(found, Completed):
            self._joined(what, found.turn_id, "awaited" if found.awaited else "answered", size=len(found.given.body))
            return replace(
                stored_response(what.view, what.dialect, found.given), handed=partial(self._handed, found.turn_id)
            )
        attempt: Attempt = "unknown" if isinstance(found, StoreError) else "first"
        if isinstance(found, Resume):
            turn_id, attempt = found.turn_id, "resumed" if found.acted else "first"
            stopwatch = Stopwatch()  # the earlier attempt may have been waited for
        begun = False
        try:
            job = await before.spend() or await self._job(what, turn_id, stopwatch, before.context)
            if isinstance(job, Exchange):
                return job
            turn = self._playing.start(replace(job, asked=key.request, attempt=attempt))
            begun = True
            return turn
        finally:
            if not begun:
                await self._playing.abandon(turn_id)

    async def _found(
        self, what: Mediated, key: RequestFingerprint, turn_id: str
    ) -> Completed | Resume | StoreError | None:
        """A journal that can't be read costs the memory of earlier attempts; what may write is then not run (``tape``)."""
        try:
            return await self._attempts.find(what.admitted.agent.id, turn_id, key, retries=is_retry(what.request))
        except StateUnavailableError as error:
            return error
        except StoreError as error:
            self._log.event("error", what.admitted.agent, error="journal_not_read", reason=str(error))
            return error

    async def _job(
        self, what: Mediated, turn_id: str, stopwatch: Stopwatch, told: Callable[[], Awaitable[str]]
    ) -> TurnContext | Exchange:
        with stopwatch.away():
            context = await told()
        agent, request, view = what.admitted.agent, what.request, what.view
        asker = Asker(agent, turn_id)
        candidates = self._routing.candidates(asker, request, view)
        if isinstance(candidates, Exchange):
            return candidates
        if candidates[0].model != view.model:
            view = replace(view, body=with_model(view.body, candidates[0].model))
        headers = [*for_provider(request.headers, what.admitted.secret), ("accept-encoding", "gzip, deflate")]
        route = Route(asker, request.path, headers, candidates, stopwatch=stopwatch)
        around = Around(context, session(request.headers, view.session), turn_id)
        catalog, offered = await self._offering.made(agent, view, what.dialect, around)
        return TurnContext(
            turn_id, agent, request, view, what.dialect, catalog, offered, route, what.redactor, around.session
        )

    async def _handed(self, turn_id: str) -> None:
        with suppress(StoreError):
            await self._playing.journal.mark_delivered(turn_id)

    def _joined(self, what: Mediated, turn_id: str, how: JoinKind, *, waiting: int = 0, size: int = 0) -> None:
        agent, model = what.admitted.agent, what.view.model
        if what.request.watch is not None:
            what.request.watch.turn(turn_id, agent.id)
        self._log.event("join", agent, turn_id=turn_id, model=model, how=how, waiting=waiting, bytes=size)
