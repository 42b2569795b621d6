"""Requests of a dialect, from their view to what answers them.

    side request, or a form without tools   admit → add context → forward
    token count                             add context, tools and hidden rounds → forward
    anything else                           find a running or earlier turn → admit → prepare → start
                                            a turn

Admission is the budget's: a request that finds the answer of an earlier attempt is not counted
again.
"""

import asyncio
import dataclasses
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal
from weakref import WeakValueDictionary

from msgspec.structs import replace

from claw_contract.log import JoinKind
from claw_mediate.core.http import Forward, RunnerResponse, refuse
from claw_mediate.core.json_splice import JsonSpliceError
from claw_mediate.core.model_names import find_model_headers
from claw_mediate.core.side_requests import find_side_request
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.turn import TOTAL_TIMEOUT
from claw_mediate.core.types import ToolUse
from claw_mediate.dialects.base import (
    RunnerRequest,
    UnreadableRequestError,
)
from claw_mediate.dialects.model_only import NOT_READ
from claw_mediate.http.headers import of_json, provider_headers
from claw_mediate.http.large_bodies import compute
from claw_mediate.providers.routing import Route, new_turn_id, replace_model
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.timing import Stopwatch
from claw_mediate.turns.answer_stream import streams_live
from claw_mediate.turns.budgets import Admission
from claw_mediate.turns.context import DialectRequest, SettledAnswer, TurnContext
from claw_mediate.turns.continuity import AnsweredTurn
from claw_mediate.turns.held_answers import HeldAnswer, HeldAnswers
from claw_mediate.turns.idempotency import (
    POLL_SECONDS,
    CompletedTurn,
    Resume,
    RetryLookup,
    cut_answers,
    fingerprint,
    is_retry,
)
from claw_mediate.turns.kept.conversation import KeptConversation
from claw_mediate.turns.kept.records import describe_forwarded
from claw_mediate.turns.late_answer import FoundAnswer, LateAnswer, StoredAnswer, respond_found
from claw_mediate.turns.passthrough import ForwardDetails, Passthrough, Purpose, has_policy
from claw_mediate.turns.ports import TurnParts
from claw_mediate.turns.preparer import RequestPreparer, name_session
from claw_mediate.turns.registry import TurnRegistry
from claw_mediate.turns.run import RunningTurn
from claw_state.health import StateUnavailableError
from claw_state.journal import AttemptKind, RequestFingerprint
from claw_state.lease import LEASE_SECONDS
from claw_state.ownership import KeptObject
from claw_state.url import StoreError

type _Entered = RunningTurn | CompletedTurn | RunnerResponse
type _AnswerPart = HeldAnswer | SettledAnswer


