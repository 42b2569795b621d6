"""The entrance to turns: a request finds the turn that answers it, or starts one.

    an equal request's turn runs here    it is joined
    an earlier attempt has the answer    that answer
    an earlier attempt can be resumed    its turn goes on
    anything else                        a new turn

``idempotency`` has the rules of retries, ``held_answers`` those of runners that hold a part of the
answer already.
"""

import asyncio
import dataclasses
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple, assert_never
from weakref import WeakValueDictionary

from msgspec.structs import replace

from claw_contract.log import JoinKind
from claw_mediate.core.http import RunnerResponse, refuse
from claw_mediate.http.large_bodies import compute
from claw_mediate.providers.routing import new_turn_id
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.timing import Stopwatch
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
from claw_mediate.turns.late_answer import AnswerSource, StoredAnswer
from claw_mediate.turns.ports import TurnParts
from claw_mediate.turns.registry import TurnRegistry
from claw_mediate.turns.request_preparer import name_session
from claw_mediate.turns.run import RunningTurn
from claw_mediate.turns.turn_preparer import TurnPreparer
from claw_state.health import StateUnavailableError
from claw_state.journal import AttemptKind, RequestFingerprint
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


class _Attempt(NamedTuple):
    """An attempt at a turn that is about to start."""

    turn_id: str
    kind: AttemptKind
    stopwatch: Stopwatch


