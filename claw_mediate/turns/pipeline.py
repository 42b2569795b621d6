"""Requests of a dialect, from their view to what answers them.

    side request, or a form without tools   admit → add context → forward
    token count                             add context, tools and hidden rounds → forward
    anything else                           find a running or earlier turn → admit → prepare → start
                                            a turn (``entrance``)

Admission is the budget's: a request that finds the answer of an earlier attempt is not counted
again.
"""

import asyncio
from functools import partial

from msgspec.structs import replace

from claw_mediate.core.http import Forward, RunnerResponse, refuse
from claw_mediate.core.json_pieces import join_pieces
from claw_mediate.core.json_splice import JsonSpliceError
from claw_mediate.core.side_requests import find_side_request
from claw_mediate.core.turn import TOTAL_TIMEOUT
from claw_mediate.core.types import ToolUse
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.http.large_bodies import compute
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.answer_stream import streams_live
from claw_mediate.turns.budgets import Admission
from claw_mediate.turns.context import DialectRequest
from claw_mediate.turns.entrance import TurnEntrance
from claw_mediate.turns.kept.records import describe_forwarded
from claw_mediate.turns.late_answer import AnswerSource, LateAnswer, respond_from
from claw_mediate.turns.passthrough import ForwardDetails, Passthrough, Purpose
from claw_mediate.turns.ports import TurnParts
from claw_mediate.turns.registry import TurnRegistry
from claw_mediate.turns.request_preparer import RequestPreparer, name_session
from claw_mediate.turns.run import RunningTurn
from claw_mediate.turns.turn_preparer import TurnPreparer
from claw_state.lease import LEASE_SECONDS


class TurnPipeline:
    """The requests of one mediator that are in a dialect."""

    def __init__(
        self,
        settings: Settings,
        log: EventLog,
        parts: TurnParts,
        turns: TurnRegistry,
        passthrough: Passthrough,
    ) -> None:
        self._settings = settings
        self._log = log
        self._budgets = parts.budgets
        self._owners = parts.owners
        self._requests = RequestPreparer(parts.continuity, log)
        self._preparer = TurnPreparer(parts, self._requests, log)
        self._entrance = TurnEntrance(parts, turns, self._preparer, log)
        self._turns = turns
        self._passthrough = passthrough

    async def answer(self, incoming: DialectRequest) -> RunnerResponse | Forward:
        """Answer a request, or return how it is forwarded.

        Raise ``UnreadableRequestError`` and ``JsonSpliceError``.
        """
        found = await self._owners.find_named(incoming)
        if isinstance(found, RunnerResponse):
            return found
        incoming = found

        rule = await compute(len(incoming.view.body), partial(find_side_request, incoming.view))
        if rule is not None:
            return await self._forward_side_request(incoming, rule)
        if not incoming.agent.tools or incoming.view.bypass is not None:
            return await self._forward_without_tools(incoming)
        if incoming.only_counts:
            return await self._forward_count(incoming)
        return await self._mediate(incoming)

    async def _forward_side_request(
        self, incoming: DialectRequest, rule: str
    ) -> RunnerResponse | Forward:
        admission = await self._preparer.admit(incoming)
        if isinstance(admission, RunnerResponse):
            return admission

        self._log_intervention(incoming, f"housekeeping:{rule}")
        with self._budgets.held(incoming.agent, incoming.view.model, admission):
            if incoming.view.side_request is not None:
                incoming = await self._requests.remind(incoming)
            else:
                incoming = await self._requests.without_hidden_reasoning(incoming)
            return await self._pass(incoming, "side request", admission)

    async def _forward_without_tools(self, incoming: DialectRequest) -> RunnerResponse | Forward:
        """Forward a request that is offered no tools.

        The agent has none, or the form of the request rules them out.
        """
        admission = await self._preparer.admit(incoming)
        if isinstance(admission, RunnerResponse):
            return admission

        if incoming.agent.stream == "live":
            incoming = await self._requests.without_hidden_reasoning(incoming)
        view = incoming.view
        with self._budgets.held(incoming.agent, view.model, admission):
            text = await self._preparer.prompt_text(incoming)
            if incoming.agent.tools:
                self._log_intervention(incoming, view.bypass)
            if text:
                write = partial(incoming.dialect.add_context, view, text)
                longer = await compute(len(view.body), write)
                incoming = replace(incoming, view=replace(view, body=longer))
            return await self._pass(incoming, admission=admission)

    async def _forward_count(self, incoming: DialectRequest) -> RunnerResponse | Forward:
        """Count tokens as they would be spent.

        The managed tools, the hidden rounds and the context are counted, too.
        """
        view = incoming.view
        text = await self._preparer.prompt_text(incoming)
        prepared = await self._requests.prepare(incoming, text)
        write = prepared.build(prepared.first_maker)
        body = await compute(prepared.size, lambda: join_pieces(write(ToolUse.AS_REQUESTED)))
        return await self._pass(replace(incoming, view=replace(view, body=body)))

    async def _pass(
        self,
        incoming: DialectRequest,
        purpose: Purpose = "answer",
        admission: Admission | None = None,
    ) -> RunnerResponse | Forward:
        about = ForwardDetails(
            redactor=incoming.redactor,
            purpose="count" if incoming.only_counts else purpose,
            kept=incoming.predecessor,
            named_object=incoming.named_object,
            gives=None if incoming.only_counts else incoming.dialect.answer_shape,
            kept_as=describe_forwarded(incoming, name_session(incoming)),
            admission=admission,
        )
        return await self._passthrough.forward(
            incoming.admitted, incoming.request, incoming.view, about
        )

    async def _mediate(self, incoming: DialectRequest) -> RunnerResponse:
        """Answer a request with a turn: one that runs, an earlier one, or a new one."""
        agent, view, dialect = incoming.agent, incoming.view, incoming.dialect
        if streams_live(agent, view):
            pace = self._settings.pace(dialect.keepalive_setting, live=True)
            search = self._turns.search(self._search(incoming))
            return await LateAnswer(incoming, pace).respond(search)

        source, held = await self._entrance.find(incoming)
        is_live = isinstance(source, RunningTurn) and source.context.view.is_live
        pace = self._settings.pace(dialect.keepalive_setting, live=is_live)
        return await respond_from(incoming, source, held, pace)

    async def _search(self, incoming: DialectRequest) -> tuple[AnswerSource, str]:
        """Find the turn of a request whose runner is kept waiting, in the time that a turn has."""
        path = incoming.request.path
        turn_seconds = incoming.agent.limits.longest_seconds + self._settings.live_max
        try:
            async with asyncio.timeout(turn_seconds + LEASE_SECONDS):
                return await self._entrance.find(incoming)
        except TimeoutError:
            message = "this request runs in another process, which did not end it in a turn's time"
            return refuse(path, 502, TOTAL_TIMEOUT, message), ""
        except (UnreadableRequestError, JsonSpliceError) as error:
            return refuse(path, 400, "invalid_request", str(error)), ""

    def _log_intervention(self, incoming: DialectRequest, name: str | None) -> None:
        self._log.event(
            "intervention", incoming.agent, model=incoming.view.model, intervention=name
        )