@dataclass(slots=True, weakref_slot=True)
class _EntryLock:
    """A lock that lets some requests enter their turns one at a time.

    They are equal requests, or the requests of one conversation.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    awaited: CompletedTurn | None = None
    """The turn in another process that the first of them waited for.

    The others have waited as long, so it counts for them, too.
    """


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
        self._prompt = parts.prompt
        self._routing = parts.routing
        self._ownership, self._objects = parts.owners
        self._preparer = RequestPreparer(parts.continuity, log)
        self._turns = turns
        self._passthrough = passthrough
        self._retries = RetryLookup(parts.journal)
        self._continuity = parts.continuity
        self._held_answers = HeldAnswers(turns, parts.continuity, self._find_named)
        self._entering: WeakValueDictionary[tuple[str, str], _EntryLock] = WeakValueDictionary()

    async def answer(self, incoming: DialectRequest) -> RunnerResponse | Forward:
        """Answer a request, or return how it is forwarded.

        Raise ``UnreadableRequestError`` and ``JsonSpliceError``.
        """
        found = await self._find_named(incoming)
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

    async def _find_named(self, incoming: DialectRequest) -> DialectRequest | RunnerResponse:
        """Return a request with what it names of what providers keep, or the refusal."""
        agent, request, view = incoming.agent, incoming.request, incoming.view
        chain = view.kept.named_ids if view.kept is not None else []
        named = await self._objects.check_dialect(agent, request, view.body, chain)
        if isinstance(named, RunnerResponse):
            return named

        resolved = await self._ownership.resolve(incoming)
        if isinstance(resolved, RunnerResponse):
            return resolved

        predecessor = resolved.predecessor
        if named is None or predecessor is None or named.provider == predecessor.provider:
            return replace(resolved, named_object=named)
        return self._objects.refuse_elsewhere(agent, request, named, predecessor.id)

    async def _forward_side_request(
        self, incoming: DialectRequest, rule: str
    ) -> RunnerResponse | Forward:
        admission = await self._admit(incoming)
        if isinstance(admission, RunnerResponse):
            return admission

        self._log_intervention(incoming, f"housekeeping:{rule}")
        with self._budgets.held(incoming.agent, incoming.view.model, admission):
            if incoming.view.side_request is not None:
                incoming = await self._preparer.remind(incoming)
            else:
                incoming = await self._preparer.without_hidden_reasoning(incoming)
            return await self._pass(incoming, "side request", admission)

    async def _forward_without_tools(self, incoming: DialectRequest) -> RunnerResponse | Forward:
        """Forward a request that is offered no tools.

        The agent has none, or the form of the request rules them out.
        """
        admission = await self._admit(incoming)
        if isinstance(admission, RunnerResponse):
            return admission

        if incoming.agent.stream == "live":
            incoming = await self._preparer.without_hidden_reasoning(incoming)
        view = incoming.view
        with self._budgets.held(incoming.agent, view.model, admission):
            text = await self._prompt_text(incoming)
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
        text = await self._prompt_text(incoming)
        prepared = await self._preparer.prepare(incoming, text)
        variants = prepared.build(prepared.first)
        body = await compute(prepared.size, lambda: variants(ToolUse.AS_REQUESTED).body)
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

        found = await self._find_turn(incoming)
        is_live = isinstance(found.source, RunningTurn) and found.source.context.view.is_live
        pace = self._settings.pace(dialect.keepalive_setting, live=is_live)
        return await respond_found(incoming, found, pace)

    async def _search(self, incoming: DialectRequest) -> FoundAnswer:
        """Find the turn of a request whose runner is kept waiting, in the time that a turn has."""
        path = incoming.request.path
        turn_seconds = incoming.agent.limits.longest_seconds + self._settings.live_max
        try:
            async with asyncio.timeout(turn_seconds + LEASE_SECONDS):
                return await self._find_turn(incoming)
        except TimeoutError:
            message = "this request runs in another process, which did not end it in a turn's time"
            return FoundAnswer(refuse(path, 502, TOTAL_TIMEOUT, message))
        except (UnreadableRequestError, JsonSpliceError) as error:
            return FoundAnswer(refuse(path, 400, "invalid_request", str(error)))

    async def _find_turn(self, incoming: DialectRequest) -> FoundAnswer:
        """Return where the answer to a request comes from.

        Wait for turns of other processes, if it may be theirs.
        """
        agent = incoming.agent
        held = await self._find_held(incoming)
        settled: SettledAnswer | None = None
        if held is not None and held.begins_turn:
            settled = await self._settle(held)
            held = None

        held_text = ""
        if held is not None:
            incoming, known_by, held_text = held.incoming, held.known_by, held.text
        else:
            identify = partial(fingerprint, incoming.request, incoming.view, incoming.redactor)
            known_by = await compute(len(incoming.view.body), identify)

        # Two equal requests at one moment must not both find that there is no turn yet.
        entrance = self._entering.setdefault((agent.id, known_by.request), _EntryLock())
        async with entrance.lock:
            running = self._turns.find(agent.id, known_by.request)
            if running is not None and running.task.cancelling():
                # Its runner has left, but a write may be in flight. After that has ended, this
                # request may resume the turn.
                await asyncio.wait([running.task])
                running = None

            if running is not None:
                turn_id, waiting = running.context.turn_id, running.waiting + 1
                self._log_join(incoming, turn_id, "running", waiting=waiting)
            elif entrance.awaited is not None:
                # An equal request has waited for this turn, and this one for the lock meanwhile.
                return FoundAnswer(self._answer_again(incoming, entrance.awaited), held_text)
            else:
                entered = await self._enter_conversation(incoming, known_by, held or settled)
                if isinstance(entered, CompletedTurn):
                    entrance.awaited = entered if entered.awaited else None
                    return FoundAnswer(self._answer_again(incoming, entered), held_text)
                if isinstance(entered, RunnerResponse):
                    return FoundAnswer(entered)
                running = entered

            running.join()
            return FoundAnswer(running, held_text)

    async def _find_held(self, incoming: DialectRequest) -> HeldAnswer | None:
        """Return what the runner holds of the answer of an earlier turn; None if nothing.

        A journal that can't be read is told of when the turn is entered.
        """
        try:
            return await self._held_answers.find(incoming)
        except StoreError:
            return None

    async def _settle(self, held: HeldAnswer) -> SettledAnswer | None:
        """Remember the rounds of a turn that is over under what the runner holds of its answer."""
        past = held.past
        if past is None:
            return None
        if past.response is not None:
            return await self._settle_answered(held, AnsweredTurn(past.turn_id, past.response.body))

        agent_id, request = held.incoming.agent.id, held.known_by.request
        entrance = self._entering.setdefault((agent_id, request), _EntryLock())
        async with entrance.lock:
            try:
                is_taken = await self._turns.journal.resume(past, held.known_by)
            except StoreError:
                is_taken = False
            if not is_taken:
                return None  # Another request goes on with it.

            try:
                context = await self._prepare(held.incoming, past.turn_id, Stopwatch())
                if isinstance(context, RunnerResponse):
                    return None
                return await self._turns.settle(replace(context, held=held.text))
            finally:
                await self._turns.abandon(past.turn_id)

    async def _find_settled(
        self, incoming: DialectRequest, context: TurnContext
    ) -> SettledAnswer | None:
        """Return the answer that broke off before the last words, if continuity knows its rounds.

        It was joined of several that broke off, say, so that no single turn has shown it.
        """
        broken = context.prepared.broken
        if broken is None or not context.view.is_live:
            return None

        text = await self._held_answers.find_text(incoming, broken.anchor.key)
        return SettledAnswer(text, broken.anchor.before, broken.record) if text else None

    async def _settle_answered(
        self, held: HeldAnswer, answer: AnsweredTurn
    ) -> SettledAnswer | None:
        incoming = held.incoming
        session = name_session(incoming)
        try:
            record = await self._continuity.remember_part(incoming, session, answer, held.text)
        except StoreError:  # which is reported when the rounds are looked for
            return None
        if record is None or not held.text:
            return None
        return SettledAnswer(held.text, incoming.view.evidence.before, record)

    async def _enter_conversation(
        self, incoming: DialectRequest, known_by: RequestFingerprint, part: _AnswerPart | None
    ) -> _Entered:
        """Enter a turn.

        In a conversation that the provider keeps, wait for its other turns first, also for those of
        other processes.
        """
        conversation = incoming.view.conversation
        if not conversation:
            return await self._enter(incoming, known_by, part)

        place = (incoming.agent.id, f"conversation {conversation}")
        entrance = self._entering.setdefault(place, _EntryLock())
        async with entrance.lock:
            while True:
                await self._wait_for_turns_here(incoming.agent.id, conversation)

                # The turn that was waited for has changed the record of the conversation.
                resolved = await self._ownership.resolve(incoming)
                if isinstance(resolved, RunnerResponse):
                    return resolved

                latest = resolved.predecessor.turn if resolved.predecessor is not None else ""
                if not await self._is_elsewhere(resolved, known_by, latest):
                    known_by = dataclasses.replace(known_by, latest_turn=latest)
                    return await self._enter(resolved, known_by)
                await asyncio.sleep(POLL_SECONDS)

    async def _wait_for_turns_here(self, agent_id: str, conversation: str) -> None:
        """Wait until no turn of the conversation runs in this process."""
        running = self._turns.find_in(agent_id, conversation)
        while running is not None:
            await asyncio.wait([running.task])
            running = self._turns.find_in(agent_id, conversation)

    async def _is_elsewhere(
        self, incoming: DialectRequest, known_by: RequestFingerprint, turn_id: str
    ) -> bool:
        """Return whether another turn runs in another process; False if that can't be read."""
        if not turn_id:
            return False
        try:
            return await self._retries.is_another_alive(incoming.agent.id, known_by, turn_id)
        except StoreError:  # which is reported when the turn is looked for
            return False

    async def _enter(
        self,
        incoming: DialectRequest,
        known_by: RequestFingerprint,
        part: _AnswerPart | None = None,
    ) -> _Entered:
        """Return the earlier attempt's answer, or start a turn, which may resume that attempt.

        ``part``: what the runner has of that attempt's answer, or of an earlier turn's.
        """
        turn_id = new_turn_id()
        stopwatch = Stopwatch()
        await self._turns.wait_for_left(incoming.agent.id, incoming.view.evidence.earlier)
        earlier = await self._find_earlier(incoming, known_by, turn_id)
        if isinstance(earlier, CompletedTurn):
            return earlier
        if earlier == "overtaken":
            return self._refuse_overtaken(incoming)

        attempt: AttemptKind = "first"
        if isinstance(earlier, StoreError):
            attempt = "journal_unavailable"
        elif isinstance(earlier, Resume):
            turn_id = earlier.turn_id
            attempt = "resumed" if earlier.has_steps else "first"
            stopwatch = Stopwatch()  # the earlier attempt may have been waited for

        has_started = False
        try:
            admission = await self._admit(incoming, turn_id)
            if isinstance(admission, RunnerResponse):
                return admission

            with self._budgets.held(incoming.agent, incoming.view.model, admission):
                context = await self._prepare(incoming, turn_id, stopwatch)
                if isinstance(context, RunnerResponse):
                    return context

                context = replace(
                    context,
                    fingerprint=known_by.request,
                    attempt=attempt,
                    admission=admission,
                )
                if isinstance(part, HeldAnswer):
                    context = replace(context, held=part.text, before_rest=part.before_rest)
                else:
                    settled = part or await self._find_settled(incoming, context)
                    context = replace(context, settled=settled)
                running = self._turns.start(context)
                has_started = True
                return running
        finally:
            if not has_started:
                await self._turns.abandon(turn_id)

    def _refuse_overtaken(self, incoming: DialectRequest) -> RunnerResponse:
        """Refuse the retry of a failed turn whose conversation went on without it.

        The rule is in docs/spec/responses.md section 11.
        """
        self._log_intervention(incoming, "retry_overtaken")
        message = (
            "this request's turn failed, and the conversation has gone on since; what it did "
            "is part of the conversation: ask anew"
        )
        path = incoming.request.path
        return refuse(path, 400, "conversation_moved_on", message, param="conversation")

    def _answer_again(self, incoming: DialectRequest, earlier: CompletedTurn) -> StoredAnswer:
        how: JoinKind = "awaited" if earlier.awaited else "answered"
        self._log_join(incoming, earlier.turn_id, how, size=len(earlier.response.body))
        return StoredAnswer(
            earlier,
            on_delivered=partial(self._mark_delivered, earlier.turn_id),
            save_id=partial(self._ownership.save_also_as, incoming.agent),
        )

    async def _find_earlier(
        self, incoming: DialectRequest, known_by: RequestFingerprint, turn_id: str
    ) -> CompletedTurn | Resume | Literal["overtaken"] | StoreError | None:
        """Return the answer of an earlier attempt, or the attempt to resume; None if there is none.

        Return "overtaken" for a failed attempt whose conversation has gone on without it. Return
        the error if the journal can't be read: the request is then a new turn, in which nothing
        that may write is called.
        """
        request = incoming.request
        try:
            cut = await compute(len(request.body), partial(cut_answers, request, incoming.view))
            return await self._retries.find(
                incoming.agent.id, turn_id, known_by, cut, says_retry=is_retry(request)
            )
        except StateUnavailableError as error:
            return error
        except StoreError as error:
            self._log.event("error", incoming.agent, error="journal_not_read", reason=str(error))
            return error

    async def _prepare(
        self, incoming: DialectRequest, turn_id: str, stopwatch: Stopwatch
    ) -> TurnContext | RunnerResponse:
        """Return everything that a turn needs before it starts, or the refusal."""
        with stopwatch.waiting():
            text = await self._prompt_text(incoming)

        agent, request = incoming.agent, incoming.request
        view = self._choose_stream(incoming, turn_id)
        incoming = replace(incoming, view=view)
        candidates = await self._routing.candidates(agent, turn_id, request, view, incoming.place)
        if isinstance(candidates, RunnerResponse):
            return candidates

        first = candidates[0]
        if first.model != view.model:
            rename = partial(replace_model, view.body, first.model)
            view = replace(view, body=await compute(len(view.body), rename))
            incoming = replace(incoming, view=view)

        prepared = await self._preparer.prepare(incoming, text, first.maker, turn_id)
        redactor = self._routing.protect_keys(candidates, incoming.redactor)
        headers = _headers_for_model(incoming)
        route = Route(agent, turn_id, request.path, headers, candidates, stopwatch=stopwatch)
        return TurnContext(
            turn_id=turn_id,
            agent=agent,
            request=request,
            view=view,
            redactor=redactor,
            route=route,
            dialect=incoming.dialect,
            prepared=prepared,
            session=name_session(incoming),
            conversation=self._conversation(incoming, route, prepared.catalog),
        )

    def _choose_stream(self, incoming: DialectRequest, turn_id: str) -> RunnerRequest:
        """Return the view of a request that says if its answer is shown while it comes.

        docs/spec/live.md section 1.
        """
        agent, view = incoming.agent, incoming.view
        if streams_live(agent, view):
            return replace(view, is_live=True)

        if view.stream and agent.stream == "live":
            reason = view.buffered_reason
            self._log.event(
                "live_fallback", agent, turn_id=turn_id, model=view.model, reason=reason
            )
        return view

    def _conversation(
        self, incoming: DialectRequest, route: Route, catalog: ToolCatalog
    ) -> KeptConversation | None:
        """Return the conversation that the provider puts the request into.

        Return None where it keeps none.
        """
        kept = incoming.view.kept
        if kept is None or not kept.conversation:
            return None

        record = incoming.predecessor
        if record is None or record.id != kept.conversation:
            record = KeptObject(kept.conversation, kept.conversation, provider="")
        names = (*catalog.managed, *sorted(catalog.withdrawn))
        record = replace(record, managed_names=names)
        return KeptConversation(self._ownership.save, route, record, incoming.dialect, kept.form)

    async def _admit(
        self, incoming: DialectRequest, turn_id: str = ""
    ) -> RunnerResponse | Admission | None:
        """Count the request in the agent's budget, and return what is reserved for it.

        Return the refusal if the budget is spent.
        """
        if incoming.only_counts:
            return None
        return await self._budgets.admit(incoming.agent, incoming.request, incoming.view, turn_id)

    async def _prompt_text(self, incoming: DialectRequest) -> str:
        """Return the text for the end of the system prompt.

        It is "" for an agent without any, whose requests pass unchanged.
        """
        if incoming.view.bypass == NOT_READ or not self._prompt.has_context(incoming.agent):
            return ""
        return await self._prompt.text(
            incoming.agent, incoming.view, incoming.redactor, recall=not incoming.only_counts
        )

    async def _mark_delivered(self, turn_id: str) -> None:
        with suppress(StoreError):
            await self._turns.journal.mark_delivered(turn_id)

    def _log_intervention(self, incoming: DialectRequest, name: str | None) -> None:
        self._log.event(
            "intervention", incoming.agent, model=incoming.view.model, intervention=name
        )

    def _log_join(
        self,
        incoming: DialectRequest,
        turn_id: str,
        how: JoinKind,
        *,
        waiting: int = 0,
        size: int = 0,
    ) -> None:
        if incoming.request.observer is not None:
            incoming.request.observer.on_turn(turn_id, incoming.agent.id)

        self._log.event(
            "join",
            incoming.agent,
            turn_id=turn_id,
            model=incoming.view.model,
            how=how,
            waiting=waiting,
            bytes=size,
        )


def _headers_for_model(incoming: DialectRequest) -> list[tuple[str, str]]:
    """Return the headers of a turn's requests.

    For an agent with a policy, headers that name a model are left out.
    """
    own = of_json(provider_headers(incoming.request.headers, incoming.admitted.secret))
    if has_policy(incoming.agent):
        naming = find_model_headers(own)
        own = [pair for pair in own if pair[0].lower() not in naming]

    # A compressed stream comes in lumps.
    coding = "identity" if incoming.view.is_live else "gzip, deflate"
    return [*own, ("accept-encoding", coding)]