class TurnEntrance:
    """The way into the turns of one mediator."""

    def __init__(
        self, parts: TurnParts, turns: TurnRegistry, preparer: TurnPreparer, log: EventLog
    ) -> None:
        self._log = log
        self._budgets = parts.budgets
        self._ownership = parts.owners.ownership
        self._turns = turns
        self._preparer = preparer
        self._retries = RetryLookup(parts.journal)
        self._continuity = parts.continuity
        self._held_answers = HeldAnswers(turns, parts.continuity, parts.owners.find_named)
        self._entering: WeakValueDictionary[tuple[str, str], _EntryLock] = WeakValueDictionary()

    async def find(self, incoming: DialectRequest) -> tuple[AnswerSource, str]:
        """Return where the answer to a request comes from, and what the runner has of it already.

        Wait for turns of other processes, if it may be theirs.
        """
        held = await self._find_held(incoming)
        if held is not None and not held.begins_turn:
            return await self._join_or_enter(held.incoming, held.known_by, held), held.text

        settled = await self._settle(held) if held is not None else None
        identify = partial(fingerprint, incoming.request, incoming.view, incoming.redactor)
        known_by = await compute(len(incoming.view.body), identify)
        return await self._join_or_enter(incoming, known_by, settled), ""

    async def _join_or_enter(
        self, incoming: DialectRequest, known_by: RequestFingerprint, part: _AnswerPart | None
    ) -> AnswerSource:
        """Join the running turn of an equal request; else enter a turn."""
        # Two equal requests at one moment must not both find that there is no turn yet.
        entry = self._entry(incoming.agent.id, known_by.request)
        async with entry.lock:
            running = await self._find_running(incoming.agent.id, known_by)
            if running is not None:
                turn_id, waiting = running.context.turn_id, running.waiting + 1
                self._log_join(incoming, turn_id, "running", waiting=waiting)
            elif entry.awaited is not None:
                # An equal request has waited for this turn, and this one for the lock meanwhile.
                return self._answer_again(incoming, entry.awaited)
            else:
                entered = await self._enter_conversation(incoming, known_by, part)
                if isinstance(entered, CompletedTurn):
                    entry.awaited = entered if entered.awaited else None
                    await self._remember_again(incoming, entered)
                    return self._answer_again(incoming, entered)
                if isinstance(entered, RunnerResponse):
                    return entered
                running = entered

            running.join()
            return running

    def _entry(self, agent_id: str, key: str) -> _EntryLock:
        """Return the lock of one agent's requests with this key."""
        return self._entering.setdefault((agent_id, key), _EntryLock())

    async def _find_running(
        self, agent_id: str, known_by: RequestFingerprint
    ) -> RunningTurn | None:
        """Return the running turn of an equal request, unless its runner has left."""
        running = self._turns.find(agent_id, known_by.request)
        if running is not None and running.task.cancelling():
            # A write may be in flight. After that has ended, this request may resume the turn.
            await asyncio.wait([running.task])
            return None
        return running

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

        entry = self._entry(held.incoming.agent.id, held.known_by.request)
        async with entry.lock:
            try:
                resumed = await self._retries.resume(past, held.known_by)
            except StoreError:
                resumed = None
            if resumed is None:
                return None  # Another request goes on with it.

            try:
                context = await self._preparer.prepare(held.incoming, past.turn_id, Stopwatch())
                if isinstance(context, RunnerResponse):
                    return None
                return await self._turns.settle(replace(context, held=held.text))
            finally:
                await self._turns.abandon(past.turn_id)

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

    async def _remember_again(self, incoming: DialectRequest, earlier: CompletedTurn) -> None:
        answer = AnsweredTurn(earlier.turn_id, earlier.response.body)
        with suppress(StoreError):  # which is reported when the rounds are looked for
            await self._continuity.remember_again(incoming, name_session(incoming), answer)

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

        entry = self._entry(incoming.agent.id, f"conversation {conversation}")
        async with entry.lock:
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
        new_attempt = _Attempt(new_turn_id(), "first", Stopwatch())
        await self._turns.wait_for_left(incoming.agent.id, incoming.view.evidence.earlier)
        earlier = await self._find_earlier(incoming, known_by, new_attempt.turn_id)
        match earlier:
            case CompletedTurn():
                return earlier
            case "overtaken":
                return self._refuse_overtaken(incoming)
            case Resume(turn_id, has_steps):
                # Its time begins now: the earlier attempt may have been waited for.
                attempt = _Attempt(turn_id, "resumed" if has_steps else "first", Stopwatch())
            case StoreError():
                attempt = new_attempt._replace(kind="journal_unavailable")
            case None:
                attempt = new_attempt
            case _:
                assert_never(earlier)

        has_started = False
        try:
            started = await self._start(incoming, known_by, attempt, part)
            has_started = isinstance(started, RunningTurn)
            return started
        finally:
            if not has_started:
                await self._turns.abandon(attempt.turn_id)

    async def _start(
        self,
        incoming: DialectRequest,
        known_by: RequestFingerprint,
        attempt: _Attempt,
        part: _AnswerPart | None,
    ) -> RunningTurn | RunnerResponse:
        """Admit and prepare a request, and start its turn; return the refusal if it gets none."""
        admission = await self._preparer.admit(incoming, attempt.turn_id)
        if isinstance(admission, RunnerResponse):
            return admission

        with self._budgets.held(incoming.agent, incoming.view.model, admission):
            context = await self._preparer.prepare(incoming, attempt.turn_id, attempt.stopwatch)
            if isinstance(context, RunnerResponse):
                return context

            context = replace(
                context, fingerprint=known_by.request, attempt=attempt.kind, admission=admission
            )
            if isinstance(part, HeldAnswer):
                context = replace(context, held=part.text, before_rest=part.before_rest)
            else:
                settled = part or await self._find_settled(incoming, context)
                context = replace(context, settled=settled)
            return self._turns.start(context)

    def _refuse_overtaken(self, incoming: DialectRequest) -> RunnerResponse:
        """Refuse the retry of a failed turn whose conversation went on without it.

        The rule is in docs/spec/responses.md section 11.
        """
        self._log.event(
            "intervention",
            incoming.agent,
            model=incoming.view.model,
            intervention="retry_overtaken",
        )
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

    async def _mark_delivered(self, turn_id: str) -> None:
        with suppress(StoreError):
            await self._turns.journal.mark_delivered(turn_id)

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
